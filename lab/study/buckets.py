"""Compare numbers of buckets and scalings of their threshold: bucket clipping of virtual ranks, by samples to target.

With B buckets, each rank clips each bucket to norm c / B^e. One bucket is clip mode `before`, whatever e is. All arms
have the same optimizer values and c, and the same seeds.

Every finished run is a line of trials.jsonl. A resumed study reads them and repeats none.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.common.section import Count
from bertbench.model.bert import Bert
from lab.study.compare import claim_study
from lab.study.journal import Journal
from lab.study.language_study import LanguageStudy, initial_model
from lab.study.paired import Paired, SeedResult, paired
from lab.study.ranks_trial import to_target
from lab.study.virtual_ranks import VirtualRanks


class Arm(NamedTuple):
    """A number of buckets, and the exponent e of the threshold c / B^e."""

    buckets: int
    exponent: float

    @property
    def name(self) -> str:
        """Return the name used in tables and files."""
        return "before" if self.buckets == 1 else f"{self.buckets}_buckets_e{self.exponent:g}"


REFERENCE = Arm(1, 0.0)


class BucketsDefinition(LanguageStudy):
    """The study; its values are those of every arm."""

    ranks: Count
    max_norm: Annotated[float, Field(gt=0)]
    """c, the threshold of one bucket."""
    bucket_mb: Annotated[dict[Annotated[int, Field(ge=2)], Annotated[float, Field(gt=0)]], Field(min_length=1)]
    """By number of buckets: the size in MiB that makes that many of the model."""
    exponents: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)]
    """Values of e."""

    @model_validator(mode="after")
    def _deals_evenly(self) -> Self:
        if self.global_batch_size % self.ranks:
            raise ValueError(f"ranks {self.ranks} don't divide global_batch_size {self.global_batch_size}; change one")
        return self

    def arms(self) -> list[Arm]:
        """Return the arms, the reference first."""
        return [REFERENCE, *(Arm(buckets, exponent) for buckets in self.bucket_mb for exponent in self.exponents)]

    def virtual_ranks(self, arm: Arm, model: Bert) -> VirtualRanks:
        """Return the ranks that clip the model's gradients as the arm does."""
        if arm == REFERENCE:
            return VirtualRanks(model, "before", self.max_norm, self.ranks, None)
        bucket_mb = self.bucket_mb[arm.buckets]
        return VirtualRanks(model, "bucket", self.max_norm, self.ranks, bucket_mb, arm.exponent)

    def check_buckets(self) -> None:
        """Raise ConfigError if a size in `bucket_mb` makes another number of buckets."""
        for arm in self.arms()[1:]:
            found = len(self.virtual_ranks(arm, initial_model(self.model, 1)).buckets)
            if found != arm.buckets:
                raise ConfigError(
                    f"bucket_mb {self.bucket_mb[arm.buckets]:g} makes {found} buckets of this model, expected "
                    f"{arm.buckets}; choose a {'smaller' if found < arm.buckets else 'larger'} size"
                )


@dataclass(frozen=True)
class Row(SeedResult):
    """One seed of one arm."""

    clipped: float
    """Share of clipping decisions that reduced a gradient."""


def compare(
    definition: BucketsDefinition, seeds: int, folder: Path, progress: Progress
) -> tuple[list[Row], list[Paired]]:
    """Run what the folder lacks, and set every arm beside one bucket.

    Seed by seed, so that a stopped study has as many of every arm. Raises ConfigError if the folder holds another
    study, or a size doesn't make its number of buckets.
    """
    definition.check_buckets()
    claim_study(folder, definition)
    journal = Journal(folder / "trials.jsonl")
    known = {(row.arm, row.seed): row for row in (Row(**record) for record in journal.records)}
    arms = definition.arms()
    rows: list[Row] = []
    for seed in range(1, seeds + 1):
        for arm in arms:
            row = known.get((arm.name, seed))
            if row is None:
                row = run_trial(definition, arm, seed)
                journal.add(asdict(row))
            rows.append(row)
            samples = f"{row.samples_to_target:,.0f} samples" if row.samples_to_target else "missed the target"
            progress.update(len(rows), seeds * len(arms), f"{arm.name}, seed {seed} of {seeds}: {samples}")
    return rows, [one for arm in arms[1:] if (one := paired(rows, arm.name, REFERENCE.name))]


def run_trial(definition: BucketsDefinition, arm: Arm, seed: int) -> Row:
    """Train until the target or the schedule's end; the seed fixes initial weights and the data in every arm."""
    model = initial_model(definition.model, seed)
    reduce = definition.virtual_ranks(arm, model).reduce
    outcome = to_target(definition, definition.optimizer, model, reduce, definition.ranks, seed)
    return Row(arm.name, seed, outcome.samples, outcome.samples is not None, outcome.clipped)
