"""Logs to judge: one of our real runs, and the same run as a closed one, like the published logs."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import mlperf_logging
import yaml
from mlperf_logging.compliance_checker import mlp_compliance

from compliance.judge import Judgement, judge_log

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "tests" / "recorded" / "results" / "cpu_demo" / "bert"
RULES = Path(mlperf_logging.__path__[0]) / "compliance_checker"
RULESETS = ("0.7.0", "1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0", "4.1.0", "5.0.0")

# The demo's batch of 128 and its 12,800 samples between evaluations, as one DGX A100 has them: 448, and every 150,000.
_BATCH, _STEPS_BETWEEN = 448, 335

Record = dict[str, Any]
Line = Record | str
"""A record, or another line of a log."""


@cache
def _demo_text() -> str:
    return (RESULTS / "result_0.txt").read_text()


def demo() -> list[Record]:
    """The records of a tracked run of ours: open division, ruleset 5.0.0."""
    return records_of(_demo_text())


def closed(ruleset: str = "5.0.0") -> list[Record]:
    """Return that run as a closed one of BERT, which reaches 0.72 and logs what the ruleset asks for."""
    records = []
    values = {
        "submission_division": "closed", "submission_status": "onprem", "global_batch_size": _BATCH, "opt_name": "lamb",
        "max_sequence_length": 512, "opt_learning_rate_training_steps": 6700, "cache_clear": True,
        "eval_samples": 10000,
    }  # fmt: skip
    for record in demo():
        metadata = record["metadata"]
        for field in ("epoch_num", "first_epoch_num", "epoch_count"):
            if field in metadata:
                metadata[field] = metadata[field] // 12_800 * _STEPS_BETWEEN * _BATCH
        if record["key"] == "train_samples":
            record["value"] = record["value"] // 12_800 * _STEPS_BETWEEN * _BATCH
        if record["key"] == "eval_accuracy":
            record["value"] = round(0.32 + record["value"], 5)  # 0.4085 becomes 0.7285; the one before stays below 0.72
        record["value"] = values.get(record["key"], record["value"])
        records.append(record)
        if record["key"] == "opt_lamb_epsilon":
            records.append({**record, "key": "opt_epsilon"})
        if record["key"] == "start_warmup_step" and ruleset in ("1.1.0", "2.0.0", "2.1.0"):
            records += [
                {**record, "key": "weights_initialization", "value": None, "metadata": {**metadata, "tensor": tensor}}
                for tensor in tensors(ruleset)
            ]
    return records


@cache
def tensors(ruleset: str) -> tuple[str, ...]:
    """The tensor names that a ruleset's rule file lists."""
    rules = yaml.safe_load((RULES / f"training_{ruleset}" / "closed_bert.yaml").read_text())
    (end,) = [rule["END"]["CHECK"] for rule in rules if "END" in rule]
    return tuple(re.findall(r'"([^"]+)"', end))


OWN: dict[str, Any] = {
    "opt_gradient_clip_norm": 1.0, "opt_lamb_learning_rate_decay_poly_power": 1, "max_predictions_per_seq": 76,
    "bertbench_clip_mode": "before", "bertbench_compression": "fp16", "bertbench_loss_normalize": "rank",
    "bertbench_ema_decay": 0.0,
    "bertbench_hidden_dropout": 0.1, "bertbench_attention_dropout": 0.1, "bertbench_balance": "planned",
    "bertbench_sync_method": "every_step",
    "bertbench_checkpoint": True, "bertbench_target": 0.72, "bertbench_evaluation_interval": 150_000,
    "bertbench_model": {
        "layers": 24, "hidden_size": 1024, "attention_heads": 16, "feed_forward_size": 4096, "vocab_size": 30528,
        "max_positions": 512,
    },
}  # fmt: skip


def with_own_keys(records: list[Record]) -> list[Record]:
    """The log as bertbench writes it, with what decides whether a run is closed."""
    index = at(records, "global_batch_size")
    keys = [{**records[index], "key": key, "value": value} for key, value in OWN.items()]
    return [*records[:index], *keys, *records[index:]]


def line(record: Line) -> str:
    return record if isinstance(record, str) else ":::MLLOG " + json.dumps(record)


def records_of(content: str) -> list[Record]:
    """The records of a log whose every line is one."""
    return [json.loads(one.removeprefix(":::MLLOG ")) for one in content.splitlines()]


def text(records: Iterable[Line]) -> str:
    return "".join(line(record) + "\n" for record in records)


def write(path: Path, content: str | bytes | Iterable[Line]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_bytes((content if isinstance(content, str) else text(content)).encode())
    return path


def judged(folder: Path, content: str | bytes | Iterable[Line], ruleset: str = "5.0.0", **options: Any) -> Judgement:
    """Judge a log that is written into a folder."""
    return judge_log(write(folder / "result_0.txt", content), ruleset, **options)


def places(judgement: Judgement) -> set[tuple[str, int | None]]:
    """The rule and the line of every breach."""
    return {(breach.rule.id, breach.line) for breach in judgement.breaches}


def at(records: list[Record], key: str, nth: int = 0) -> int:
    """Where the nth record of a key is, counted from 0; -1 is the last."""
    return [index for index, record in enumerate(records) if record["key"] == key][nth]


def official_verdict(path: Path, ruleset: str) -> str:
    """Return the verdict of the unmodified official checker, in this process: pass, fail, or error for a crash."""
    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker("training", ruleset, quiet=False, werror=False)
    try:
        passed, *_ = mlp_compliance.main(str(path), f"training_{ruleset}/common.yaml", checker)
    except Exception:  # it may raise anything  # noqa: BLE001
        return "error"
    return "pass" if passed else "fail"


def compliance(*arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "compliance", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=60)
