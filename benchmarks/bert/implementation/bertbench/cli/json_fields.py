"""The fields of each command's JSON, for its help and for the command reference that `make docs` builds.

Units end a name: `_s` seconds, `_ms` milliseconds, `_gb` 10^9 bytes. A number that is unknown is null. Every object
also has `command`. The judge describes its own fields (compliance/__main__.py); the laboratory's commands print their
rows.
"""

import shutil
import textwrap
from typing import NamedTuple


class Answer(NamedTuple):
    """What a command prints with --json, or prints in one of its modes."""

    fields: dict[str, str]
    """What each field of the object, or of each object in a list, means."""

    mode: str = ""
    """The option or the input with which the command prints this; empty for the usual answer."""


_GPUS = "ranks of the whole run: one for each GPU, or processes of a CPU system"
_BATCH = "samples of a step over all ranks"
_STATUS = "success, aborted, running, ...; docs/reports.md lists all"
_TIME = "seconds from run_start to run_stop"
_ACCURACY = "highest measured accuracy, 0 to 1"
_PROBLEMS = "list of what is wrong, a line for each problem"
_DATASET = Answer(
    {
        "path": "folder of the dataset",
        "reused": "whether the dataset existed already",
        "request": "recipe and sources",
        "tool_version": "version of bertbench that made it",
        "documents": "documents of the text; null if the samples come from other files",
        "tokenizer": "object that describes the vocabulary",
        "most_frequent_token": "the best constant guess; null without evaluation samples",
        "train": "training split: samples, tokens, shards; or null",
        "eval": "evaluation split: samples, tokens, shards; or null",
        "tokenizer_version": "version of the splitting into words; null for converted samples",
        "format": "version of the dataset's format",
    }
)
_TRAIN = Answer(
    {
        "log": "path of the log; null if the run wrote none",
        "status": _STATUS,
        "not_a_result": "smoke or profile; only of such a run",
        "seed": "seed of the run",
        "best_accuracy": _ACCURACY,
        "samples": "training samples",
        "time_to_train_s": _TIME,
    }
)
_SCORES = {
    "exact": "exact matches, %",
    "f1": "F1, %",
    "total": "questions",
    "HasAns_exact": "exact matches of the questions that have an answer, %",
    "HasAns_f1": "F1 of these questions, %",
    "HasAns_total": "number of these questions",
    "NoAns_exact": "exact matches of the questions without an answer, %",
    "NoAns_f1": "F1 of these questions, %",
    "NoAns_total": "number of these questions",
}

