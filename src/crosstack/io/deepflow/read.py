"""Reads DeepFlow's YAML: text, tree, overrides, one form, shape, records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, TypeGuard

from crosstack.errors import InputError, Problem
from crosstack.io.deepflow.hardware import DeepflowHardware, hardware_of
from crosstack.io.deepflow.schema import FIELDS, MODES
from crosstack.io.files import in_file, of_file
from crosstack.io.native.overrides import override
from crosstack.io.native.problems import checked, unknown_fields
from crosstack.io.native.schema import FileModel, shown
from crosstack.io.yaml_tree import Change, Content, tree_of


def looks_like(tree: object) -> bool:
    """Return whether a parsed YAML file is one of DeepFlow's."""
    return isinstance(tree, dict) and bool({"tech_param", "model_param"} & tree.keys())


def read_hardware(
    content: Content, source: str, overrides: Sequence[Change] = ()
) -> DeepflowHardware:
    """Return what a hardware file holds, in the form of 2025 or of 2020 and 2021.

    `InputError` with every problem found: ``FILE: path: what is wrong``.

    Parameters
    ----------
    content : str or dict
        The file's text, or its tree.
    source : str
        What to call the file in errors, and its chip after.
    overrides : sequence of str, or of (str, value)
        ``path=value``, e.g. ``power_breakdown.core=120``; null takes a field out.

    Notes
    -----
    Prefixes are binary: ``4 GB`` is 4 GiB, bandwidths included. In the older form areas and
    powers are shares of ``proc_chip_area_budget`` and ``TDP``; the perimeter is shares in both.
    """
    form = 2025
    try:
        tree = _tree(content, overrides)
        form = 2021 if _is_old(tree) else 2025
        model = _model(tree.pop("model_param"), "LSTM") if "model_param" in tree else None
        n_devices = None
        if form == 2021:
            workers = _section(tree, "system_hierarchy").get("num_workers")
            n_devices = workers if _is_count(workers) else None
            tree = _modern(tree)
        known = FIELDS["hardware"].model_fields
        if unknown := [name for name in tree if name not in known]:
            raise InputError(unknown_fields(unknown, known))
        file = checked(FIELDS["hardware"], tree)
        name = PurePath(source).stem
        return hardware_of(file, form=form, n_devices=n_devices, model=model, name=name)
    except InputError as error:
        raise in_file(_as_written(error, form), source) from None


def read_model(text: str, source: str, overrides: Sequence[str] = ()) -> FileModel:
    """Return the model of a model file (2025), or of a single file (2020, 2021: an LSTM).

    `InputError` with every problem found: ``FILE: path: what is wrong``.
    """
    with of_file(source):
        tree = _tree(text, overrides)
        if "model_param" not in tree:
            raise InputError(Problem("model_param", "required, but missing."))
        return _model(tree["model_param"], "LSTM" if _is_old(tree) else None)


def _tree(content: Content, overrides: Sequence[Change]) -> dict[str, Any]:
    tree = tree_of(content)
    if not isinstance(tree, dict):
        raise InputError(Problem("", f"got {shown(tree)}; allowed: a DeepFlow file."))
    if overrides:
        tree = override(tree, overrides, Any)
    # A level or an optional number that is null is not there.
    return {name: _given(section) for name, section in tree.items()}


def _given(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {name: _given(value) for name, value in tree.items() if value is not None}


def _section(tree: dict[str, Any], name: str) -> dict[str, Any]:
    section = tree.get(name, {})
    return section if isinstance(section, dict) else {}


def _is_old(tree: dict[str, Any]) -> bool:
    """Return whether the areas of a file are shares: the releases of 2020 and 2021."""
    return "node_area_budget" in _section(tree, "area_breakdown") or "num_workers" in _section(
        tree, "system_hierarchy"
    )


def _model(section: object, default: str | None) -> FileModel:
    given = dict(section) if isinstance(section, dict) else {}
    mode = given.get("mode", default)
    if not isinstance(mode, str) or mode not in MODES:
        came = "required, but missing" if mode is None else f"got {shown(mode)}"
        raise InputError(Problem("model_param.mode", f"{came}; allowed: {', '.join(MODES)}."))
    if mode == "LLM":  # either is optional, and null is how a file leaves it out
        given = {"ffn_dim": None, "ffn_mult": None} | given
    return checked(FIELDS[mode], given, "model_param")


# What the release of 2025 renamed.
_RENAMED = {
    ("area_breakdown", "node_area_budget"): "device_area_budget",
    ("system_hierarchy", "num_nodes_per_wafer"): "num_devices_per_node",
    ("network_topology", "inter_wafer"): "inter_node",
    ("network_topology", "intra_wafer"): "intra_node",
}


def _as_written(error: InputError, form: int) -> InputError:
    """Return the error with the fields of an older file under the names they have in it."""
    if form == 2025:
        return error
    names = {f"{section}.{new}": f"{section}.{old}" for (section, old), new in _RENAMED.items()}
    names["system_hierarchy.num_nodes"] = "system_hierarchy.num_workers"
    names |= {f"tech_param.core.FMA_d{i}": "tech_param.core.FMA_width" for i in (1, 2)}
    return InputError(dict.fromkeys(error.renamed(names).problems))


def _modern(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a file of 2020 or 2021 in the form of 2025."""
    new = {
        name: {_RENAMED.get((name, key), key): value for key, value in section.items()}
        if isinstance(section, dict)
        else section
        for name, section in tree.items()
    }
    technology = _section(new, "tech_param")
    core = _section(technology, "core")
    if "FMA_width" in core:
        width = core.pop("FMA_width")
        core |= {"FMA_d1": width, "FMA_d2": width}
    system = _section(new, "system_hierarchy")
    if "num_workers" in system:
        workers, inside = system.pop("num_workers"), system.get("num_devices_per_node", 1)
        whole = _is_count(workers) and _is_count(inside)
        system["num_nodes"] = -(-workers // inside) if whole else workers
    area, power = _section(new, "area_breakdown"), _section(new, "power_breakdown")
    kept = ("device_area_budget", "proc_chip_area_budget")
    new["area_breakdown"] = _absolute(area, area.get("proc_chip_area_budget"), kept)
    new["power_breakdown"] = _absolute(power, power.get("TDP"), ("TDP",))
    return new


def _absolute(tree: dict[str, Any], whole: object, kept: tuple[str, ...]) -> dict[str, Any]:
    """Return shares as parts of ``whole``; what is no number is left for the check of shapes."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found[name] = _absolute(value, whole, kept)
        elif name in kept or not _is_number(value) or not _is_number(whole):
            found[name] = value
        else:
            found[name] = value * whole
    return found


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
