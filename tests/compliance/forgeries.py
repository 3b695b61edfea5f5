"""Forgeries of a sound closed log, by the rule that finds them: each contradicts itself, physics or chance.

A row changes what one cheat would change, or uses what a rule lets pass.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from tests.compliance.logs import Mutation, Record, at
from tests.compliance.mutations import (
    accuracies,
    again,
    both,
    curve,
    epoch_nums,
    evaluated_only,
    every,
    from_key,
    later,
    renamed,
    setting,
    shifted,
    stopped_after,
    telling,
)

SAMPLES, SECONDS = 2_101_120, 131.252  # of the closed log: its last evaluation, and its time to train


class Forgery(NamedTuple):
    """`rule` finds it, with at least `severity`."""

    name: str
    rule: str
    change: Mutation
    severity: str


def added(key: str, value: Any, **metadata: Any) -> Mutation:
    """An event after run_stop, as loggers write their statistics."""
    return lambda records: [*records, {**records[-1], "key": key, "value": value, "metadata": metadata}]


def stats(throughput: float = SAMPLES / SECONDS, samples: int = SAMPLES, steps: int = SAMPLES // 448) -> Mutation:
    return added("tracked_stats", {"throughput": throughput, "epoch_num": samples}, step=[2, steps])


def stated_after_each(name: str, figure: Callable[[int], float]) -> Mutation:
    """A figure after the first, second, ... evaluation."""
    return lambda records: [
        line for one in records for line in (
            [one, {**one, "key": name, "value": figure(one["metadata"]["epoch_num"] // 150_080)}]
            if one["key"] == "eval_stop" else [one])
    ]  # fmt: skip


def stated_at_each(factor: float) -> Mutation:
    """A throughput for each interval, times a factor."""

    def change(records: list[Record]) -> list[Record]:
        ends = [one["time_ms"] for one in records if one["key"] in ("run_start", "eval_stop")]
        rates = [factor * 150_080e3 / (end - start) for start, end in pairwise(ends)]
        return stated_after_each("throughput", lambda number: rates[number - 1])(records)

    return change


def beside(key: str, name: str, value: Any) -> Mutation:
    """Another event of the same time, under another name."""
    return lambda records: [
        *records[: at(records, key)], {**records[at(records, key)], "key": name, "value": value},
        *records[at(records, key) :],
    ]  # fmt: skip


set_as = partial(beside, "seed")
before_start = partial(beside, "init_stop")


def each(change: Callable[[str, Any], Mutation], values: dict[str, Any]) -> dict[str, Mutation]:
    """A forgery by each key, of several in a text, and their value."""
    return {f"{key} {value}": change(key, value) for keys, value in values.items() for key in keys.split()}


def evaluated_at(milliseconds: Callable[[int], float]) -> Mutation:
    """The first, second, ... evaluation so long after run_start."""

    def change(records: list[Record]) -> list[Record]:
        start = records[at(records, "run_start")]["time_ms"]
        return every("eval_accuracy", lambda number, one: one.update(time_ms=start + milliseconds(number + 1)))(records)

    return change


evenly = evaluated_at(lambda number: 9_375 * number)


def lasting(kind: str, milliseconds: int) -> Mutation:
    """Each block, or evaluation, takes so long."""
    return lambda records: every(
        f"{kind}_stop",
        lambda number, one: one.update(time_ms=records[at(records, f"{kind}_start", number)]["time_ms"] + milliseconds),
    )(records)


def evaluated_early(records: list[Record]) -> list[Record]:
    """The last evaluation comes after a third of an interval, when the target happens to be reached."""
    samples = 13 * 150_080 + 112 * 448
    counted = (telling(key, -1, epoch_num=samples) for key in ("eval_start", "eval_accuracy", "eval_stop"))
    return both(*counted, setting("train_samples", samples))(records)


_WARNED: dict[str, dict[str, Mutation]] = {
    "samples": {
        "a faster clock than the throughput": stats(0.9 * SAMPLES / SECONDS),
        "a throughput event that contradicts the time": added("throughput", 0.9 * SAMPLES / SECONDS),
        "statistics of other samples": stats(samples=SAMPLES - 450_240),
        "statistics of other steps": stats(steps=3_000),
        "steps that stall before the end": telling("eval_start", -1, step=2_600),
        "a decoy beside the true throughput": both(stats(10_000), stats()),
        "an epoch that ends elsewhere": added("epoch_stop", None, epoch_num=1_500_000),
        "blocks of fewer samples": every(
            "block_start",
            lambda number, one: one["metadata"].update(first_epoch_num=number * 141_000, epoch_count=141_000),
        ),
        "blocks of fewer steps": every(
            "block_start", lambda number, one: one["metadata"].update(first_epoch_num=number * 355, epoch_count=355)
        ),
        "a run that stops after another interval": telling("run_stop", samples_count=SAMPLES + 150_080),
        "a throughput in words": added("tracked_stats", {"throughput": "fast"}),
        "a throughput before the last evaluation": beside("eval_stop", "throughput", 0.9 * SAMPLES / SECONDS),
        "a schedule that hardly begins": setting("opt_learning_rate_training_steps", 10**8),
        "more steps before the last evaluation": beside("eval_stop", "train_step", 9_000),
        "fewer train_samples than the last evaluation": setting("train_samples", 2_040_000),
        "the dataset's size that hides fewer samples": both(
            setting("train_samples", 156_725_653), stats(samples=1_000_000)
        ),
        "constant samples beside other train_samples": both(
            epoch_nums(lambda _: 1), setting("train_samples", 4_000_000)
        ),
        "samples that pass for steps": both(
            setting("opt_learning_rate_training_steps", 10**7),
            setting("train_samples", 14 * 56 * 448),
            epoch_nums(lambda index: (index + 1) * 56 * 448),
        ),
        "a throughput among 400 other statistics": added(
            "tracked_stats", {"throughput": 10_000.0} | {f"loss {number}": 1.5 for number in range(400)}
        ),
        "no throughput": stats(throughput=0),
        **each(
            added,
            {
                "sequences/sec samples_per_second items_per_sec tput throughput_avg Throughput": 12_000,
                "tracked_stats": {"train": {"training_sequences_per_second": 12_000}},
                "global_step max_steps final_step steps_completed": 2_345,
                "samples_trained": 1_050_000,
                "stats": {"avg_step_time": 0.04},
                "ms_per_step": 40,
            },
        ),
        "statistics of each interval, faster than the clock": stated_at_each(1.1),
    },
    "stated-twice": {
        "a rate of learning that doesn't decay": telling("run_stop", learning_rate=0.003),
        "a run that stops with another accuracy": setting("run_stop", 0.7191),
        "two warm-ups": setting("num_warmup_steps", 700),
        "two schedules": set_as("opt_learning_rate_decay_steps", 5_000),
        "statistics of another time": added("tracked_stats", {"train_time": 2 * SECONDS}),
        "a warm-up longer than the training": both(
            setting("opt_learning_rate_warmup_steps", 7_000), setting("num_warmup_steps", 7_000)
        ),
        **each(
            added,
            {
                "time_to_train time_to_converge": 0.8 * SECONDS,
                "run_duration train_seconds": 2 * SECONDS,
                "tracked_stats": {"train_time": 0.03 * SECONDS},
                "eval_masked_lm_accuracy final_accuracy": 0.7,
                "time_to_train_minutes": SECONDS / 40,
            },
        ),
        **each(
            set_as,
            {
                "warmup_steps": 900,
                "base_learning_rate": 0.5,
                "opt_weight_decay": 0.3,
                "opt_lamb_beta1": 0.3,
                "GLOBAL_BATCH_SIZE": 512,
            },
        ),
        "a longer time at its end": telling("run_stop", TTT=1.2 * SECONDS),
        "a schedule that begins after its end": setting("start_warmup_step", 10_000),
    },
    "intervals": {
        "accuracies before their blocks end": evaluated_at(lambda number: 8_000 * number),
    },
    "blocks-contiguous": {
        "blocks of half their samples": shifted("block_start", "epoch_count", lambda _: -75_040),
    },
    "batch-size": {
        **each(
            set_as,
            {
                "d_batch_size": 60,
                "gradient_accumulation_steps": 15,
                "micro_batch_size": 896,
                "local_batch_size": 10**400,
                "train_batch_size": "none",
            },
        ),
    },
    "init-time": {
        "an hour of work before init_start": later("cache_clear", -3_600_000),
    },
    "on-clock": {
        "a step before the clock": both(before_start("learning_rate", 1e-4), telling("learning_rate", step_num=120)),
        **each(
            before_start,
            {
                "train_step": 120,
                "stats": {"eval_loss": 7.1},
                "debug": {"samples_seen": 44_800},
                "dataset_file": "1.hdf5",
                "first_batch_loaded": True,
                "train_data_cached": True,
            },
        ),
    },
    "pace": {
        "a part of many intervals": both(*(from_key("block_stop", -2_900, number) for number in range(4, 14, 2))),
        "a faster second half": evaluated_at(
            lambda number: 9_700 * min(number, 7) + 8_200 * max(0, number - 7) + 37 * number**2 % 91
        ),
        "intervals that shrink little by little": evaluated_at(
            lambda number: 9_800 * number - 91 * number**2 + 37 * number**2 % 91
        ),
    },
    "noise": {
        "equal intervals": evenly,
        "intervals within a fraction of a millisecond": both(evenly, later("eval_accuracy", 0.1, 3)),
        "intervals that take turns": evaluated_at(lambda number: 333 + 9_000 * number + 1_000 * (number % 2)),
        "intervals that grow by as much": evaluated_at(lambda number: 9_250 * number + 8 * number**2),
        "a plunge": setting("eval_accuracy", 0.0, 9),
        "a curve from its formula": curve(lambda index: 0.7305 - 0.33 * 0.756**index),
        "the same sixteen digits twice": both(
            setting("eval_accuracy", 0.6512345678901234, 9), setting("eval_accuracy", 0.6512345678901234, 11)
        ),
        "the same rise at the end": curve(lambda index: 0.5 + 0.02 * index - (index < 7) * 0.0137 * index**0.5),
        "one loss at all evaluations": stated_after_each("train_loss", lambda _: 3.123456789),
        "a rate of the run after those of intervals": both(
            stated_at_each(1.0), added("throughput", 1.02 * SAMPLES / SECONDS)
        ),
        "a rate that one interval's time doesn't give": both(
            stated_at_each(1.0),
            every("throughput", lambda number, one: one.update(value=one["value"] * 1.02 ** (number == 9))),
        ),
        "a loss that rises": stated_after_each("train_loss", lambda number: 2 + number / 4 + number**2 % 7 / 97),
        "a loss below 0": stated_after_each("train_loss", lambda number: number / 4 + number**2 % 7 / 97 - 8),
        "the same last digits": accuracies(lambda index, one: round(one, 3) + 0.00012345678),
        "equal blocks": lasting("block", 9_000),
        "evaluations of a millisecond": lasting("eval", 1),
    },
    "early": {
        "constant samples that hide a short run": both(evaluated_only(*range(10, 15)), epoch_nums(lambda _: 1)),
    },
    "cadence": {
        "lines lost of an open run": both(setting("submission_division", "open"), evaluated_only(*range(7), 9, 10)),
        "the first evaluation after four intervals": evaluated_only(*range(4, 15)),
        "an early evaluation that meets the target": evaluated_early,
        "each evaluation late": epoch_nums(lambda index: (index + 1) * 450 * 448),
    },
    "reference-value": each(
        set_as, {"data_file": "data_phase1/part_0.hdf5", "init_checkpoint": "run_7/ckpt_step_700.pt"}
    ),
    "optimizer": {
        "values of another optimizer": set_as("opt_adam_beta_1", 0.9),
    },
}
_REFUSED: dict[str, dict[str, Mutation]] = {
    "target": {
        "an open run short of its own": both(setting("submission_division", "open"), set_as("bertbench_target", 0.74)),
    },
    "init-time": {
        "20 minutes of initialisation and 20 of waiting": both(
            later("init_start", -1_200_000), from_key("run_start", 1_200_000)
        ),
    },
    "on-clock": {
        "an epoch before the clock": before_start("epoch_start", None),
        "a loss before the clock": beside("run_start", "train_loss", 6.5),
        **each(
            before_start,
            {
                "train_losses": [7.1],
                "grad_norm": 0.8,
                "samples_per_second": 16_008.0,
                "train_data_file": "1.hdf5",
            },
        ),
    },
    "run-once": {
        "a second start half a second later": again("run_start", 500),
    },
    "pace": {
        "a cut that contradicts the throughput": both(stats(), from_key("block_stop", -6_500, 6)),
        "a late start that pays for cuts": both(
            stats(),
            from_key("block_start", 9_000),
            from_key("block_stop", -4_500, 5),
            from_key("block_stop", -8_500, 8),
        ),
    },
    "leap": {
        "too few evaluations for a pace": both(stopped_after(10), evaluated_only(3, 10)),
    },
    "reference-value": {
        **each(
            set_as,
            {
                "max_seq_length seq_len": 128,
                "max_grad_norm clip_grad_norm MAX_GRAD_NORM": 5,
                "hidden_dropout_prob": 0.0,
                "target_accuracy target_mlm_accuracy": 0.65,
                "num_hidden_layers": 12,
                "hidden_act": "relu",
                "model_config": {"hidden_size": 768},
                "end_learning_rate": 1e-4,
                "gradient_compression": "topk",
            },
        ),
    },
    "optimizer": {
        "the optimizer under another key": renamed("opt_name", "optimizer", value="AdamW"),
        "the optimizer's class": set_as("optimizer_class", "torch.optim.AdamW"),
    },
}
LOGS = [
    Forgery(name, rule, change, severity)
    for severity, table in (("warning", _WARNED), ("error", _REFUSED))
    for rule, rows in table.items()
    for name, change in rows.items()
]