ANSWERS: dict[str, tuple[Answer, ...]] = {
    "config list": (
        Answer(
            {
                "system": "name of the system",
                "description": "what the system is for",
                "division": "closed or open",
                "gpus": _GPUS,
                "trains": "the command that trains it: train or finetune squad",
                "global_batch_size": _BATCH,
            }
        ),
    ),
    "config init": (
        Answer(
            {
                "path": "the file that was written",
                "division": "closed or open",
                "system": "content of the file",
                "notes": "list of what you should know",
            }
        ),
    ),
    "estimate": (
        Answer(
            {
                "system": "name of the system",
                "gpus": _GPUS,
                "global_batch_size": _BATCH,
                "samples": "training samples to the target",
                "samples_source": "where that number comes from",
                "samples_per_s": "samples per second of the whole run; null without a published result on this GPU",
                "rate_source": "the published result with that rate, or null",
                "expected_minutes": "expected time to train; null without a published result on this GPU",
                "median_error": "median relative error of such estimates of published results",
                "worst_ratio": "the worst such error, as the longer time over the shorter",
                "step_ms": "time of a step at that rate, or null",
            }
        ),
        Answer(
            {
                "system": "name of the system",
                "layouts": "list of layouts, the fastest first: memory_gb_per_gpu, least_step_ms, least_seconds, fits, "
                "...",
                "best": "settings of the fastest layout that fits",
            },
            "--layouts",
        ),
    ),
    "data prepare": (_DATASET,),
    "data convert-hdf5": (_DATASET,),
    "data convert-tfrecord": (_DATASET,),
    "data shuffle": (_DATASET,),
    "data verify": (
        Answer(
            {
                "path": "folder of the dataset",
                "ok": "whether nothing is wrong",
                "problems": _PROBLEMS,
                "splits": "for each split: samples, tokens, ...",
            }
        ),
        Answer(
            {
                "path": "folder of the download",
                "ok": "whether nothing is wrong",
                "right": "paths of the files that are as published",
                "missing": "names of the missing files",
                "packed": "archives and compressed files, if files are missing: how to unpack each",
                "wrong": "list of what is wrong, a line for each file",
            },
            "of a download",
        ),
    ),
    "data show": (
        Answer(
            {
                "path": "folder of the dataset",
                "vocab_size": "entries of the vocabulary",
                "documents": "documents of the text, or null",
                "best_constant_guess": "token and accuracy that any model must beat, or null",
                "splits": "for each split: samples, tokens, ...",
            }
        ),
    ),
    "checkpoint import": (
        Answer(
            {
                "source": "the checkpoint that was read",
                "out": "the weights file that was written",
                "used": "for each tensor that was used: the parameter that it became",
                "skipped": "list of tensors that the model doesn't have",
                "notes": "list of what you should know",
                "real_vocab_size": "entries of the vocabulary",
                "vocab_size": "rows of the embedding matrix",
            }
        ),
    ),
    "checkpoint show": (
        Answer(
            {
                "path": "file of the weights",
                "source": "where the weights come from",
                "shape": "sizes of the model",
                "real_vocab_size": "entries of the vocabulary",
                "parameters": "number of parameters",
                "tensors": "for each tensor: its sizes",
            }
        ),
    ),
    "checkpoint export": (Answer({"out": "the folder that was written", "vocab_size": "entries of the vocabulary"}),),
    "plan": (
        Answer(
            {
                "system": "name of the system",
                "gpus": _GPUS,
                "rank": "number of the rank, from 0",
                "global_batch_size": _BATCH,
                "layout": "dimensions of the grid of ranks, and the rank's coordinate",
                "sent_bytes_per_step": "bytes that the rank sends, for each dimension",
                "parameters": "parameters of the rank's model, or of its part of a split one",
                "layers": "layers that the rank computes, alone or with the ranks of parallel.tensor",
                "word_rows": "rows of the word embeddings that the rank holds; 0 on stages in the middle",
                "memory_gb_per_gpu": "largest memory of the rank",
                "memory_capacity_gb": "memory of a GPU; null for a CPU",
                "memory_gb": "memory for each kind of content",
                "bucket_elements": "list: elements of each gradient bucket",
                "bytes_per_step": "bytes that the rank hands over to sums",
                "lengths_from": "where the samples' lengths come from",
                "load_efficiency": "mean load over largest load, 0 to 1",
                "tokens_per_step": "mean, least and most tokens of the rank",
                "evaluation_interval_samples": "samples between evaluations",
                "evaluation_steps": "list of steps after which the run evaluates",
                "expected_minutes": "expected time to train; null without a published result of this model on this GPU",
                "learning_rate_by_step": "learning rate of some steps",
                "strata": "list: samples of a rank for each stratum of lengths; null where batches aren't drawn by "
                "strata",
                "clip_limit": "largest norm that a bucket's gradient keeps; null where buckets aren't clipped",
                "problems": _PROBLEMS,
            }
        ),
    ),
    "preflight": (
        Answer(
            {
                "system": "name of the system",
                "gpus": _GPUS,
                "all_reduce_gbit": "bandwidth of an all-reduce over all ranks, Gbit/s; null if it wasn't measured",
                "nodes": "for each node: number, host, ranks, GPUs, free disk, clock offset, bandwidth, code, data "
                "and problems",
                "problems": _PROBLEMS,
            }
        ),
    ),
    "launch": (
        _TRAIN._replace(mode="a list, with an object for each run"),
        Answer(
            {
                "commands": "list of the commands that start the run",
                "variables": "environment variables that they need",
            },
            "--dry-run",
        ),
    ),
    "train": (_TRAIN,),
    "evaluate": (
        Answer(
            {
                "weights": "path of the weights",
                "source": "where the weights come from",
                "data": "folder of the evaluation samples",
                "samples": "evaluation samples",
                "precision": "number format",
                "accuracy": "accuracy of the masked tokens, 0 to 1",
                "expectation": "what MLPerf's checkpoint must score",
            }
        ),
    ),
    "fill-mask": (
        Answer(
            {
                "text": "the text as given",
                "weights": "path of the weights",
                "source": "where the weights come from",
                "masks": "for each mask, the predictions, best first: token and probability",
            }
        ),
    ),
    "finetune squad": (
        Answer(
            {
                "inputs": "questions, features and settings",
                "epochs": "for each epoch: steps, samples, exact, f1, loss",
                "scores": "the last epoch's scores, with the fields of --score",
            }
        ),
        Answer(_SCORES, "--score"),
    ),
    "balance": (
        Answer(
            {
                "method": "load-balancing method",
                "gpus": "number of GPUs",
                "local_batch": "samples of a rank and step",
                "load_efficiency": "mean load over largest load, 0 to 1",
                "token_efficiency": "the same for tokens",
                "samples_per_step": "mean over the steps",
                "tokens_per_step": "mean over the steps",
                "cost_per_step": "sum of all ranks' loads, in operations",
                "bytes_per_rank_per_step": "bytes that a rank receives",
                "plan_ms_per_step": "time to plan a step",
            }
        ),
    ),
    "report": (
        Answer(
            {
                "system": "name of the system",
                "settings": "settings that differ from other groups of runs",
                "runs": "for each run: log, status, verdict, findings, questions, time_to_train_s, samples, mfu, ...",
                "reached": "runs that reached the target and that the judge passes",
                "reached_not_passed": "runs that reached the target, but that the judge doesn't pass; they are in no "
                "mean",
                "mean_time_to_train_s": "mean of the runs that count, or null",
                "mean_samples_to_converge": "mean training samples to the target, or null",
                "score_s": "MLPerf's mean without the fastest and the slowest run; null unless there are ten runs",
                "rulesets": "list of the rulesets by which the runs were judged",
                "passed": "logs that the judge passes",
            }
        ),
        Answer(
            {
                "log": "path of the log",
                "system": "name of the system",
                "seed": "seed of the run",
                "status": _STATUS,
                "time_to_train_s": _TIME,
                "best_accuracy": _ACCURACY,
                "target": "accuracy that ends the run",
                "samples_per_s": "training samples per second",
                "commit": "commit of the source code",
                "verdict": "pass, fail or cannot-judge; null for a run that isn't a result",
            },
            "--list",
        ),
    ),
    "compare": (
        Answer(
            {
                "a": "first side: name, runs, reached, reached_not_passed, score_s, failed",
                "b": "second side, with the same fields",
                "configuration": "list of the settings that differ",
                "measures": "for each measure: both means and the interval of their ratio",
                "conclusion": "the result in a sentence",
            }
        ),
    ),
    "track": (
        Answer(
            {
                "log": "path of the log",
                "name": "name of the record in the tracker",
                "steps": "number of steps that were copied",
            }
        ),
    ),
    "package": (
        Answer(
            {
                "path": "folder of the package",
                "ruleset": "rules by which it was judged",
                "verdict": "pass or fail",
                "findings": "list of breaches, with the fields that `bertbench judge --help` lists",
                "questions": "list of what a reviewer might ask",
                "not_applied": "list of rules that weren't applied, with the reason",
                "results": "for each result: its system, time to train, energy, convergence, findings and logs",
            }
        ),
    ),
}
_SENTENCES = {
    "config show": "It prints the same JSON with and without --json: every setting, and `derived` numbers.",
    "config schema": "It prints the same JSON with and without --json.",
    "env": "With --json, it prints an object with the fields of MLPerf's system description, as text. A field is empty "
    "if it can't be seen.",
}
"""What to say of commands whose documents have a form of their own."""


def json_help(command: str) -> str:
    """Return the part of a command's help that says what --json prints; empty for a command of the laboratory."""
    width = shutil.get_terminal_size().columns - 2  # as argparse does
    if command in _SENTENCES:
        return textwrap.fill(_SENTENCES[command], width)
    return "\n\n".join(_field_list(answer, width) for answer in ANSWERS.get(command, ()))


def _field_list(answer: Answer, width: int) -> str:
    """Return the fields of an answer, one below the other, in lines of at most `width` characters."""
    mode = f" ({answer.mode})" if answer.mode else ""
    lines = [f"fields of --json{mode}:"]
    widest = max(map(len, answer.fields))
    for name, meaning in answer.fields.items():
        lines += textwrap.wrap(
            meaning, width, initial_indent=f"  {name:<{widest}}  ", subsequent_indent=" " * (widest + 4)
        )  # fmt: skip
    return "\n".join(lines)
