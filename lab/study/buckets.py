"""Compare numbers of buckets and scalings of their threshold: bucket clipping of virtual ranks, by samples to target.

With B buckets, each rank clips each bucket to norm c / B^e. One bucket is clip mode `before`, whatever e is. All arms
have the same optimizer values and c, and the same seeds.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from bertbench.common.errors import ConfigError
from bertbench.common.section import Count
from bertbench.model.bert import Bert
from lab.study.engine import Arm, Outcome, Values
from lab.study.language_study import LanguageStudy, initial_model
from lab.study.language_trial import to_target
from lab.study.virtual_ranks import VirtualRanks

REFERENCE = Arm("before", {"buckets": 1, "exponent": 0.0})


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
        """Return the arms, the reference first; e is the exponent of the threshold c / B^e."""
        return [
            REFERENCE,
            *(
                Arm(f"{buckets}_buckets_e{e:g}", {"buckets": buckets, "exponent": e}, (REFERENCE.name,))
                for buckets in self.bucket_mb
                for e in self.exponents
            ),
        ]

    def virtual_ranks(self, arm: Arm, model: Bert) -> VirtualRanks:
        """Return the ranks that clip the model's gradients as the arm does."""
        if arm == REFERENCE:
            return VirtualRanks(model, "before", self.max_norm, self.ranks, None)
        bucket_mb = self.bucket_mb[arm.choices["buckets"]]
        return VirtualRanks(model, "bucket", self.max_norm, self.ranks, bucket_mb, arm.choices["exponent"])

    def check_buckets(self) -> None:
        """Raise ConfigError if a size in `bucket_mb` makes another number of buckets."""
        for arm in self.arms()[1:]:
            found = len(self.virtual_ranks(arm, initial_model(self.model, 1)).buckets)
            if found != (expected := arm.choices["buckets"]):
                raise ConfigError(
                    f"bucket_mb {self.bucket_mb[expected]:g} makes {found} buckets of this model, expected "
                    f"{expected}; choose a {'smaller' if found < expected else 'larger'} size"
                )

    def run_trial(self, arm: Arm, _: Values, seed: int, most_samples: float) -> Outcome:
        """Train until the target or the schedule's end; the seed fixes initial weights and the data in every arm."""
        model = initial_model(self.model, seed)
        reduce = self.virtual_ranks(arm, model).reduce
        return to_target(self, self.optimizer, model, reduce, self.ranks, seed, most_samples)
