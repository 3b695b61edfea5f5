"""Select the published MLPerf BERT results that calibrate forecasts, and the batching method of each.

They come from the A100, H100 and H200 rows of the table in common/published_results.py, which names its source.
"""

from functools import cache
from typing import NamedTuple

from bertbench.balance.plan import Balance
from bertbench.common.published_results import PublishedResult, published_results

GPUS_OF_NODE = 8
_ACCELERATORS = ("A100", "H100", "H200")


class Method(NamedTuple):
    """A run's batching, reduction and launch method."""

    batching: str | Balance = "global_exchange"
    """How samples are assigned to GPUs: a system's `data.balance`, a variant of `bertbench balance`, or `padded`."""
    overlap: bool = False
    """Whether gradients are reduced during the backward pass."""
    graphs: bool = False
    """Whether a whole step is one CUDA graph, so that the host can't delay a GPU."""


@cache
def forecast_results() -> tuple[PublishedResult, ...]:
    """Return all rows that forecasts use, in the file's order."""
    return tuple(row for row in published_results() if _is_forecast(row.accelerator))


def _is_forecast(accelerator: str) -> bool:
    return any(kind in accelerator for kind in _ACCELERATORS)


@cache
def calibrating() -> tuple[PublishedResult, ...]:
    """Return the results that calibrate forecasts: those on nodes of 8 A100 SXM modules, by any submitter.

    For each submitter and number of GPUs, only the last round counts. The software of earlier rounds was replaced, and
    two results of round 1.1 took about twice as long as the same machines in 2.0.
    """
    rows = [row for row in forecast_results() if "A100-SXM" in row.accelerator]
    last: dict[tuple[str, int | None], str] = {}
    for row in rows:  # one submitter is spelled both Supermicro and SUPERMICRO
        last[_who(row)] = max(last.get(_who(row), ""), _last_round(row))
    return tuple(
        row for row in rows if row.accelerators == GPUS_OF_NODE * row.nodes and _last_round(row) == last[_who(row)]
    )


def _who(row: PublishedResult) -> tuple[str, int | None]:
    return row.submitter.lower(), row.accelerators


def _last_round(row: PublishedResult) -> str:
    return row.rounds.split(";")[-1]


def method_of(row: PublishedResult) -> Method:
    """Return the run's method, according to the configurations in the repository of its results.

    With 1,024 or more GPUs, NVIDIA and Azure captured fixed shapes in a CUDA graph: padded in v1.1
    (config_DGXA100_128x8x3x1.sh: --pad_fmha, 'full_iteration'), and packed since v2.0 (128x8x2x1_pack). Samsung's
    methods are those of its paper (arXiv 2402.02447). All others sort the global batch in each step
    (--exchange_padding).
    """
    if row.submitter == "Samsung":
        return Method("stratified_presort", overlap=True)
    if row.nodes >= 64 and row.submitter in ("NVIDIA", "Azure"):
        return Method("padded" if row.rounds == "1.1" else "packed", graphs=True)
    return Method()
