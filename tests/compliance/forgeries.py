"""Forgeries of a sound closed log, by class: each contradicts itself, physics or chance, and gets at least a warning.

A row changes what one cheat would change, or uses what a rule lets pass.
"""

from collections.abc import Callable
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
    """`rule` finds it; `severity` as it must at least be found."""

    name: str
    rule: str
    change: Mutation
    severity: str = "warning"


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


def evaluated_at(milliseconds: Callable[[int], float]) -> Mutation:
    """The first, second, ... evaluation so long after run_start."""

    def change(records: list[Record]) -> list[Record]:
        start = records[at(records, "run_start")]["time_ms"]
        return every("eval_accuracy", lambda number, one: one.update(time_ms=start + milliseconds(number + 1)))(records)

    return change


evenly = evaluated_at(lambda number: 9_375 * number)


def evaluated_early(records: list[Record]) -> list[Record]:
    """The last evaluation comes after a third of an interval, when the target happens to be reached."""
    samples = 13 * 150_080 + 112 * 448
    counted = (telling(key, -1, epoch_num=samples) for key in ("eval_start", "eval_accuracy", "eval_stop"))
    return both(*counted, setting("train_samples", samples))(records)


LOGS = [
    # 1: what is stated more than once
    Forgery("a faster clock than the throughput", "samples", stats(0.9 * SAMPLES / SECONDS)),
    Forgery("a throughput event that contradicts the time", "samples", added("throughput", 0.9 * SAMPLES / SECONDS)),
    Forgery("statistics of other samples", "samples", stats(samples=SAMPLES - 450_240)),
    Forgery("statistics of other steps", "samples", stats(steps=3_000)),
    Forgery("a rate that run_stop adds to those of intervals", "samples",
            both(stated_at_each(1.0), telling("run_stop", throughput=1.2 * SAMPLES / SECONDS))),
    Forgery("a rate of the run after those of intervals", "samples",
            both(stated_at_each(1.0), added("throughput", 1.2 * SAMPLES / SECONDS))),
    Forgery("steps that stall before the end", "samples", telling("eval_start", -1, step=2_600)),
    Forgery("a rate of learning that doesn't decay", "stated-twice", telling("run_stop", learning_rate=0.003)),
    Forgery("a decoy beside the true throughput", "samples", both(stats(10_000), stats())),
    Forgery("an epoch that ends elsewhere", "samples", added("epoch_stop", None, epoch_num=1_500_000)),
    Forgery("blocks of fewer samples", "samples",
            every("block_start", lambda number, one: one["metadata"].update(first_epoch_num=number * 100_000,
                                                                            epoch_count=100_000))),
    Forgery("blocks of fewer steps", "samples",
            every("block_start", lambda number, one: one["metadata"].update(first_epoch_num=number * 200,
                                                                            epoch_count=200))),
    Forgery("a run that stops with another accuracy", "stated-twice", setting("run_stop", 0.7191)),
    Forgery("a run that stops after another interval", "samples", telling("run_stop", epoch_num=SAMPLES + 150_080)),
    Forgery("two warm-ups", "stated-twice", setting("num_warmup_steps", 700)),
    Forgery("two schedules", "stated-twice", beside("seed", "opt_learning_rate_decay_steps", 5_000)),
    Forgery("a throughput in words", "samples", added("tracked_stats", {"throughput": "fast"})),
    Forgery("a throughput before the last evaluation", "samples",
            both(beside("eval_samples", "throughput", 0.9 * SAMPLES / SECONDS),
                 lambda records: [*[one for one in records if one["key"] != "eval_accuracy"][:80],
                                  *[one for one in records if one["key"] == "eval_accuracy"],
                                  *[one for one in records if one["key"] != "eval_accuracy"][80:]])),
    Forgery("statistics of another time", "stated-twice", added("tracked_stats", {"train_time": 2 * SECONDS})),
    Forgery("a run that stops after other samples", "samples", telling("run_stop", samples_count=SAMPLES // 2)),
    Forgery("a warm-up longer than the training", "stated-twice",
            both(setting("opt_learning_rate_warmup_steps", 7_000), setting("num_warmup_steps", 7_000))),
    Forgery("a schedule that hardly begins", "samples", setting("opt_learning_rate_training_steps", 10**8)),
    Forgery("blocks of half their samples", "blocks-contiguous",
            shifted("block_start", "epoch_count", lambda _: -75_040)),
    *(Forgery(f"{key} {part}", "batch-size", beside("seed", key, part)) for key, part in (
        ("d_batch_size", 60), ("gradient_accumulation_steps", 15), ("micro_batch_size", 896), ("d_batch_size", 10**400),
        ("d_batch_size", "none"),
    )),
    Forgery("more steps before the last evaluation", "samples", beside("eval_stop", "train_step", 9_000)),
    Forgery("half a sample", "samples", telling("eval_accuracy", 4, epoch_num=5 * 150_080 + 0.5)),
    # 2: time
    Forgery("20 minutes of initialisation and 20 of waiting", "init-time",
            both(later("init_start", -1_200_000), from_key("run_start", 1_200_000)), "error"),
    Forgery("an hour of work before init_start", "init-time", later("cache_clear", -3_600_000)),
    Forgery("an epoch before the clock", "on-clock", beside("init_stop", "epoch_start", None), "error"),
    Forgery("a loss before the clock", "on-clock", beside("run_start", "train_loss", 6.5), "error"),
    Forgery("a step before the clock", "on-clock",
            both(beside("init_stop", "learning_rate", 1e-4), telling("learning_rate", step_num=120))),
    Forgery("a second start half a second later", "run-once", again("run_start", 500), "error"),
    Forgery("a part of many intervals", "pace",
            both(*(from_key("block_stop", -2_900, number) for number in range(4, 14, 2)))),
    Forgery("a faster second half", "pace", evaluated_at(
        lambda number: 9_700 * min(number, 7) + 8_200 * max(0, number - 7) + 37 * number**2 % 91)),
    Forgery("intervals that shrink little by little", "pace",
            evaluated_at(lambda number: 9_800 * number - 91 * number**2 + 37 * number**2 % 91)),
    Forgery("a cut that contradicts the throughput", "pace", both(stats(), from_key("block_stop", -6_500, 6)), "error"),
    # 3: noise
    Forgery("equal intervals", "noise", evenly),
    Forgery("intervals within a fraction of a millisecond", "noise", both(evenly, later("eval_accuracy", 0.1, 3))),
    Forgery("intervals that take turns", "noise",
            evaluated_at(lambda number: 333 + 9_000 * number + 1_000 * (number % 2))),
    Forgery("intervals that grow by as much", "noise",
            evaluated_at(lambda number: 9_250 * number + 8 * number**2)),
    Forgery("a curve from its formula", "noise",
            curve(lambda index: 0.7305 - 0.33 * 0.756**index)),
    Forgery("the same sixteen digits twice", "noise",
            both(setting("eval_accuracy", 0.6512345678901234, 9), setting("eval_accuracy", 0.6512345678901234, 11))),
    Forgery("the same rise at the end", "noise",
            curve(lambda index: 0.5 + 0.02 * index - (index < 7) * 0.0137 * index**0.5)),
    Forgery("a curve of roots", "noise", curve(lambda index: 0.28 + 0.42 * ((index + 1) / 13) ** 0.5)),
    Forgery("one rounded throughput at all evaluations", "noise", stated_after_each("throughput", lambda _: 16_010)),
    Forgery("one loss at all evaluations", "noise", stated_after_each("train_loss", lambda _: 3.123456789)),
    Forgery("a throughput that grows by as much", "noise",
            stated_after_each("throughput", lambda number: SAMPLES / SECONDS + number)),
    Forgery("one tenfold throughput", "noise",
            stated_after_each("throughput", lambda number: 16e3 * (10 if number == 9 else 1) + number**2 % 7)),
    Forgery("a loss that rises", "noise",
            stated_after_each("train_loss", lambda number: 2 + number / 4 + number**2 % 7 / 97)),
    Forgery("a loss below 0", "noise",
            stated_after_each("train_loss", lambda number: number / 4 + number**2 % 7 / 97 - 8)),
    Forgery("the same last digits", "noise", accuracies(lambda index, one: round(one, 3) + 0.00012345678)),
    Forgery("a third of the way at once", "noise",
            accuracies(lambda index, one: one if index > 4 else 0.05 + index / 17 % 0.1)),
    Forgery("a fall by half", "noise", setting("eval_accuracy", 0.31, 12)),
    # 4: exemptions
    Forgery("constant samples that hide a short run", "early",
            both(evaluated_only(*range(10, 15)), epoch_nums(lambda _: 1))),
    Forgery("the dataset's size that hides fewer samples", "samples",
            both(setting("train_samples", 156_725_653), stats(samples=1_000_000))),
    Forgery("a late start that pays for cuts", "pace",
            both(stats(), from_key("block_start", 9_000), from_key("block_stop", -4_500, 5),
                 from_key("block_stop", -8_500, 8)), "error"),
    Forgery("too few evaluations for a pace", "leap",
            both(stopped_after(10), evaluated_only(3, 10)), "error"),
    Forgery("constant samples beside other train_samples", "samples",
            both(epoch_nums(lambda _: 1), setting("train_samples", 4_000_000))),
    Forgery("samples that pass for steps", "samples",
            both(setting("opt_learning_rate_training_steps", 10**7), setting("train_samples", 14 * 56 * 448),
                 epoch_nums(lambda index: (index + 1) * 56 * 448))),
    Forgery("the first evaluation after four intervals", "cadence", evaluated_only(*range(4, 15))),
    Forgery("an early evaluation that meets the target", "cadence", evaluated_early),
    Forgery("each evaluation late", "cadence", epoch_nums(lambda index: (index + 1) * 450 * 448)),
    # 6: what is kept
    Forgery("a throughput among 400 other statistics", "samples",
            added("tracked_stats", {"throughput": 10_000.0} | {f"loss {number}": 1.5 for number in range(400)})),
    # 7: names and numbers
    Forgery("no throughput", "samples", stats(throughput=0)),
    # names of other loggers, lists and objects
    *(Forgery(f"{key} {value}", "samples", added(key, value)) for key, value in (
        ("samples_per_second", 12_000), ("Throughput", "12000"), ("train_throughput", [{"throughput": 8_000}]),
        ("sequences/sec", 12_000),
        ("tracked_stats", {"train": {"training_sequences_per_second": 12_000}}), ("global_step", 2_345),
        ("max_steps", 2_345), ("final_step", 2_345), ("steps_completed", 2_345), ("samples_trained", 1_050_000),
        ("tput", 12_000), ("items_per_sec", 12_000), ("throughput_avg", 12_000), ("ms_per_step", 40),
        ("tracked_stats", {"avg_step_time": 0.04}),
    )),
    *(Forgery(f"{key} {value}", "stated-twice", added(key, value)) for key, value in (
        ("time_to_train", 0.8 * SECONDS), ("run_duration", 2 * SECONDS),
        ("tracked_stats", {"train_time": 0.03 * SECONDS}),
        ("eval_masked_lm_accuracy", 0.7), ("final_accuracy", 0.69), ("elapsed_time", 2.5 * SECONDS),
        ("time_to_train_minutes", SECONDS / 40), ("time_to_converge", 0.8 * SECONDS), ("train_seconds", 2 * SECONDS),
        ("runtime", 2.5 * SECONDS), ("time_to_train_hours", 0.8 * SECONDS / 3_600),
        ("seconds_since_run_start", 1.2 * SECONDS),
    )),
    *(Forgery(f"{key} {value}", "stated-twice", beside("seed", key, value)) for key, value in (
        ("warmup_steps", 900), ("base_learning_rate", 0.5), ("opt_weight_decay", 0.3), ("opt_lamb_beta1", 0.3),
        ("GLOBAL_BATCH_SIZE", 512),
    )),
    Forgery("a longer time at its end", "stated-twice", telling("run_stop", TTT=1.2 * SECONDS)),
    Forgery("a schedule that begins after its end", "stated-twice", setting("start_warmup_step", 10_000)),
    Forgery("statistics of each interval, faster than the clock", "samples", stated_at_each(1.1)),
    *(Forgery(f"{key} before the clock", "on-clock", beside("init_stop", key, value), severity)
      for severity, named in (
          ("error", {"train_losses": [7.1], "grad_norm": 0.8, "samples_per_second": 16_008.0,
                     "train_data_file": "1.hdf5"}),
          ("warning", {"train_step": 120, "stats": {"eval_loss": 7.1}, "debug": {"samples_seen": 44_800},
                       "dataset_file": "1.hdf5", "first_batch_loaded": True, "train_data_cached": True}),
      ) for key, value in named.items()),
    *(Forgery(f"{key} {value}", "reference-value", beside("seed", key, value), "error") for key, value in (
        ("max_seq_length", 128), ("seq_len", 128), ("max_preds_per_seq", 20), ("poly_power", 2), ("max_grad_norm", 5),
        ("clip_grad_norm", 5), ("hidden_dropout_prob", 0.0), ("target_accuracy", 0.65), ("MAX_GRAD_NORM", "5.0"),
        ("num_hidden_layers", 12), ("model_config", {"hidden_size": 768}), ("end_learning_rate", 1e-4),
        ("gradient_compression", "topk"), ("target_mlm_accuracy", 0.712), ("hidden_act", "relu"),
    )),
    Forgery("equal blocks", "noise", lambda records: every("block_stop", lambda number, one: one.update(
        time_ms=records[at(records, "block_start", number)]["time_ms"] + 9_000))(records)),
    Forgery("the optimizer under another key", "optimizer", renamed("opt_name", "optimizer", value="AdamW"), "error"),
    Forgery("the optimizer's class", "optimizer", beside("seed", "optimizer_class", "torch.optim.AdamW"), "error"),
    Forgery("values of another optimizer", "optimizer", beside("seed", "opt_adam_beta_1", 0.9)),
]  # fmt: skip
