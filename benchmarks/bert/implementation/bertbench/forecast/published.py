"""Published MLPerf BERT results that forecasts are calibrated on, and how each of those runs made its batches.

They are the A100, H100 and H200 rows of the table that reports show beside one's own (`report/published.py` names
its source).
"""

import csv
from dataclasses import dataclass
from functools import cache
from typing import Literal

from bertbench.report.published import TABLE

_ACCELERATORS = ("A100", "H100", "H200")

Batching = Literal["random", "padded", "packed", "stratified", "sorted", "planned", "planned_equal_counts"]

_CALIBRATED_BY = ("NVIDIA", "Azure", "Azure-HazyResearch", "Baidu", "Samsung")


@dataclass(frozen=True)
class Method:
    """How a run makes and moves what a step needs."""

    batching: Batching = "sorted"
    """How samples are dealt to GPUs (forecast/balance.py)."""
    overlap: bool = False
    """Gradients are reduced behind the backward pass."""
    graphs: bool = False
    """A whole step is one CUDA graph: the host can't delay a GPU."""


@dataclass(frozen=True)
class Published:
    """One row: a system's mean result. What its logs don't tell is None."""

    rounds: str
    submitter: str
    system: str
    division: str
    accelerator: str
    gpus: int | None
    nodes: int
    seconds: float
    samples_to_converge: float
    global_batch_size: int
    hyper_parameters: tuple[float, ...]
    """Learning rate, both betas, training steps, warm-up steps, start of warm-up; empty where they weren't logged."""

    @property
    def calibrates(self) -> bool:
        """Whether it is one of the 21 results with 8 to 1,024 SXM A100s that forecasts are held against."""
        return (
            self.gpus is not None
            and 8 <= self.gpus <= 1024
            and "A100-SXM" in self.accelerator
            and self.submitter in _CALIBRATED_BY
        )

    @property
    def method(self) -> Method:
        """How the run worked, from the configurations in the same repositories.

        At 1,024 and more GPUs NVIDIA and Azure captured fixed shapes in a CUDA graph, padded in v1.1
        (config_DGXA100_128x8x3x1.sh: --pad_fmha, 'full_iteration') and packed from v2.0 on (128x8x2x1_pack). All
        others sort the global batch each step (--exchange_padding); Samsung's methods are the paper's (arXiv
        2402.02447).
        """
        if self.submitter == "Samsung":
            return Method("stratified", overlap=True)
        if self.nodes >= 64 and self.submitter in ("NVIDIA", "Azure"):
            return Method("padded" if self.rounds == "1.1" else "packed", graphs=True)
        return Method()


@cache
def published_results() -> tuple[Published, ...]:
    """All rows, in the file's order."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(
            _row(fields)
            for fields in csv.DictReader(file)
            if any(kind in fields["accelerator"] for kind in _ACCELERATORS)
        )


def _row(fields: dict[str, str]) -> Published:
    names = ("learning_rate", "beta1", "beta2", "training_steps", "warmup_steps", "start_warmup_step")
    values = [fields[name] for name in names]
    return Published(
        rounds=fields["rounds"],
        submitter=fields["submitter"],
        system=fields["system"],
        division=fields["division"],
        accelerator=fields["accelerator"],
        gpus=int(fields["accelerators"]) if fields["accelerators"] else None,
        nodes=int(float(fields["nodes"])),
        seconds=60 * float(fields["time_to_train_min"]),
        samples_to_converge=float(fields["samples_to_converge"]),
        global_batch_size=int(fields["global_batch_size"]),
        hyper_parameters=tuple(map(float, values)) if all(values) else (),
    )
