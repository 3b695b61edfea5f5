"""A changed value for every setting, in a system in which the change must show.

Each row is the overrides of the tiny system that the setting needs, and the override that changes it.
"""

from typing import NamedTuple


class Change(NamedTuple):
    """One changed setting."""

    setting: str
    value: str
    needs: tuple[str, ...] = ()
    """Overrides under which the setting is read."""
    ranks: int = 1
    """Ranks that it takes to see the change."""
    with_it: tuple[str, ...] = ()
    """Overrides without which the changed value is refused."""

    @property
    def overrides(self) -> tuple[str, ...]:
        """Everything that --set gives."""
        return (*self.needs, f"{self.setting}={self.value}", *self.with_it)


_DROPOUT = ("model.hidden_dropout=0.3",)
_WARM = ("schedule.warmup_steps=3",)
_TWO_STAGES = ("parallel.pipeline=2", "parallel.microbatches=2", "optimizer.name=adam")

SEEN_IN_A_RUN = (
    Change("model.vocab_size", "103"),
    Change("model.hidden_size", "18"),
    Change("model.layers", "3"),
    Change("model.attention_heads", "7"),
    Change("model.feed_forward_size", "29"),
    Change("model.max_positions", "31"),
    Change("model.hidden_dropout", "0.3"),
    Change("model.attention_dropout", "0.3"),
    Change("model.initializer_range", "0.07"),
    Change("model.initial_weights", "mimetic"),
    Change("data.global_batch_size", "14"),
    Change("data.local_batch", "7"),
    Change("data.gradient_accumulation_steps", "3", _DROPOUT),
    Change("data.balance", "packed"),
    Change("data.strata_edges", "[28, 29]", ("data.balance=stratified",)),
    Change("data.strata_quotas", "[2, 4]", ("data.balance=stratified", "data.strata_edges=[28, 29]"), ranks=2),
    Change("loss.normalize", "rank", ("data.equal_counts=true",), ranks=2),
    Change("optimizer.name", "lamb"),
    Change("optimizer.learning_rate", "2e-3"),
    Change("optimizer.beta1", "0.7"),
    Change("optimizer.beta2", "0.7"),
    Change("optimizer.epsilon", "0.1"),
    Change("optimizer.weight_decay", "0.5"),
    Change("optimizer.ema_decay", "0.9"),
    Change("optimizer.muon.momentum", "0.1", ("optimizer.name=muon",)),
    Change("optimizer.muon.ns_steps", "1", ("optimizer.name=muon",)),
    Change("schedule.max_steps", "4"),
    Change("schedule.decay_steps", "5"),
    Change("schedule.decay_from", "warmup_steps", _WARM),
    Change("schedule.first_step", "1"),
    Change("schedule.warmup_steps", "3"),
    Change("schedule.start_warmup_step", "-1", _WARM),
    Change("schedule.end_learning_rate", "1e-3"),
    Change("clip.mode", "none"),
    Change("clip.max_norm", "0.01"),
    Change("clip.divisor", "3", ("clip.mode=bucket", "clip.max_norm=0.01")),
    Change(
        "clip.parts", "each", ("clip.mode=before", "clip.max_norm=0.01", "data.gradient_accumulation_steps=3"), ranks=2
    ),
    Change("communication.buckets", "3", ("clip.mode=bucket", "clip.max_norm=0.01")),
    Change("communication.bucket_mb", "0.001", ("clip.mode=bucket", "clip.max_norm=0.01")),
    Change("communication.compression", "bf16", ranks=2),
    Change("evaluation.target", "0.0001"),
    Change("evaluation.interval_samples", "50"),
    Change("evaluation.max_samples", "36"),
    Change("checkpoint.every_steps", "2"),
    Change("checkpoint.keep", "1", ("checkpoint.every_steps=2",)),
    Change("checkpoint.final_weights", "false"),
    Change("precision.compute", "bf16"),
    Change("precision.residual", "bf16", ("precision.compute=bf16",)),
    Change("precision.initial_loss_scale", "16", ("precision.compute=fp16",)),
    Change("scale_from_batch", "6"),
    Change("scale_rule", "linear", ("scale_from_batch=6",)),
)
"""Settings of a run whose effect metrics.jsonl, the evaluations, communication.json or the run's files show."""

SEEN_SLOWLY = (
    Change("optimizer.sharded", "true", ranks=2),
    Change("parallel.tensor", "2", ("model.feed_forward_size=22",), ranks=2),
    Change("parallel.pipeline", "2", ranks=2, with_it=("parallel.microbatches=2",)),
    Change("parallel.microbatches", "3", _TWO_STAGES, ranks=2),
    Change("parallel.fully_shard", "true", ranks=2),
)
"""As SEEN_IN_A_RUN; each takes some seconds."""

SEEN_ELSEWHERE = {
    "name": "tests/launch", "description": "tests/docs", "source": "tests/docs", "hardware": "tests/runs",
    "task": "tests/config", "launch": "tests/launch and tests/distributed",
    "model.checkpoint": "tests/weights", "data.path": "tests/data", "data.equal_counts": "tests/balance",
    "data.eval_path": "tests/data",
    "data.recipe": "tests/data; a run only compares it",
    "optimizer.impl": "tests/optim, on a GPU",
    "evaluation.batch_size": "tests/training: it changes the time alone",
    "compute": "tests/model and tests/machine",
    "parallel.sequence": "tests/parallel", "parallel.schedule": "tests/parallel",
    "parallel.virtual_stages": "tests/parallel", "parallel.recompute": "tests/parallel: it changes memory alone",
}  # fmt: skip
"""Settings and sections whose effect those tests see."""
