"""Bad input of every kind, through ``crosstack map FILE``.

What the issue asks: exit 2 with the field's path and the nearest valid name, or a correct answer;
never a traceback, a hang, or a wrong number, and no result file.
"""
# ruff: noqa: E501 - the tables are one case a line

from __future__ import annotations

import pytest

MB = 10**6


def refusal(run, path, *arguments):
    """Return what ``map`` says of a file it must refuse, each line without the file's name."""
    result = path.parent / "result.json"
    before = sorted(path.parent.iterdir())
    outcome = run("map", path, *arguments, "--json", result)
    assert outcome.code == 2, (outcome.code, outcome.out, outcome.err)
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert "a bug" not in outcome.err
    assert sorted(path.parent.iterdir()) == before, "something was written"
    assert all(line.startswith(f"{path}") for line in outcome.problems), outcome.err
    return [line.removeprefix(str(path)).removeprefix(": ") for line in outcome.problems]


def changed(text, old, new):
    assert text.count(old) == 1, f"{old!r} stands in the text {text.count(old)} times"
    return text.replace(old, new)


# --- native YAML: fields, names, graphs ---------------------------------------------------------

Q = "{name: Q, kind: gemm_weight, outer: 2, m: 32, k: 64, n: 32, inputs: [A]}"

# What is replaced, by what, how the error starts, what else is in it.
YAML = {
    "unknown section": ("workload:", "workloads:", "workloads: unknown field.", '"workload"'),
    "unknown field of the memory": ("{bandwidth: 20", "{bandwith: 20", "system.memory.bandwith: unknown field.", '"bandwidth"'),
    "unknown field of a dimension": ("size: 2, bandwidth: 10", "sizes: 2, bandwidth: 10", "system.network[0].sizes: unknown field.", '"size"'),
    "unknown field of a kernel": ("{name: A, kind", "{name: A, tilling: n, kind", "workload.kernels[0].tilling: unknown field.", '"tiling"'),
    "unknown constraint": ("system:", "constraints: {microbatch: 1}\nsystem:", "constraints.microbatch: unknown field.", '"microbatch_size"'),
    "unknown kind of kernel": ("kind: gemm,", "kind: gem,", "workload.kernels[3].kind: got 'gem'", '"gemm"'),
    "unknown kind of dimension": ("kind: ring", "kind: rings", "system.network[0].kind: got 'rings'", '"ring"'),
    "unknown parallelism": ("parallelism: tensor", "parallelism: tensors", "system.network[0].parallelism: got 'tensors'", '"tensor"'),
    "unknown axis": ("system:", "constraints: {sharding: {A: mm}}\nsystem:", "constraints.sharding.A: got 'mm'", "allowed: outer, m, k, n, none"),
    "unknown overlap": ("256 KiB", "256 KiB, overlap: al", "system.chip.overlap: got 'al'", '"all"'),
    "unknown chip": ("chip: {", "chip: {library: sn3, ", "system.chip", '"sn30"'),
    "unknown rules": ("name: small", "rules: dfmodel-reame", "rules: no rules are called", '"dfmodel-readme"'),
    "unknown unit": ("20 GB/s", "20 GBs", "system.memory.bandwidth: got '20 GBs'", '"GB/s"'),
    "missing field": ("n: 32, inputs: [S", "inputs: [S", "workload.kernels[4].n: required, but missing."),
    "cycle": (Q, Q.replace("[A]", "[F]"), "workload.kernels: the graph has a cycle", "Q -> S -> F -> Q"),
    "cycle of one kernel": (Q, Q.replace("[A]", "[Q]"), "workload.kernels: the graph has a cycle", "Q -> Q"),
    "missing kernel": ("[Q, K]", "[Qq, K]", 'workload.kernels[3].inputs[0]: no kernel is called "Qq".', 'Nearest: "Q"'),
    "missing kernel in a pin": ("system:", "constraints: {partitions: {Ss: 0}}\nsystem:", 'constraints.partitions.Ss: no kernel is called "Ss".', 'Nearest: "S"'),
    "missing kernel in a sharding": ("system:", "constraints: {sharding: {Ss: m}}\nsystem:", 'constraints.sharding.Ss: no kernel is called "Ss".', 'Nearest: "S"'),
    "duplicate kernel": ("{name: F,", "{name: A,", "workload.kernels[4].name: the name 'A' is taken", "workload.kernels[0]"),
    "sizes that disagree": ("[Q, K]", "[Q, K], input_sizes: [4096, 4095]", "workload.kernels[3].inputs[1]: sizes disagree", "4096 B"),
    "too many operands": ("[Q, K]", "[Q, K, A]", "workload.kernels[3].inputs: got 3 operands", "up to 2"),
    "elementwise that contracts": ("n: 32, inputs: [S", "k: 3, n: 32, inputs: [S", "workload.kernels[4].k: got 3", "allowed: 1"),
    "tensor too large to count": (Q, Q.replace("outer: 2", "outer: 9007199254740991"), "workload.kernels[1].outer: got 9007199254740991", "below 2^62"),
    "key given twice": ("word: 2", "word: 2\n  word: 4", "line 4, column 3: the key 'word' is given twice."),
    "alias": ("word: 2", "word: &two 2\n  n_layers: *two", "line 4, column 13: an alias (*two)", "allowed"),
    "tag": ("word: 2", "word: !!python/name:os.system ''", "line 3, column 9: a tag", "allowed"),
    "two documents": ("system:", "---\nsystem:", "line 12, column 1: a second document", "allowed"),
    "bad syntax": ("word: 2", "word: [2", "line 4", "not YAML"),
    "control character": ("name: small", 'name: "\x1b[31m"', "", "not YAML"),
}  # fmt: skip


