"""Ask about settings that differ between the runs of a result."""

from collections.abc import Iterator, Sequence

from compliance.ask.question import NamedRun, Question, Topic
from compliance.read.record import distinct, shown_values
from compliance.read.run import RunFacts

SETTINGS = Topic(
    "settings", "Do all runs of a result have the same settings?", "each setting has the same value in all runs"
)
KEYS = (
    "global_batch_size", "d_batch_size", "opt_name", "eval_samples", "opt_base_learning_rate", "opt_epsilon",
    "opt_lamb_epsilon", "opt_learning_rate_training_steps", "opt_learning_rate_warmup_steps", "num_warmup_steps",
    "start_warmup_step", "opt_lamb_beta_1", "opt_lamb_beta_2", "opt_lamb_weight_decay_rate",
    "gradient_accumulation_steps", "opt_gradient_clip_norm", "opt_lamb_learning_rate_decay_poly_power",
    "opt_end_learning_rate", "max_sequence_length", "max_predictions_per_seq",
)  # fmt: skip
_LENGTH = 40


def ask(runs: Sequence[NamedRun]) -> Iterator[tuple[str, Question]]:
    """Yield the name of each log whose settings differ from those of most runs, and the question."""
    settings_of_logs = {run.log: _settings(run.facts) for run in runs}
    usual: dict[str, str] = {}
    for key in KEYS:
        values = [settings[key] for settings in settings_of_logs.values()]
        usual[key] = max(distinct(values), key=values.count) if values else ""
    for log, settings in settings_of_logs.items():
        different = [
            f"{key} is {settings[key]}, but {usual[key]} in most runs" for key in KEYS if settings[key] != usual[key]
        ]
        if different:
            yield log, SETTINGS.question("; ".join(different[:5]))


def _settings(facts: RunFacts) -> dict[str, str]:
    """Return the distinct values that a run logs for each key, as text, to seven digits."""
    return {key: shown_values((event.value for event in facts.all(key)), _LENGTH) for key in KEYS}
