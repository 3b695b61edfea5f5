"""Run the commands that check arXiv 2402.02447; docs/paper.md says what their answers show.

Every part is a command of this program with --json. Its answer is kept in a file, so that a resumed study runs only the
missing parts.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.atomic import new_file
from bertbench.common.children import dying_with_us
from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.common.published_results import published_results

_BALANCE = "balance --gpus 1024 --steps 50"
_OTHERS = "--batch 16 --methods none,stratified_presort,global_exchange,planned"
_STRATIFIED = "stratified,stratified_presort,stratified_presort_raster"
_EDGES = {1: "512", 2: "256,512", 4: "128,256,384,512", 8: "64,128,192,256,320,384,448,512"}
_NODES = (2, 4, 8, 16)
_QUOTAS = ((1024, 16, "6,3,2,5"), (1368, 12, "4,2,2,4"))  # the published runs: GPUs, samples per GPU, quotas


Json = Mapping[str, Any]
"""Answers by name, or an object in an answer."""


class PaperPart(NamedTuple):
    """One command of the study."""

    name: str
    asks: str
    """The question that it answers; empty if it only prepares another part."""
    command: str
    """The words after `bertbench`; the JSON that it prints is the answer."""
    keeps_runs: bool = False
    """Whether it needs a folder for its runs."""


PARTS = (
    PaperPart(
        "batch", "Do strata and sorting in the node balance as well as a global sort? Snake or raster? 2 or 4 samples?",
        f"{_BALANCE} --batch 2,4,8,16,48 "
        "--methods none,stratified,stratified_presort,stratified_presort_raster,global_exchange,planned",
    ),
    *(
        PaperPart(
            f"strata_{number}", "How many strata are needed?",
            f"{_BALANCE} --batch 16 --methods stratified,stratified_presort --strata-edges {edges}",
        )
        for number, edges in _EDGES.items()
    ),
    *(
        PaperPart(
            f"quotas_{gpus}", "What do the published quotas of strata change?",
            f"balance --steps 50 --gpus {gpus} --batch {batch} --methods {_STRATIFIED},planned "
            f"--strata-quotas {quotas}",
        )
        for gpus, batch, quotas in _QUOTAS
    ),
    *(
        PaperPart(
            f"node_{number}", "How many GPUs does a node need?",
            f"{_BALANCE} --batch 16 --methods presort,stratified_presort --gpus-per-node {number}",
        )
        for number in _NODES
    ),
    PaperPart("causal", "Is the balance different with a causal model's cost?", f"{_BALANCE} {_OTHERS} --causal"),
    PaperPart("corpus_data", "", "data prepare --system cpu_demo"),
    PaperPart(
        "corpus", "Is it different with other lengths: the demo's corpus, up to 32 tokens?",
        f"{_BALANCE} {_OTHERS} --lengths data/cpu_demo --strata-edges 8,16,24,32",
    ),
    PaperPart("overlap", "How much communication is hidden, by clip mode and bandwidth?", "lab overlap"),
    PaperPart("buckets", "Why divide the threshold by the root of the number of buckets?", "lab study buckets", True),
    PaperPart(
        "clip", "Does clipping before the all-reduce need fewer samples, and does clipping by bucket keep that gain?",
        "lab study clip", True,
    ),
)  # fmt: skip
"""In running order: first the parts that take minutes, last the one that takes an hour. `corpus_data` makes the data
for `corpus`."""


SOURCES = (
    "Our sources are the paper's abstract, summaries and published logs. Its authors publish their code under terms "
    "that don't allow us to use it. Balance is simulated by the code that trains, "
    "and samples come from small models on one machine. Such results can agree with a claim, but reproduce none."
)


def run_parts(folder: Path, parts: Sequence[PaperPart], progress: Progress) -> dict[str, Any]:
    """Run the parts whose answers aren't in `folder` yet, and return all answers by name.

    Raises RunError if a command fails; finished answers are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    answers = {}
    for number, part in enumerate(parts, start=1):
        answer = folder / f"{part.name}.json"
        if not answer.exists():
            progress.message(f"{number} of {len(parts)}: bertbench {part.command}")
            words = [sys.executable, "-m", "bertbench", *part.command.split(), "--json"]
            if part.keeps_runs:
                words += ["--out", str(folder / part.name)]
            done = subprocess.run(  # shows its progress
                words, stdout=subprocess.PIPE, text=True, check=False, preexec_fn=dying_with_us()
            )
            if done.returncode:
                raise RunError(
                    f"`bertbench {part.command}` ended with code {done.returncode}; see its message above, correct the "
                    "cause, and run `lab paper` again to continue"
                )
            with new_file(answer) as path:
                path.write_text(done.stdout, encoding="utf-8")
        progress.update(number, len(parts), f"{number} of {len(parts)} parts: {part.name}")
        answers[part.name] = json.loads(answer.read_text(encoding="utf-8"))
    return answers


def rows_of(answer: Any) -> list[Json]:
    """Return the rows of an answer: a study's comparisons, or the list itself."""
    rows = answer if isinstance(answer, list) else [answer]
    if "comparisons" in rows[0]:
        rows = [*answer["comparisons"], *answer["at_equal_values"]]
    cleaned: list[Json] = []
    for row in rows:
        cleaned.append({name: value for name, value in row.items() if name != "command"})
    return cleaned


def published_rows() -> list[Json]:
    """Return the published results on 1,024 A100s, with which the paper's ratios can be checked."""
    return [asdict(row) for row in published_results() if row.accelerators == 1024 and "A100" in row.accelerator]