@pytest.mark.parametrize("case", YAML)
def test_a_bad_native_file_is_refused_by_field(run, small, small_text, case):
    old, new, *says = YAML[case]
    small.write_text(changed(small_text, old, new))
    (line,) = refusal(run, small)
    assert line.startswith(says[0])
    assert all(part in line for part in says)


def test_a_kernel_name_cannot_write_to_the_terminal(run, small, small_text):
    small.write_text(changed(small_text, "[Q, K]", r'["\e[31m\nQ", K]'))
    (line,) = refusal(run, small)
    assert r"\x1b[31m\nQ" in line


def test_every_problem_has_its_line(run, small, small_text):
    text = changed(small_text, "kind: ring", "kind: rings")
    text = changed(text, "20 GB/s", "-1")
    small.write_text(changed(text, "[Q, K]", "[Q, Z]"))
    assert sorted(line.split(":")[0] for line in refusal(run, small)) == [
        "system.memory.bandwidth",
        "system.network[0].kind",
        "workload.kernels[3].inputs[1]",
    ]


def test_a_very_long_name_gives_a_line_that_can_be_read(run, small):
    small.write_text(f"{'x' * 10**6}: 1")
    assert max(map(len, refusal(run, small))) < 3000


# --- numbers ------------------------------------------------------------------------------------

QUANTITIES = [
    "workload.boundary_size",
    "workload.kernels[0].memory_traffic",
    "workload.kernels[0].output_size",
    "system.chip.frequency",
    "system.chip.sram_capacity",
    "system.chip.utilization",
    "system.chip.price",
    "system.chip.power",
    "system.memory.bandwidth",
    "system.memory.capacity",
    "system.network[0].bandwidth",
    "system.network[0].latency",
    "system.network[0].link_power",
    "system.prices.link",
]
WHOLE_NUMBERS = [
    "workload.word",
    "workload.n_layers",
    "workload.layers_in_graph",
    "workload.global_batch_size",
    "workload.sequence_length",
    "workload.kernels[0].outer",
    "workload.kernels[0].m",
    "workload.kernels[0].n",
    "workload.kernels[1].k",
    "workload.kernels[0].repeats",
    "system.chip.n_cores",
    "system.chip.lanes",
    "system.chip.stages",
    "system.n_chips",
    "system.network[1].size",
    "constraints.microbatch_size",
    "constraints.n_tiles",
    "constraints.tile_size",
    "constraints.max_partitions",
]


