"""Tabulate rates of GPUs: those of published results, from their logs, and our own measurements."""

from functools import cache

import numpy as np

from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.random_samples import length_shares
from bertbench.common.published_results import PublishedResult, published_results
from bertbench.machine.gpu_peaks import DENSE_TFLOPS, gpu_kind
from bertbench.model.shape import BertShape, FlopTerms
from docs.site.tables import RESULTS, read, table

_GPU_RESULTS = (
    ("2.1", "NVIDIA", "dgxa100_ngc22.09_pytorch"), ("2.0", "HazyResearch", "azurea100_ngc22.04_pytorch"),
    ("2.0", "Inspur", "nf5688m6_pytorch"), ("3.1", "xFusion", "G5500V7x8xL40S"), ("2.1", "NVIDIA", "dgxh100_preview"),
    ("4.1", "NVIDIA", "eos_ngc23.04_pytorch"), ("4.1", "Fujitsu", "GX2560M7_H100_SXM_80GBx4"),
    ("4.0", "NVIDIA", "h200_ngc23.09_pytorch"), ("4.1", "Supermicro", "SYS-421GE-TNHR2-LCC-1"),
    ("5.0", "NVIDIA", "nyx_n1_ngc25.04_pytorch"),
)  # fmt: skip
"""Round, submitter and system of published results: NVIDIA's own for each kind of GPU, and some faster ones."""
_MEDIAN_RATES = {
    ("NVIDIA", "eos_ngc23.04_pytorch"): 970.0,
    ("NVIDIA", "h200_ngc23.09_pytorch"): 997.0,
    ("Fujitsu", "GX2560M7_H100_SXM_80GBx4"): 1_066.0,
}
"""Samples/s per GPU, by submitter and system of the results above: the median of each run's own rate."""
_OURS_BY_TIME = RESULTS / "gpu_check" / "nvidia_h100_69a0c2ed.json"
_OURS_BY_STEP = RESULTS / "gpu_check" / "nvidia_h100_afa5f921.json"
_OUR_BATCH = 96


def gpu_rates() -> str:
    """Return samples/s and MFU per GPU: from the logs of published results, and as we measured them on one H100."""
    run_rate, step_rate = _our_rates()
    rows = []
    for round_name, submitter, system in _GPU_RESULTS:
        (result,) = [
            result
            for result in published_results()
            if (result.submitter, result.system) == (submitter, system) and round_name in result.rounds.split(";")
        ]
        rows.append(_published_rate_row(result, run_rate))
    ours = f"[bertbench](../results/README.md): {_OUR_BATCH} samples"
    for what, rate in (("a run of 200 steps", run_rate), ("one replayed step", step_rate)):
        rows.append(
            [f"{ours}, {what}", "1 H100", "measured", f"{rate:,.0f}", _mfu(rate, "H100"), f"{run_rate / rate:.2f}"]
        )
    heads = ["result", "GPUs", "evidence", "samples/s per GPU", "MFU", "our run over it"]
    return table(heads, rows)


def gpu_scaling() -> str:
    """Return the fastest published result for each number of A100 SXM modules and of H100 SXM modules."""
    rows = []
    for kind in ("A100", "H100"):
        fastest: dict[int, PublishedResult] = {}
        for result in published_results():
            if result.accelerators and gpu_kind(result.accelerator) == kind:
                best = fastest.get(result.accelerators)
                if best is None or _rate(result) > _rate(best):
                    fastest[result.accelerators] = result
        for number, result in sorted(fastest.items()):
            rows.append(
                [
                    f"{number:,} {kind}", f"{result.global_batch_size:,}",
                    f"{result.submitter} {result.rounds.replace(';', ', ')}", f"{_rate(result):,.0f}",
                    f"{_rate(result) / number:,.0f}",
                ]
            )  # fmt: skip
    return table(["GPUs", "batch", "result", "samples/s", "samples/s per GPU"], rows)


def _rate(result: PublishedResult) -> float:
    """Return samples/s of all accelerators, over the whole run."""
    return result.samples_to_converge / result.seconds


def _our_rates() -> tuple[float, float]:
    """Return the samples/s of the recorded run on an H100, from its time to train, and of its replayed step."""
    large = next(part for part in read(_OURS_BY_TIME)["parts"] if part["name"] == "large")
    run = next(row for row in large["rows"] if row["choice"] == "as it comes")
    trace = next(part for part in read(_OURS_BY_STEP)["parts"] if part["name"] == "trace")
    (step,) = trace["rows"]
    replay_ms = step["parts_ms"]["the rest of the loop"]  # without the host's time and the wait for data
    return run["samples"] / run["time_to_train_s"], 1e3 * _OUR_BATCH / replay_ms


def _published_rate_row(result: PublishedResult, ours: float) -> list[str]:
    assert result.accelerators
    kind = gpu_kind(result.accelerator)
    assert kind is not None
    median_rate = _MEDIAN_RATES.get((result.submitter, result.system))
    rate = median_rate or _rate(result) / result.accelerators
    batch = result.global_batch_size // result.accelerators
    return [
        f"{result.submitter} {result.rounds.replace(';', ', ')}: {batch} samples",
        f"{result.accelerators} {kind}",
        "result logs, median" if median_rate else "result logs",
        f"{rate:,.0f}",
        _mfu(rate, kind),
        f"{ours / rate:.2f}" if kind in ("H100", "H200") else "",
    ]


def _mfu(samples_per_s: float, kind: str) -> str:
    """Return a rate as a share of the GPU's dense 16-bit peak."""
    return f"{samples_per_s * flops_per_sample() / (1e12 * DENSE_TFLOPS[kind]['bf16']):.1%}"


@cache
def flops_per_sample() -> float:
    """Return BERT-Large's training FLOPs of an average Wikipedia sample, unpadded."""
    terms = FlopTerms.of(BertShape())
    shares = length_shares()
    lengths = np.arange(1, len(shares) + 1, dtype=np.float64)
    per_token = terms.token + MASKED_SHARE * terms.masked
    return float(shares @ (per_token * lengths + terms.pair * lengths**2))
