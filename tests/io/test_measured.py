"""Claims about tables of measured kernels: what is read, what is refused, what is left out."""

from __future__ import annotations

import json

import pytest

from crosstack.errors import InputError
from crosstack.evaluate.expert_scores import ExpertsProgram
from crosstack.evaluate.product_tiles import ProductProgram
from crosstack.evaluate.scores import MeasuredProduct, Timed
from crosstack.io import library
from crosstack.io.measured import MOST_PROBLEMS, read_kernels
from crosstack.workload.dtype import Dtype

ROW = {"m": 64, "k": 128, "n": 256, "dtype": "bf16", "time_s": 1e-5, "gpu": "H100-SXM5-80GB"}


@pytest.fixture
def saved(tmp_path):
    def save(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
        return path

    return save


def test_a_row_is_a_product_on_a_chip(saved):
    (found,) = read_kernels(saved(ROW, "", ROW | {"m": 2})).sets
    assert found.chip == library.chip("h100-sxm")
    assert found.gpu == "H100-SXM5-80GB"
    row = MeasuredProduct(m=64, k=128, n=256, dtype=Dtype.BF16, time=1e-5, result=2.0)
    assert found.rows[0] == row
    assert [row.m for row in found.rows] == [64, 2]


def test_what_moves_of_a_result_is_as_wide_as_it_is_and_twice_what_is_added_to(saved):
    wide = ROW | {"out_dtype": "fp32"}
    rows = ROW, wide, wide | {"accumulate": True}, ROW | {"dtype": "fp8"}
    (products, eight) = read_kernels(saved(*rows)).sets
    assert [row.result for row in products.rows] == [2, 4, 8]
    assert eight.rows[0].result == 2  # bytes, of products of one
    groups = ROW | {"op": "grouped gemm", "groups": 4, "gradient_dtype": "fp32"}
    (found,) = read_kernels(saved(groups | {"stage": "fwd"}, groups | {"stage": "bwd_grad_w"})).sets
    assert [row.result for row in found.rows] == [2, 8]


def test_layers_of_frameworks_are_timed_in_graphs_with_their_casts(saved):
    source = {"source": "aic:h100_sxm/gemm", "software": "vLLM 0.24.0"}
    blocks = ROW | source | {"dtype": "fp8_block"}
    found = {each.dtype: each.rows[0] for each in read_kernels(saved(ROW | source, blocks)).sets}
    assert found[Dtype.BF16].timed is found[Dtype.FP8_BLOCKS].timed is Timed.GRAPH
    (bf16,) = read_kernels(saved(ROW | source)).sets
    assert bf16.source == "aic: vLLM 0.24.0"
    assert found[Dtype.FP8_BLOCKS].cast
    assert not found[Dtype.BF16].cast


def test_products_in_four_bits_of_one_framework_have_one_tile(saved):
    four = ROW | {"gpu": "B200", "dtype": "nvfp4", "source": "aic:b200_sxm/gemm"}
    one, best = read_kernels(
        saved(four | {"software": "TensorRT-LLM 1.3.0rc20"}, four | {"software": "vLLM 0.24.0"})
    ).sets
    assert one.rows[0].program is ProductProgram.FP4
    assert best.rows[0].program is ProductProgram.LIBRARY


def test_experts_are_searched_where_their_source_says_so(saved):
    layer = {
        "op": "moe", "gpu": "H100-SXM5-80GB", "dtype": "fp8", "source": "aic:h100_sxm/moe",
        "tokens": 64, "hidden": 4096, "expert_ffn": 1024, "topk": 10, "experts": 512, "tp": 1,
        "ep": 4, "time_s": 1e-3,
    }  # fmt: skip
    search = layer | {"software": "TensorRT-LLM 1.3.0rc20", "kernel": "moe_torch_flow_cutlass"}
    none = layer | {"software": "vLLM 0.24.0", "kernel": "vllm_fp8moe_flashinfer_cutlass_experts"}
    rows = search, search | {"ep": 1}, none, none | {"dtype": "fp8_block"}
    found = [row for each in read_kernels(saved(*rows)).sets for row in each.rows]
    assert sorted((row.dtype, row.ep, row.searched) for row in found) == [
        (Dtype.FP8, 1, True), (Dtype.FP8, 4, False), (Dtype.FP8, 4, False),
        (Dtype.FP8_BLOCKS, 4, True),
    ]  # fmt: skip


def test_what_the_library_does_not_know_is_left_out(saved):
    rows = [ROW, ROW | {"gpu": "Abacus"}, ROW | {"dtype": "nvfp4"}, ROW | {"dtype": "posit"}]
    found = read_kernels(saved(*rows))
    assert [len(each.rows) for each in found.sets] == [1]
    name = library.chip("h100-sxm").name
    assert found.left_out == {"Abacus": 1, f"nvfp4 on {name}": 1, f"posit on {name}": 1}


def test_a_chip_may_be_said_for_all(saved):
    chip = library.chip("b200")
    (found,) = read_kernels(saved({k: v for k, v in ROW.items() if k != "gpu"}), chip).sets
    assert found.chip is chip
    with pytest.raises(InputError, match="no kernel of a chip that is known"):
        read_kernels(saved(ROW | {"gpu": "Abacus"}))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", r"rows.jsonl:2: is no JSON"),
        ("[1]", r"rows.jsonl:2: got no object"),
        (ROW | {"dtype": None}, r"rows.jsonl:2: dtype: required, but missing"),
        (ROW | {"m": 0}, r"rows.jsonl:2: m: got 0; allowed: 1, 2, 3"),
        (ROW | {"k": 1.5}, r"rows.jsonl:2: k: got 1.5"),
        (ROW | {"n": True}, r"rows.jsonl:2: n: got True"),
        (ROW | {"time_s": 0}, r"rows.jsonl:2: time_s: got 0; allowed: seconds, above 0"),
        (ROW | {"time_s": "1"}, r"rows.jsonl:2: time_s: got '1'"),
    ],
    ids=str,
)
def test_a_row_that_is_none_is_refused_with_its_line(saved, row, said):
    with pytest.raises(InputError, match=said):
        read_kernels(saved(ROW, row))