@pytest.mark.parametrize("value", ["-1", ".nan", ".inf", "-.inf", "1e300", "true", "many", "[1]"])
@pytest.mark.parametrize("field", QUANTITIES)
def test_what_is_no_quantity_is_refused(run, small, field, value):
    (line,) = refusal(run, small, "--set", f"{field}={value}")
    assert line.startswith(f"{field}: got ")
    assert "allowed" in line


@pytest.mark.parametrize(
    "value", ["-1", "0", "1.5", ".nan", ".inf", "9007199254740992", "true", "many", "{a: 1}"]
)
@pytest.mark.parametrize("field", WHOLE_NUMBERS)
def test_what_is_no_whole_number_is_refused(run, small, field, value):
    (line,) = refusal(run, small, "--set", f"{field}={value}")
    assert line.startswith(f"{field}: got ")
    assert "allowed: a whole number, at least 1" in line


@pytest.mark.parametrize("field", [*QUANTITIES, *WHOLE_NUMBERS])
def test_a_field_that_is_misspelt_on_the_command_line_is_refused(run, small, field):
    (line,) = refusal(run, small, "--set", f"{field}x=1")
    assert line.startswith(f"{field}x: unknown field.")
    assert f'"{field.rpartition(".")[2]}"' in line


# --- dims that do not divide, decisions that contradict each other ------------------------------

LLM = """\
workload:
  llm: {hidden: 64, sequence: 32, heads: 4, kv_heads: 2, layers: 2, batch: 8}
"""

