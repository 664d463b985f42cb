"""DFModel's text: a small one with changes, and the setups that were published."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosstack.io.dfmodel.read import read_task
from crosstack.mapping.mapping import Task

TESTS = Path(__file__).resolve().parents[1]
SETUPS = TESTS.parents[1] / "shared" / "data" / "dfmodel" / "setups"
published = pytest.mark.skipif(
    not SETUPS.is_dir(), reason="published setups are not in ../shared/data"
)
LLM_SETUPS = {
    # file: kernels, edges, rules, partitions (None: kernel by kernel), pinned kernels
    "readme_gpt3_1t_sn30.txt": (41, 53, "dfmodel-readme", 6, 0),
    "llm_fwdbwd_gpt3_1t_calculon_fix_TP_8_16_32.txt": (41, 53, "dfmodel-e4+separate", None, 0),
    "llm_fwd_gpt3_175b_sn10_kbk_8x1.txt": (18, 21, "dfmodel-e4", None, 0),
    "llm_fwd_gpt3_175b_sn10_dfmodel_8x1.txt": (18, 21, "dfmodel-e4", 4, 8),
    "llm_fwd_gpt3_175b_sn10_vendor_8x1.txt": (18, 21, "dfmodel-e4", 4, 8),
    "llm_decode_llama3_8b_sn40l_tp16_pp1.txt": (20, 23, "dfmodel-e5+separate", 1, 0),
}
OTHER_SETUPS = {
    # file: placement, kernels, edges, rules, bytes of tables, matrix or points
    "dlrm_damsim_0.4T.txt": ("batch", 8, 7, "dfmodel-e4", 32 * 10 * 1e9 * 2),
    "fft_compare_fp32_1024_a100.txt": ("columns", 2, 1, "dfmodel-e4", 1073740000000.0 * 4),
    "fft_dse_h100_3d_torus_hbm_nvlink.txt": ("columns", 2, 1, "dfmodel-e2", 2.0**41),
    "hpl_damsim_16x16.txt": ("grid", 2, 1, "dfmodel-readme", 131072.0**2 * 2),
    "hpl_dse_h100_3d_torus_hbm_nvlink.txt": ("grid", 64, 63, "dfmodel-e2", 2.0**41),
}
# Two projections joined by an addition: one weight kernel, one two-operand kernel.
SMALL = (TESTS / "io" / "dfmodel_small.txt").read_text()


def changed(*pairs: tuple[str, str], text: str = SMALL) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def small(*pairs: tuple[str, str], overrides: tuple[str, ...] = ()) -> Task:
    return read_task(changed(*pairs), "small.txt", overrides)