def test_so_many_problems_are_told(saved):
    with pytest.raises(InputError) as error:
        read_kernels(saved(*[ROW | {"m": -1}] * 100))
    assert len(error.value.problems) == MOST_PROBLEMS


TOKEN = {"gpu": "H100-SXM5-80GB", "op": "generation", "batch": 2, "query": 1, "kv": 512, "heads": 8,
         "kv_heads": 2, "head_size": 128, "dtype": "bf16", "kv_dtype": "fp8", "time_s": 1e-5,
         "source": "aic:x", "software": "TensorRT-LLM 1"}  # fmt: skip


def test_a_row_of_attention_has_what_it_leaves_out_from_what_it_says(saved):
    (found,) = read_kernels(saved(TOKEN, TOKEN | {"value_size": 64, "window": 100})).sets
    plain, other = found.rows
    assert found.name == "H100-SXM5-80GB, bf16, generation"
    assert (plain.value_size, plain.window, plain.kv_element, plain.turned) == (128, 512, 1, 2)
    assert (other.value_size, other.window) == (64, 100)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"op": "generatoin"}, 'op: no kernel is called "generatoin". Did you mean "generation"'),
        ({"query": 600}, "query: got 600; allowed: at most kv, 512"),
        ({"heads": 0, "batch": "2"}, "batch: got '2'; allowed: 1, 2, 3"),
        ({"op": "gelu", "rows": 4}, "cols: got None; allowed: 1, 2, 3"),
    ],
    ids=str,
)
def test_a_wrong_row_of_attention_or_elements_is_named(saved, change, words):
    with pytest.raises(InputError, match="rows.jsonl:1") as error:
        read_kernels(saved(TOKEN | change))
    assert words in str(error.value)


LAYER = {"gpu": "H100-SXM5-80GB", "op": "moe", "tokens": 2, "hidden": 64, "expert_ffn": 32,
         "topk": 1, "experts": 4, "tp": 1, "ep": 2, "dtype": "w4a16_mxfp4", "time_s": 1e-5,
         "routing": "power_law_1.2", "kernel": "x_nongated"}  # fmt: skip


def test_a_layer_of_experts_has_narrow_weights_and_its_routing(saved):
    groups = {"gpu": "H100-SXM5-80GB", "op": "grouped gemm", "groups": 2, "m": 1, "k": 2, "n": 3,
              "dtype": "bf16", "time_s": 1.0}  # fmt: skip
    grouped, layer = read_kernels(saved(LAYER, groups)).sets
    (row,) = layer.rows
    assert layer.name == "H100-SXM5-80GB, w4a16_mxfp4, moe"
    assert (row.exponent, row.gated, row.program, row.dtype) == (1.2, False, "mxfp4", "bf16")
    assert row.weight == 0.5 + 1 / 32
    assert (grouped.rows[0].groups, grouped.rows[0].n) == (2, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ep": 3}, "ep: got 3; allowed: a divisor of experts, 4"),
        ({"routing": "random"}, "routing: got 'random'; allowed: balanced, or power_law_"),
    ],
    ids=str,
)
def test_a_wrong_layer_of_experts_is_named(saved, change, words):
    with pytest.raises(InputError) as error:
        read_kernels(saved(LAYER | change))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("kernel", "program"),
    [
        ("moe_torch_flow_cutlass", ExpertsProgram.LIBRARY),
        ("moe_torch_flow_min_latency", ExpertsProgram.GENERATED),
        ("sglang_fused_moe_triton", ExpertsProgram.FUSED),
        ("sglang_marlin_moe", ExpertsProgram.MARLIN),
    ],
)
def test_the_kernel_tells_the_program_of_experts(saved, kernel, program):
    (found,) = read_kernels(saved(LAYER | {"dtype": "bf16", "kernel": kernel})).sets
    assert found.rows[0].program is program
