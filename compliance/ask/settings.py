"""Ask about settings that differ between the runs of a result."""

from collections.abc import Iterator, Sequence

from compliance.ask.question import NamedRun, Question, Topic
from compliance.read.record import distinct, plain, shown

SETTINGS = Topic("settings", "Have all runs of a result the same settings?", "one value in all runs of a result")
KEYS = (
    "global_batch_size", "d_batch_size", "opt_name", "eval_samples", "opt_base_learning_rate", "opt_epsilon",
    "opt_lamb_epsilon", "opt_learning_rate_training_steps", "opt_learning_rate_warmup_steps", "num_warmup_steps",
    "start_warmup_step", "opt_lamb_beta_1", "opt_lamb_beta_2", "opt_lamb_weight_decay_rate",
    "gradient_accumulation_steps", "opt_gradient_clip_norm", "opt_lamb_learning_rate_decay_poly_power",
    "opt_end_learning_rate", "max_sequence_length", "max_predictions_per_seq",
)  # fmt: skip
_LENGTH = 40


def ask(runs: Sequence[NamedRun]) -> Iterator[tuple[str, Question]]:
    """Yield the name of each log whose settings aren't those of most runs, and the question."""
    logged = {
        run.log: {key: shown(plain(distinct(event.value for event in run.facts.all(key))), _LENGTH) for key in KEYS}
        for run in runs
    }
    usual: dict[str, str] = {}
    for key in KEYS:
        values = [of_run[key] for of_run in logged.values()]
        usual[key] = max(distinct(values), key=values.count) if values else ""
    for log, of_run in logged.items():
        different = [f"{key} {of_run[key]}, elsewhere {usual[key]}" for key in KEYS if of_run[key] != usual[key]]
        if different:
            yield log, SETTINGS.question("; ".join(different[:5]))