CONTRADICTIONS = {
    "chips the network does not join": (["system.n_chips=5"], "system.n_chips: got 5", "2 x 2"),
    "layers the graph does not divide": (["workload.layers_in_graph=3"], "workload.n_layers: got 4", "a multiple of layers_in_graph = 3"),
    "batch the data-parallel chips do not divide": (["system.network[1].parallelism=data", "workload.global_batch_size=7"], "workload.global_batch_size: got 7", "a multiple of the data-parallel degree"),
    "batch the microbatch does not divide": (["constraints.microbatch_size=3"], "workload.global_batch_size: got 8", "microbatch size (3)"),
    "pin past the limit": (["constraints.max_partitions=2", "constraints.partitions.A=2"], "constraints.partitions.A: got 2", "0 to 1"),
    "pin past one partition a kernel": (["constraints.partitions.A=5"], "constraints.partitions.A: got 5", "0 to 4"),
    "kernel by kernel in fewer partitions": (["constraints.kernel_by_kernel=true", "constraints.max_partitions=2"], "constraints.max_partitions: got 2", "at least 5"),
    "kernel by kernel with pins": (["constraints.kernel_by_kernel=true", "constraints.partitions.A=2"], "constraints.partitions: got", "allowed: none"),
    "pins against the order": (["constraints.partitions.A=2", "constraints.partitions.S=0"], "constraints.partitions.S: got 0", "allowed"),
    "sharding along an axis that cannot be split": (["constraints.sharding.A=k"], "constraints.sharding.A: got k", "allowed for this kernel: m, none"),
    "more tiles than the sequence has elements": (["constraints.n_tiles=7000"], "constraints.n_tiles: got 7000", "allowed"),
    "a sequence that is too long": (["workload.sequence_length=1000000000000"], "workload.sequence_length: got 1000000000000", "up to 2^28"),
    "tiles that do not cover the sequence": (["constraints.n_tiles=2", "constraints.tile_size=1"], "constraints", "allowed"),
    "extents that disagree": (["workload.kernels[1].k=65"], "workload.kernels[1].inputs[0]: sizes disagree: 'A' makes 4096 B", "'Q' is 4160 B", "by its extents"),
    "utilization above all": (["system.chip.utilization=1.5"], "system.chip.utilization: got 1.5", "at most 1"),
    "no dimension": (["system.network=[]"], "system.network: got no dimensions", "1 to 4"),
    "five dimensions": ([f"system.network=[{', '.join(['{kind: ring, size: 1, bandwidth: 1}'] * 5)}]"], "system.network", "1 to 4"),
    "no kernels": (["workload.kernels=[]"], "workload.kernels: got no kernels", "at least one"),
    "no workload": (["workload=null"], "workload: required, but missing."),
    "an entry there is not": (["system.network[2].size=1"], "system.network[2]: there is no such entry", "2 entries"),
    "a field of a number": (["workload.word.size=1"], "workload.word", "single value"),
    "no assignment": (["workload.word"], "got 'workload.word'", "allowed: PATH=VALUE"),
    "bad YAML in an assignment": (["workload.word=["], "workload.word", "not YAML"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_what_cannot_hold_together_is_refused(run, small, case):
    assignments, *says = CONTRADICTIONS[case]
    (line,) = refusal(run, small, *(part for a in assignments for part in ("--set", a)))
    assert line.startswith(says[0])
    assert all(part in line for part in says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((" heads: 4", " heads: 5"), "workload.llm.head_size: left out"),
        (("kv_heads: 2", "kv_heads: 3"), "workload.llm.kv_heads: got 3"),
        (("hidden: 64, ", ""), "workload.llm.hidden: required, but missing; or model"),
        (("batch: 8", "batch: 8, block: head_layers"), "workload.llm.block: no block is called"),
        (("hidden: 64", "hidden: 0"), "workload.llm.hidden: got 0"),
        (("hidden", "hiden"), "workload.llm.hiden: unknown field. Did you mean \"hidden\"?"),
        (("llm: {", "kernels: []\n  llm: {"), "workload.kernels: not allowed beside llm"),
    ],
)  # fmt: skip
def test_a_transformer_that_does_not_add_up_is_refused(run, small, small_text, change, says):
    text = changed(LLM, *change) + small_text[small_text.index("system:") :]
    small.write_text(text)
    (line,) = refusal(run, small)
    assert line.startswith(says)


# --- DFModel text -------------------------------------------------------------------------------

DFMODEL = {
    "unknown field": ('"Up"\n\tid', '"Up"\n\tidd', "dataflow_graph.kernels[1].idd: unknown field.", '"id"'),
    "unknown block": ("cost {", "costs {", "costs: unknown field.", '"cost"'),
    "unknown value": ("fwd_bwd: FWD", "fwd_bwd: FWDD", 'dataflow_graph.kernels[1].fwd_bwd: unknown value "FWDD".', '"FWD"'),
    "unknown parallelism": ('par_x: "TP"', 'par_x: "TPP"', 'system.r_sw.par_x: unknown value "TPP".', '"TP"'),
    "cycle": ("startIdx: 7 endIdx: 4", "startIdx: 4 endIdx: 7", "dataflow_graph", "cycle"),
    "missing kernel": ("startIdx: 7 endIdx: 4", "startIdx: 7 endIdx: 44", "dataflow_graph.connections[1].endIdx", "44"),
    "sizes that disagree": ("input_tensor_1_size: 128", "input_tensor_1_size: 127", "dataflow_graph.connections[2]", "127"),
    "chips the network does not join": ("num_chip: 8", "num_chip: 9", "system.num_chip: got 9", "4 x 2"),
    "negative number": ("dram_bw: 300", "dram_bw: -300", "system.memory.dram_bw: got -3", "above 0"),
    "not a number": ("dram_bw: 300", "dram_bw: nan", "system.memory.dram_bw: got nan", "above 0"),
    "infinite number": ("dram_bw: 300", "dram_bw: inf", "system.memory.dram_bw: got inf", "finite"),
    "text for a number": ("dram_bw: 300", 'dram_bw: "fast"', "system.memory.dram_bw: got", "a number"),
    "fraction of a chip": ("num_chip: 8", "num_chip: 8.5", "system.num_chip: got", "a whole number"),
    "no chips": ("num_chip: 8", "num_chip: 0", "system.num_chip: got 0", "at least 1"),
    "field given twice": ("num_chip: 8", "num_chip: 8 num_chip: 8", "system.num_chip", "more than once"),
    "two networks": ("memory { dram_bw", "r { link_bw_x: 1 } memory { dram_bw", "system.r", "one of them"),
    "no network": ('r_sw { x: 4 y: 2 link_bw_x: 50 link_bw_y: 25.5 par_x: "TP" par_y: "DP" }', "", "system: no network is given", "r_sw"),
    "batch that does not divide": ("global_batch_size: 16", "global_batch_size: 15", "execution.llm.global_batch_size: got 15"),
    "pin in the other half": ("id: 4 config: -1", "id: 4 config: 0", "dataflow_graph.kernels[2].config: got 0", "allowed: 1 to 1, as backward kernels have 1 of 2 partitions"),
    "operand that two connections feed": ("connections { startIdx: 3 endIdx: 4 id: 2 }", "connections { startIdx: 3 endIdx: 4 id: 2 } connections { startIdx: 3 endIdx: 4 id: 2 }", "dataflow_graph.connections[3]: 'Sum' has no operand left"),
    "layers that do not divide": ("num_layer: 2", "num_layer: 2.5", "execution.llm.num_layer: got", "a whole number"),
    "pin past the limit": ("config: -1\n  fwd", "config: 2\n  fwd", "dataflow_graph.kernels[1].config: got 2", "-1 (free) to 1"),
    "unclosed block": ("gurobi { time: 5 }", "gurobi { time: 5", "gurobi", "line"),
    "deep nesting": ("gurobi {", "gurobi {" * 5000, "gurobi", "unknown field"),
}  # fmt: skip


@pytest.mark.parametrize("case", DFMODEL)
def test_a_bad_dfmodel_file_is_refused_by_field(run, dfmodel_file, dfmodel_text, case):
    old, new, *says = DFMODEL[case]
    dfmodel_file.write_text(changed(dfmodel_text, old, new))
    (line,) = refusal(run, dfmodel_file)
    assert line.startswith(says[0])
    assert all(part in line for part in says)


def test_pins_of_an_odd_number_of_partitions_say_whose_they_are(run, dfmodel_file, dfmodel_text):
    text = changed(dfmodel_text, "num_config: 2", "num_config: 5")
    dfmodel_file.write_text(changed(text, "id: 4 config: -1", "id: 4 config: 1"))
    (line,) = refusal(run, dfmodel_file)
    assert line.startswith("dataflow_graph.kernels[2].config: got 1")
    assert "allowed: 2 to 4, as backward kernels have 3 of 5 partitions" in line


def test_a_limit_that_pins_count_up_to_is_no_hang(run, dfmodel_file, dfmodel_text):
    text = changed(dfmodel_text, "num_config: 2", "num_config: 2000000000")
    dfmodel_file.write_text(changed(text, "id: 7 config: -1", "id: 7 config: 0"))
    (line,) = refusal(run, dfmodel_file)
    assert line.startswith("execution.num_config: got 2000000000; allowed: up to 32")


def test_a_duplicate_id_is_refused(run, dfmodel_file, dfmodel_text):
    dfmodel_file.write_text(changed(dfmodel_text, "id: 3", "id: 7"))
    first, *dangling = refusal(run, dfmodel_file)
    assert first == "dataflow_graph.kernels[1].id: duplicate id 7; kernels[0] has it already."
    assert all("no kernel has id 3. Nearest: 4, 7." in line for line in dangling)


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("system.r_sw.link_bw=1", 'system.r_sw.link_bw: unknown field. Did you mean "link_bw_'),
        ("system.r_sw.link_bw_x=fast", "system.r_sw.link_bw_x: got fast; allowed: a number"),
        ("system.r_sw.link_bw_x", "allowed: path=value"),
        ("system.r_r.link_bw_x=1", 'the file gives "r_sw"'),
        ("system.memory.dram_bw=-1", "system.memory.dram_bw: got -1"),
        ("dataflow_graph.kernels[9].config=1", "kernels[0] to kernels[2]"),
        ("execution.execution_style=DATAFLOWS", 'Did you mean "DATAFLOW"?'),
    ],
)
def test_a_bad_override_of_a_dfmodel_file_is_refused(run, dfmodel_file, assignment, says):
    (line,) = refusal(run, dfmodel_file, "--set", assignment)
    assert says in line


