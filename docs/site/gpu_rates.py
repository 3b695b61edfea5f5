"""Tabulate rates of GPUs: those of published results, from their logs, and our own measurements."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.random_samples import length_shares
from bertbench.common.published_results import PublishedResult, published_results
from bertbench.common.tables import markdown
from bertbench.machine.gpu_peaks import DENSE_TFLOPS, gpu_kind
from bertbench.model.shape import BertShape, FlopTerms
from docs.site.records import RESULTS, read

_GPU_RESULTS = (
    ("2.1", "NVIDIA", "dgxa100_ngc22.09_pytorch"), ("2.0", "Inspur", "nf5688m6_pytorch"),
    ("4.1", "NVIDIA", "eos_ngc23.04_pytorch"), ("4.1", "Fujitsu", "GX2560M7_H100_SXM_80GBx4"),
    ("4.0", "NVIDIA", "h200_ngc23.09_pytorch"), ("5.0", "NVIDIA", "nyx_n1_ngc25.04_pytorch"),
)  # fmt: skip
"""Round, submitter and system of published results: NVIDIA's own for each kind of GPU, and the fastest of two kinds."""
_MEDIAN_RATES = {
    ("NVIDIA", "eos_ngc23.04_pytorch"): 970.0,
    ("NVIDIA", "h200_ngc23.09_pytorch"): 997.0,
    ("Fujitsu", "GX2560M7_H100_SXM_80GBx4"): 1_066.0,
}
"""Samples/s per GPU, by submitter and system of the results above: the median of each run's own rate."""
OURS_BY_TIME = RESULTS / "gpu_check" / "nvidia_h100_69a0c2ed.json"
OURS_BY_STEP = RESULTS / "gpu_check" / "nvidia_h100_afa5f921.json"
_OUR_BATCH = 96


def gpu_rates() -> str:
    """Return samples/s and MFU per GPU: from the logs of published results, and as we measured them on one H100."""
    our_rate = run_rate()
    rows = []
    for round_name, submitter, system in _GPU_RESULTS:
        (result,) = [
            result
            for result in published_results()
            if (result.submitter, result.system) == (submitter, system) and round_name in result.rounds.split(";")
        ]
        rows.append(_published_rate_row(result, our_rate))
    ours = f"**bertbench**: {_OUR_BATCH} samples, 200 steps"
    rows.append([ours, "1 H100", "measured", f"{our_rate:,.0f}", _mfu(our_rate, "H100"), "1.00"])
    heads = ["result", "GPUs", "evidence", "samples/s per GPU", "MFU", "our run over it"]
    return markdown(heads, rows)


def _rate(result: PublishedResult) -> float:
    """Return samples/s of all accelerators, over the whole run."""
    return result.samples_to_converge / result.seconds


def run_rate() -> float:
    """Return the samples/s of the recorded run of BERT-Large on an H100, from its time to train."""
    run = next(row for row in part_of(OURS_BY_TIME, "large")["rows"] if row["choice"] == "as it comes")
    rate: float = run["samples"] / run["time_to_train_s"]
    return rate


def replay_ms() -> float:
    """Return the milliseconds of a replayed step of BERT-Large on an H100, without host and data."""
    (step,) = part_of(OURS_BY_STEP, "trace")["rows"]
    milliseconds: float = step["parts_ms"]["the rest of the loop"]
    return milliseconds


def part_of(path: Path, name: str) -> Any:
    """Return a part of a record of gpu_check.sh."""
    return next(part for part in read(path)["parts"] if part["name"] == name)


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
