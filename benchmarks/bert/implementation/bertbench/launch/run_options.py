"""What one run is asked for, from the command line to the loop, in one record.

The scripts that start a launcher, the launcher, and the ranks that it starts pass the record on in one variable, RUN.
Each field there is JSON, URL-encoded, so that a script can append another: BERTBENCH_RUN="$BERTBENCH_RUN&began=1.5".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qsl, urlencode

from bertbench.common.reads import Reads, Unread

RUN = "BERTBENCH_RUN"
Short = Literal["smoke", "profile"]
"""A run that takes a few steps, and isn't a result."""

TRAIN = Reads(
    "train",
    trains=True,
    sections=(
        "name", "description", "source", "task", "scale_from_batch", "scale_rule",
        "hardware", "launch", "model", "data", "loss", "optimizer", "schedule", "clip", "communication",
        "evaluation", "checkpoint", "precision", "compute", "parallel",
    ),
    exceptions={"squad": Unread("`bertbench finetune squad` reads that section")},
    others=Unread("a run doesn't use it; leave it out"),
)  # fmt: skip
_WHOLE_RUN = "a whole run honours it; leave it out here"
TRAIN_SMOKE = replace(
    TRAIN,
    command="train --smoke",
    exceptions={
        **TRAIN.exceptions,
        "evaluation.interval_samples": Unread(f"it evaluates once, after its last step; {_WHOLE_RUN}"),
        "evaluation.max_samples": Unread(f"its number of steps is fixed; {_WHOLE_RUN}"),
        "checkpoint.final_weights": Unread(f"it writes no weights; {_WHOLE_RUN}", accepted=(False,)),
    },
)
TRAIN_PROFILE = replace(
    TRAIN_SMOKE,
    command="train --profile",
    exceptions={
        **TRAIN_SMOKE.exceptions,
        "checkpoint.every_steps": Unread(f"it takes no snapshot; {_WHOLE_RUN}", accepted=(None,)),
    },
)


def run_reads(short: Short | None) -> Reads:
    """Return what a run reads of its system file."""
    match short:
        case "smoke":
            return TRAIN_SMOKE
        case "profile":
            return TRAIN_PROFILE
        case None:
            return TRAIN


@dataclass(frozen=True)
class RunOptions:
    """The options of `bertbench train`, and what its launcher has done about them."""

    system: str = ""
    """The system as the user named it."""
    overrides: list[str] = field(default_factory=list)
    seed: int | None = None
    result: Path | None = None
    """The log to write; None takes the next free name."""
    resume: str = "never"
    """`never`, `auto`, or the path of a log, its folder or a snapshot."""
    allow_config_change: bool = False
    short: Short | None = None
    rank_words: list[str] = field(default_factory=list)
    """The words with which `bertbench` runs one rank; without any, they are `train` and `system`."""
    exported: dict[str, str] | None = None
    """The honoured variables of published submissions, as they were exported; None if nobody has read them yet."""
    launched: bool = False
    """Whether the launcher of this rank passes the record on. Its first one, on the first node, has opened the files: a
    new `result`, or those that it has restored to the snapshot `resume`."""
    job: int | None = None
    """The number of the job, if run.sub starts the run: a file with it names the log of an interrupted run."""
    submitted: float | None = None
    """When the job was submitted, in seconds since 1970; None outside of a job, and for its later runs."""
    allocated: float | None = None
    """When the job was allocated its nodes."""
    began: float | None = None
    """When the launch of the run began; None takes the start of the process."""
    caches_cleared: bool = False
    """Whether a script has dropped this node's page cache."""

    def text(self) -> str:
        """Return the fields that have been set, as RUN's value."""
        given = {name: value for name, value in vars(self).items() if not (value is None or value is False)}
        encoded = {name: json.dumps(value, default=str) for name, value in given.items()}
        return urlencode(encoded)

    @classmethod
    def passed_on(cls, environment: Mapping[str, str]) -> Self:
        """Return what a script or a launcher passes to this process; the last of several values of a field counts."""
        given = {name: json.loads(value) for name, value in parse_qsl(environment.get(RUN, ""))}
        known = {option.name: given[option.name] for option in fields(cls) if option.name in given}
        if "result" in known:
            known["result"] = Path(known["result"])
        return cls(**known)
