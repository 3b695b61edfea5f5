"""Compare clip modes by number of virtual ranks, until intervals are narrow.

A search of few runs finds better values for one arm than for another by luck. So every comparison is repeated with both
arms at the same values: only the clip mode differs there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.common.section import Section
from bertbench.config.optimizer import ClipMode, OptimizerSettings
from bertbench.report.charts import Axis, Series, lines
from bertbench.report.page import panels, section, table
from lab.study.definition import Range, Stopping, Tuning
from lab.study.engine import Arm, Budget, Outcome, Study, Values
from lab.study.intervals import Comparison, Row, compare
from lab.study.language_study import LanguageStudy, initial_model
from lab.study.language_trial import to_target
from lab.study.page import PAIR_HEAD, pair_rows
from lab.study.virtual_ranks import VirtualRanks


class Space(Section):
    """Ranges tuned for every arm, on logarithmic scales."""

    learning_rate: Range
    max_norm: Range
    one_minus_beta1: Range
    one_minus_beta2: Range


class RanksDefinition(LanguageStudy):
    """The study of clip modes; the optimizer's rate and betas are what tuning replaces."""

    bucket_mb: Annotated[float, Field(gt=0)]
    space: Space
    tuning: Tuning
    stopping: Stopping

    def tuned(self, values: Values) -> OptimizerSettings:
        """Return the optimizer with an arm's rate and betas."""
        betas = {name: 1 - values[f"one_minus_{name}"] for name in ("beta1", "beta2")}
        return self.optimizer.model_copy(update={"learning_rate": values["learning_rate"], **betas})

    def run_trial(self, arm: Arm, values: Values, seed: int, most_samples: float) -> Outcome:
        """Train until the target, the schedule's end or `most_samples`; the seed fixes the initial weights."""
        mode, ranks = arm.choices["mode"], arm.choices["ranks"]
        model = initial_model(self.model, seed)
        reduce = VirtualRanks(model, mode, values["max_norm"], ranks, self.bucket_mb).reduce
        return to_target(self, self.tuned(values), model, reduce, ranks, seed, most_samples)

    def arms(self, ranks: Sequence[int]) -> list[Arm]:
        """Return the distinct arms for these numbers of ranks; `after` doesn't depend on the number.

        Raises ConfigError if a number of ranks can't share the global batch evenly.
        """
        for number in ranks:
            if number < 2 or self.global_batch_size % number:
                raise ConfigError(
                    f"--ranks {number}: expected a divisor of the study's global batch, {self.global_batch_size}, "
                    "of at least 2; choose such a number"
                )
        return [_arm("after", 1), *(_arm(mode, number) for number in ranks for mode in ("before", "bucket"))]


def _arm(mode: ClipMode, ranks: int) -> Arm:
    against = {"before": ("after",), "bucket": (f"before_{ranks}",)}.get(mode, ())
    return Arm(mode if mode == "after" else f"{mode}_{ranks}", {"mode": mode, "ranks": ranks}, against)


def ranks_study(definition: RanksDefinition, ranks: Sequence[int], folder: Path, progress: Progress) -> Study:
    """Return the study of virtual ranks in a folder."""
    limit = definition.schedule.max_steps * definition.global_batch_size
    budget = Budget(dict(definition.space), definition.tuning, limit)
    return Study(definition, folder, definition.arms(ranks), definition.run_trial, progress, budget)


def at_equal_values(study: Study, rows: Sequence[Row]) -> tuple[list[Row], list[Comparison]]:
    """Run each arm's reference arm with the arm's values and the seeds of `rows`, and compare."""
    arms, equal_rows, found = {arm.name: arm for arm in study.arms}, [], []
    for arm in study.arms:
        for against in arm.against:
            own = [row for row in rows if row["arm"] == arm.name]
            theirs = [study.row(arms[against], study.values(arm.name), row["seed"]) for row in own]
            if pair := compare([*own, *theirs], arm.name, against):
                found.append(pair)
            equal_rows += [{**row, "arm": f"{against}_as_{arm.name}"} for row in theirs]
    return sorted(equal_rows, key=lambda row: row["seed"]), found


def content_of(definition: RanksDefinition, study: Study, pairs: Sequence[Comparison]) -> list[Mapping[str, Any]]:
    """Return comparisons for the record, with the number of ranks and whether they meet the stopping rule."""
    ranks = {arm.name: arm.choices["ranks"] for arm in study.arms}
    most = definition.stopping.half_width
    return [{"ranks": ranks[pair.difference.arm], **asdict(pair), "narrow": pair.half_width <= most} for pair in pairs]


def by_ranks(title: str, study: Study, found: Sequence[Comparison], narrow: float) -> str:
    """Return a section with the differences over the number of ranks, and the ends of their intervals."""
    modes = {arm.name: arm.choices for arm in study.arms}
    series = []
    for mode, against in (("before", "after"), ("bucket", "before")):
        own = [pair for pair in found if modes[pair.difference.arm]["mode"] == mode]
        for place, end in enumerate(("", ", low end", ", high end")):
            points = [(float(modes[pair.difference.arm]["ranks"]), 100 * pair.shares[place]) for pair in own]
            series.append(Series(f"{mode} less {against}{end}", sorted(points)))
    over, share = Axis("ranks", base=2), Axis("% of the mean")
    chart = lines("Difference by ranks, with its 95 % interval", series, over, share, [("0", 0)])
    return section(title, table(PAIR_HEAD, pair_rows(found, narrow)), panels(chart))