# --- files that are no task ---------------------------------------------------------------------

ANY_FORMAT = pytest.mark.parametrize("suffix", [".yaml", ".txt"])
NOISE = bytes(range(128, 256)) * 64

CONTENTS = {
    "empty": (b"", "the file is empty"),
    "blank": (b" \n\t\n", "the file is empty"),
    "noise": (NOISE, "is not UTF-8 text"),
    "zeros": (bytes(4096), "is not text: a NUL byte at offset 0"),
    "utf-16": ("name: x".encode("utf-16"), "is not"),
    "prose": (b"Call me Ishmael.", "allowed: a mapping of name, rules, workload, system, constraints"),
    "a list": (b"[1, 2]", "got a list; allowed: a mapping"),
    "alias bomb": (b"a: &a [x, x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (i, i) for i in range(50)), "an alias (*a)"),
    "deep list": (b"[" * 100_000, "nested deeper than 50 levels"),
    "deep mapping": (b"{a: " * 100_000, "nested deeper than 50 levels"),
    "one long line": (b"a" * 10**6, "allowed: a mapping"),
    "many colons": (b"a: " * 10_000, "not YAML"),
}  # fmt: skip


@ANY_FORMAT
@pytest.mark.parametrize("case", CONTENTS)
def test_a_file_that_is_no_task_is_refused(run, tmp_path, case, suffix):
    content, says = CONTENTS[case]
    path = tmp_path / f"task{suffix}"
    path.write_bytes(content)
    (line,) = refusal(run, path)
    assert says in line


@ANY_FORMAT
def test_a_file_of_300_mb_is_refused_unread(run, tmp_path, suffix):
    path = tmp_path / f"task{suffix}"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(300 * 10**6)  # takes no room
    assert refusal(run, path) == ["file is 300 MB; allowed: up to 64 MB."]


@ANY_FORMAT
def test_a_missing_file_is_refused(run, tmp_path, suffix):
    assert refusal(run, tmp_path / f"task{suffix}") == ["no such file."]


@ANY_FORMAT
def test_a_directory_is_refused(run, tmp_path, suffix):
    path = tmp_path / f"task{suffix}"
    path.mkdir()
    assert refusal(run, path) == ["is a directory; allowed: a file."]


@pytest.mark.parametrize("name", ["smal.yaml", "small.yml", "Small.yaml"])
def test_a_misspelt_file_is_told_its_neighbour(run, small, name):
    (problem,) = run("map", small.parent / name).problems
    assert problem == f'{small.parent / name}: no such file. Did you mean "{small}"?'


def test_a_file_that_nothing_is_like_has_no_hint(run, small):
    assert run("map", small.parent / "xyz.yaml").problems[0].endswith("no such file.")


def test_a_misspelt_choice_is_told_the_nearest(run):
    outcome = run("generate", "hyena", "--hidden", 8, "--sequence", 8, "--convolution", "fft_gem")
    assert outcome.code == 2
    assert "Value error" not in outcome.err
    assert 'Did you mean "fft_gemm"?' in outcome.err


def test_a_name_no_file_can_have_is_refused(run, tmp_path):
    (line,) = refusal(run, tmp_path / ("x" * 300))
    assert "cannot be read" in line


def test_a_device_is_refused(run, tmp_path):
    outcome = run("map", "/dev/zero")
    assert (outcome.code, outcome.problems) == (2, ["/dev/zero: is not a regular file."])
