"""The kernels of a GPU step, without a GPU. Tests that need Triton are skipped if it isn't installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.paths import REPOSITORY
from lab.bench import kernels
from lab.bench.budgets import broken_budgets, broken_by_own_kernel, budgets
from lab.kernels import absent_gpu
from lab.kernels.absent_gpu import GPUS
from lab.kernels.certificate import PieceResources
from lab.kernels.certificate import certificate as certify
from lab.kernels.codegen import Kernel, graph_of
from lab.kernels.launches import multi_tensor_launches
from lab.kernels.own_kernels import Instructions, count_instructions
from lab.kernels.step import PIECES, TOKENS, batch_of_tokens
from tests.conftest import Answer, Printed

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: the extra `kernels`"
)
FIELDS = {"arch", "piece", "kernels", "launches", "megabytes", "registers_max", "spill_bytes", "within_budget"}


def found(piece: str = "attention", **values: float) -> PieceResources:
    plain: dict[str, Any] = {
        "tokens": 1000, "precision": "bf16", "kernels": 0, "launches": 1, "megabytes": 1,
        "megabytes_beside_products": 1, "megabytes_of_attention": 0, "registers_max": 0, "shared_bytes_max": 0,
        "spill_bytes": 0, "elements_of_one_block": 0, "reading_back": 0,
    }  # fmt: skip
    return PieceResources("sm_90", piece, **{**plain, **values})


@needs_triton
@pytest.mark.parametrize(
    "arch", ["sm_90", *(pytest.param(other, marks=pytest.mark.slow) for other in ("sm_80", "sm_100"))]
)
def test_our_own_kernels_stay_within_their_budget_of_instructions(arch: str) -> None:
    counted = count_instructions(arch, absent_gpu.GPUS[arch])
    assert len(counted) == (2 if arch == "sm_80" else 5)
    assert [problem for kernel in counted for problem in broken_by_own_kernel(kernel, budgets())] == []
    assert all(kernel.instructions_per_element > 10 for kernel in counted), "a count of no instructions would pass"


@pytest.mark.slow
@needs_triton
def test_pieces_keep_their_budgets_in_hopper_s_machine_code() -> None:
    wanted = ["attention", "layer", "head_and_loss", "optimizer"]
    pieces = certify(["sm_90"], 8192, wanted=wanted)  # one process compiles all of them
    attention, layer, head, optimizer = pieces
    assert [piece.piece for piece in pieces] == wanted
    assert [problem for piece in pieces for problem in broken_budgets(piece, budgets())] == []
    assert attention.kernels == 0
    assert 10 < layer.kernels <= 24
    assert layer.launches >= layer.kernels + 12, "four linear layers are three products each"
    # two [T, D] fp32 streams in and out of each of two LayerNorms are the least that a layer moves
    assert layer.megabytes_beside_products > 8 * 8192 * 1024 * 4 / 1e6
    assert layer.registers_max > 16
    # scores of 1,228 masked tokens and some filler in bf16; word embeddings and their gradient between fp32 and bf16
    scores, words = 1_280 * 30_528 * 2 / 1e6, 30_528 * 1_024 * (4 + 2) / 1e6
    assert 2 * words < head.megabytes_beside_products < 2 * words + 2.5 * scores
    assert 10 <= optimizer.launches <= 20
    # bytes a parameter: of a matrix 44, of its copy in 16 bits 2 more, of vectors 32
    assert 45 * 336.2 <= optimizer.megabytes <= 46 * 336.2


@pytest.mark.slow
@needs_triton
def test_a_layer_with_a_16_bit_residual_takes_no_more_kernels_and_moves_a_thirteenth_less() -> None:
    _, layer = certify(["sm_90"], TOKENS, "bf16", ["attention", "layer"])
    limit = budgets()["pieces"]["layer"]
    assert layer.kernels <= limit["kernels"]
    assert layer.launches <= limit["launches"]
    megabytes = limit["megabytes"]["fixed"] + limit["megabytes"]["per_1000_tokens"] * TOKENS / 1000
    assert layer.megabytes <= 12 / 13 * megabytes
    assert layer.spill_bytes == 0


@pytest.mark.slow
@needs_triton
def test_every_piece_keeps_its_budget_on_every_architecture(answer: Answer) -> None:
    rows = answer("lab", "kernels")
    pieces = [row for row in rows if "piece" in row]
    assert [(row["arch"], row["piece"]) for row in pieces] == [(arch, piece) for arch in GPUS for piece in PIECES]
    assert len(rows) > len(pieces), "our own kernels have rows, too"
    assert all(row["within_budget"] for row in rows)
    assert all(row.keys() >= FIELDS for row in pieces)


def test_a_broken_budget_is_named_and_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, printed: Printed
) -> None:
    monkeypatch.setattr(absent_gpu, "find_spec", lambda name: name)
    limit = budgets()["every_kernel"]["spill_bytes"]
    spilling = found("embeddings", spill_bytes=limit + 8)
    monkeypatch.setattr(kernels, "certificate", lambda *_, **__: [found(), spilling])
    most = budgets()["instructions_per_element"]["GELU"]
    own = [Instructions("GELU", "sm_90", most, 0), Instructions("GELU", "sm_90", most + 0.1, 0)]
    monkeypatch.setattr(kernels, "count_instructions", lambda *_: own)
    words = "lab", "kernels", "--arch", "sm_90"
    assert [row["within_budget"] for row in answer(*words, code=1)] == [True, False, True, False]
    said = printed(*words, code=1)
    assert f"sm_90 embeddings: {limit + 8} bytes spilled per thread, the budget is {limit}" in said
    assert f"sm_90 GELU: {most + 0.1} instructions per element, the budget is {most}" in said


def test_fp8_is_counted_for_the_gpus_that_have_it(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, printed: Printed
) -> None:
    monkeypatch.setattr(absent_gpu, "find_spec", lambda name: name)
    asked = []

    def counted(archs: list[str], _: int, __: str, wanted: list[str], *rest: str) -> list[PieceResources]:
        asked.append((archs, len(wanted), rest[-1]))
        return []

    monkeypatch.setattr(kernels, "certificate", counted)
    monkeypatch.setattr(kernels, "count_instructions", lambda *_: [])
    answer("lab", "kernels", "--precision", "fp8")
    answer("lab", "kernels")
    assert asked == [(["sm_90", "sm_100"], 2, "fp8"), (["sm_80", "sm_90", "sm_100"], len(PIECES), "bf16")]
    said = printed("lab", "kernels", "--precision", "fp8", "--arch", "sm_80,sm_90", code=2)
    assert "--precision fp8: sm_80 has no fp8; give --arch sm_90,sm_100, or --precision bf16" in said


@pytest.mark.slow
@needs_triton
def test_a_layer_in_fp8_keeps_its_budget() -> None:
    wide, narrow = (
        certify(["sm_90"], TOKENS, residual, ["attention", "layer"], precision="fp8")[1]
        for residual in ("fp32", "bf16")
    )
    assert [problem for layer in (wide, narrow) for problem in broken_budgets(layer, budgets())] == []
    assert narrow.megabytes < 0.94 * wide.megabytes


def test_bytes_may_grow_with_the_batch_and_launches_may_not() -> None:
    limits = budgets()
    limit = limits["pieces"]["attention"]["megabytes"]
    at_8000 = limit["fixed"] + 8 * limit["per_1000_tokens"]
    most = {"megabytes": at_8000, "megabytes_beside_products": at_8000}
    assert list(broken_budgets(found(tokens=8000, **most), limits)) == []
    assert len(list(broken_budgets(found(tokens=7000, **most), limits))) == 2
    assert len(list(broken_budgets(found(launches=limits["pieces"]["attention"]["launches"] + 1), limits))) == 1


def test_without_triton_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    monkeypatch.setattr(absent_gpu, "find_spec", lambda _: None)
    assert "install bertbench[kernels]" in printed("lab", "kernels", code=2)


def test_the_batch_has_the_tokens_that_were_asked_for() -> None:
    for tokens in (1024, 24_576):
        batch = batch_of_tokens(tokens)
        assert len(batch.tokens_T) == tokens
        assert int(batch.sequences.cu_seqlens_S1[-1]) == tokens


def test_launches_of_multi_tensor_operations_are_counted_as_torch_splits_them() -> None:
    # 770 tensors of one list fit, or 2,240 blocks of 65,536 elements
    block = 65_536
    fitting, too_large = ([1] * 770, [2240 * block]), ([1] * 771, [2240 * block + 1], [2239 * block, 1, 1])
    assert [multi_tensor_launches(sizes, lists=1) for sizes in (*fitting, *too_large)] == [1, 1, 2, 2, 2]
    assert multi_tensor_launches([1] * 771, lists=2) == 2


def test_a_reduction_by_one_block_is_seen() -> None:
    source = "@triton_heuristics.reduction(\n    size_hints={'x': %d, 'r0_': 4194304},\n)"
    assert Kernel("one_block", source % 1).elements_of_one_block == 4_194_304
    assert Kernel("many", source % 64).elements_of_one_block == 0
    assert Kernel("pointwise", "    size_hints={'x': 4194304}, \n").elements_of_one_block == 0


def test_a_kernel_that_reads_back_what_it_wrote_is_seen_and_refused() -> None:
    assert Kernel("in_two_loops", "tl.store(out_ptr0 + (r0_1), tmp2)\ntmp5 = tl.load(out_ptr0 + (r0_1))").reads_back
    assert not Kernel("in_one", "tmp0 = tl.load(in_ptr0 + (r0_1))\ntl.store(out_ptr0 + (r0_1), tmp2)").reads_back
    (problem,) = broken_budgets(found(reading_back=1), budgets())
    assert problem == "sm_90 attention: 1 kernels that read back what they wrote, the budget is 0"


def test_launches_of_a_graph_are_those_of_its_kernels_and_of_libraries() -> None:
    code = """
triton_poi_0 = async_compile.triton('triton_poi_0', '''
size_hints={'x': 8}
''', device_str='cuda')

class Runner:
    def call(self, args):
            triton_poi_0.run(primals_1, buf0, 8, stream=raw_stream0)
            triton_poi_0.run(buf0, buf1, 8, stream=raw_stream0)
            extern_kernels.addmm(buf2, buf0, buf1, alpha=1, beta=1, out=buf3)
            buf4 = torch.ops.aten._flash_attention_forward.default(buf3)
            aten.randint.low_out(-9, 9, [1], out=buf9)
            buf5 = torch.ops.bertbench.gelu_gradient.default(buf3, buf1, primals_1)
"""
    graph = graph_of(code, all_bytes=50, product_bytes=20)
    assert [kernel.name for kernel in graph.kernels] == ["triton_poi_0"]
    assert (graph.triton_launches, graph.launches) == (3, 6), "our own operator is a Triton kernel, too"
    assert (graph.kernel_bytes, graph.product_bytes) == (30, 20)


SPILLING = """
import tempfile
from pathlib import Path
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from lab.kernels.machine_code import usage

@triton.jit
def kernel(source, target, size: tl.constexpr):
    row = tl.arange(0, size)
    tile = tl.load(source + row[:, None] * size + row[None, :])
    shifted = tl.load(source + 7 + row[:, None] * size + row[None, :])
    tl.store(target + row[:, None] * size + row[None, :], tl.dot(tile, shifted) + tile + shifted)

for size in (16, 64):
    source = ASTSource(kernel, {"source": "*fp32", "target": "*fp32", "size": "constexpr"}, {"size": size})
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    with tempfile.TemporaryDirectory() as folder:
        print(usage(binary.asm["cubin"], Path(folder)).spill_bytes)
"""


@needs_triton
@pytest.mark.slow
def test_registers_that_spill_are_seen(tmp_path: Path) -> None:
    script = tmp_path / "spilling.py"
    script.write_text(SPILLING)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}  # lab/ is not installed
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    small, large = map(int, done.stdout.split())
    assert small == 0
    assert large > 100
