"""Read the records of results/ into the tables that shown.py writes into pages."""

import json
import math
import re
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scipy import stats

from bertbench.cli import renamed
from bertbench.common.evaluation import accuracy_text
from bertbench.common.published_results import PublishedResult, published_results
from bertbench.machine.gpu_peaks import DENSE_TFLOPS, gpu_kind
from bertbench.plan.load_efficiency import flops_per_sample
from bertbench.plan.step_time import exposed_seconds
from bertbench.report.scores import mean_of
from bertbench.run_files.sample_counts import samples_to_end
from compliance import judge_log
from compliance.ask import TOPICS
from compliance.read.log import read_events
from compliance.read.run import RunFacts
from compliance.rules import RULES
from compliance.rules.fixed_values import FIXED
from lab.study.intervals import holm

_RESULTS = Path(__file__).parents[2] / "results"
_SIMULATED = _RESULTS / "simulated" / "balance.json"
_MEAN_TOKENS = 255.8  # of a Wikipedia sample, by balance/wikipedia_lengths.json
_MEAN_MASKED = 38.2
_STUDIES = {"clip_ranks": "clip --ranks 2,16,64", "buckets": "buckets", "compression": "compression"}
"""Studies of paired differences in samples, and the `bertbench lab` command of each."""
_RACE = _RESULTS / "studies" / "optimizer.json"
_OPTIMIZERS = {"lamb": "LAMB", "muon": "Muon"}
_STARTS = {"start random": "from random weights", "start checkpoint": "from a checkpoint"}

_GPU_RESULTS = (
    ("2.1", "NVIDIA", "dgxa100_ngc22.09_pytorch"), ("2.0", "HazyResearch", "azurea100_ngc22.04_pytorch"),
    ("2.0", "Inspur", "nf5688m6_pytorch"), ("3.1", "xFusion", "G5500V7x8xL40S"), ("2.1", "NVIDIA", "dgxh100_preview"),
    ("4.1", "NVIDIA", "eos_ngc23.04_pytorch"), ("4.1", "Fujitsu", "GX2560M7_H100_SXM_80GBx4"),
    ("4.0", "NVIDIA", "h200_ngc23.09_pytorch"), ("4.1", "Supermicro", "SYS-421GE-TNHR2-LCC-1"),
    ("5.0", "NVIDIA", "nyx_n1_ngc25.04_pytorch"),
)  # fmt: skip
"""Round, submitter and system of published results: of each GPU NVIDIA's own, and the fastest of a node."""
_OURS_BY_TIME = _RESULTS / "gpu_check" / "nvidia_h100_69a0c2ed.json"
_OURS_BY_STEP = _RESULTS / "gpu_check" / "nvidia_h100_afa5f921.json"
_OUR_BATCH = 96

Rows = Iterator[list[str]]
"""The cells of each line of a table."""


def demo() -> str:
    """Return what `make demo` printed in the first recorded run, shortened."""
    log = sorted((_RESULTS / "cpu_demo" / "bert").glob("result_*.txt"))[0]
    run = RunFacts(read_events(log))
    target = next(event.value for event in run.events() if event.key.endswith("target"))
    said = [
        f"after {evaluation.samples:,.0f} samples: "
        f"accuracy {accuracy_text(evaluation.accuracy, target)} (target {target})"
        for evaluation in run.evaluations
    ]
    best = max(evaluation.accuracy for evaluation in run.evaluations)
    name = f"runs/cpu_demo/bert/{log.name}"
    lines = [
        "$ make demo", "...", f"cpu_demo: ranks 2, seed {run.seed}, log {name}", "...", said[0], "...",
        said[len(said) // 2], "...", said[-1], "success: target reached", f"PASS         {name}",
        "  bert, open division, ruleset 5.0.0: official pass",
        f"  time to train {run.time_to_train_s:.1f} s, best accuracy {best:.4f}, run {run.status}",
        *(f"  not applied: {unchecked.rule}: {unchecked.reason}" for unchecked in judge_log(log).not_applied),
    ]  # fmt: skip
    return fenced(*lines)


def demo_times() -> str:
    """Return how long the demo takes to reach its target, by processor: a row for each record of runs."""
    logs = sorted((_RESULTS / "cpu_demo" / "bert").glob("result_*.txt"))
    started = datetime.fromtimestamp(RunFacts(read_events(logs[0])).events()[0].time_ms / 1000, UTC)
    tracked = _read(logs[0].with_suffix("") / "run.json") | {"measured": f"{started:%Y-%m-%d}"}
    rows = [_times_row(tracked, [RunFacts(read_events(log)).time_to_train_s or 0 for log in logs])]
    raced = _read(_RESULTS / "bench" / "intel_xeon_amx" / "train.json")
    rows.append(_times_row(raced, [course[-1][0] for course in raced["courses"]["bertbench"]]))
    alone = first_run()
    rows.append(_times_row(alone, [alone["seconds_to_target"]]))
    return _table(["processor, two cores", "measured", "runs", "seconds to the target"], rows)


def sizes() -> str:
    """Return the measured sizes of an environment for CPUs and of the demo's data."""
    record = first_run()
    rows = [
        ["environment with the CPU build of PyTorch", f"{record['environment_mb'] / 1e3:.1f} GB"],
        ["the demo's dataset", f"{record['dataset_mb']} MB"],
    ]
    return _table(["what", "size"], rows)


def like_for_like() -> str:
    """Return bertbench against the Trainer with the same optimizer in both."""
    record = _read(_RESULTS / "bench" / "intel_xeon_amx" / "train.json")
    muon, adamw, trainer, trainer_muon = record["results"]
    rows = [
        _ratio_row("samples per second, AdamW", adamw, trainer, "samples_per_s", trainer["rate_ours"]),
        _ratio_row("samples per second, Muon", muon, trainer_muon, "samples_per_s", trainer_muon["rate_ours"]),
        _ratio_row("seconds to the target, Muon", muon, trainer_muon, "seconds_to_target", trainer_muon["times_ours"]),
    ]
    return _table(["measured, with the same optimizer", "bertbench", "Trainer", "ratio (95 % interval)"], rows)


def claims() -> str:
    """Return the claims that rest on records of the demo, the benches and the studies."""
    rows = [
        *_demo_claims(),
        *_bench_claims(),
        *_overlap_claims(),
        *(row for name in _STUDIES for row in _study_claims(name)),
    ]
    heads = ["claim", "figure (95 % interval)", "seeds", "shown", "command", "record"]
    return _table(heads, [*rows, *_optimizer_claims()])


def steps() -> str:
    """Return how many times as fast ours took a step: the strongest unbiased rival, and stock transformers."""
    lines = []
    for path in sorted((_RESULTS / "bench").glob("*/step.json")):
        record = _read(path)
        for table in "\n".join(record["printed"]).split("\n\n")[1:]:
            rival, stock = re.findall(r"([\d.]+ x(?: \(.*?\))?) as fast", table)
            lines.append(f"{record['processor']:<30} {table.split('  ')[0]:<14} {rival:>21} {stock:>22}")
    return fenced(f"{'':<45} {'strongest rival':>21} {'best unbiased stock':>22}", *lines)


def gpu_rates() -> str:
    """Return samples/s and MFU of a GPU: of published results by their logs, then of ours as measured on one H100."""
    run_rate, step_rate = _our_rates()
    rows = []
    for round_name, submitter, system in _GPU_RESULTS:
        (result,) = [
            result
            for result in published_results()
            if (result.submitter, result.system) == (submitter, system) and round_name in result.rounds.split(";")
        ]
        rows.append(_published_rate_row(result, run_rate))
    ours = f"[bertbench](../results/README.md): {_OUR_BATCH} samples"
    for what, rate in (("a run of 200 steps", run_rate), ("one replayed step", step_rate)):
        rows.append(
            [f"{ours}, {what}", "1 H100", "measured", f"{rate:,.0f}", _mfu(rate, "H100"), f"{run_rate / rate:.2f}"]
        )
    heads = ["result", "GPUs", "evidence", "samples/s a GPU", "MFU", "our run over it"]
    return _table(heads, rows)


def _our_rates() -> tuple[float, float]:
    """Return samples/s of the recorded run on an H100, by its time to train, and of its replayed step."""
    large = next(part for part in _read(_OURS_BY_TIME)["parts"] if part["name"] == "large")
    run = next(row for row in large["rows"] if row["choice"] == "as it comes")
    trace = next(part for part in _read(_OURS_BY_STEP)["parts"] if part["name"] == "trace")
    (step,) = trace["rows"]
    replay_ms = step["parts_ms"]["the rest of the loop"]  # without the host's time and the wait for data
    return run["samples"] / run["time_to_train_s"], 1e3 * _OUR_BATCH / replay_ms


def _published_rate_row(result: PublishedResult, ours: float) -> list[str]:
    assert result.accelerators
    kind = gpu_kind(result.accelerator)
    assert kind is not None
    rate = result.samples_to_converge / result.seconds / result.accelerators
    batch = result.global_batch_size // result.accelerators
    return [
        f"{result.submitter} {result.rounds.replace(';', ', ')}: {batch} samples",
        f"{result.accelerators} {kind}",
        "result logs",
        f"{rate:,.0f}",
        _mfu(rate, kind),
        f"{ours / rate:.2f}" if kind in ("H100", "H200") else "",
    ]


def _mfu(samples_per_s: float, kind: str) -> str:
    """Return the share of a GPU's dense peak in 16 bits."""
    return f"{samples_per_s * flops_per_sample() / (1e12 * DENSE_TFLOPS[kind]['bf16']):.1%}"


def rules() -> str:
    """Return the judge's rules, with section and rounds."""
    rows = [
        [f"`{rule.id}`", rule.source.document, f"`{rule.source.section}`", rule.rounds, rule.says] for rule in RULES
    ]
    return _table(["rule", "document", "section", "rounds", "what it says"], rows)


def fixed_values() -> str:
    """Return the values that the closed division fixes, with the section of training_rules.adoc that does."""
    rows = [[f"`{fixed.key}`", fixed.expected, fixed.section] for fixed in FIXED]
    return _table(["key", "fixed value", "section of training_rules.adoc"], rows)


def questions() -> str:
    """Return what the judge asks."""
    rows = [[f"`{topic.id}`", topic.asks, topic.usual] for topic in TOPICS]
    return _table(["question", "what is asked", "what is usual"], rows)


def balance() -> str:
    """Return simulated efficiencies and KB that a rank receives in a step, by command and method."""
    rows = [
        [
            f"`{command}`", f"`{row['method']}`", f"{row['gpus']:,} x {row['batch']}", f"{row['efficiency']:.4f}",
            f"{row['bytes_per_rank_per_step'] / 1e3:,.0f}",
        ]
        for command, of in _read(_SIMULATED).items()
        for row in of
    ]  # fmt: skip
    return _table(["command", "method", "GPUs x samples", "efficiency", "KB"], rows)


def strata() -> str:
    """Return the simulated efficiency of 1,024 GPUs x 16 samples by number of strata, with the sort in the node."""
    efficiencies = {}
    for command, simulated in _read(_SIMULATED).items():
        if "--strata-edges" in command and "--lengths" not in command:
            edges = command.split("--strata-edges ")[1].split()[0]
            efficiencies[edges] = simulated[0]["efficiency"]
    rows = []
    for edges, efficiency in efficiencies.items():
        rows.append([str(edges.count(",") + 1), edges.replace(",", ", "), f"{efficiency:.4f}", f"{1 - efficiency:.1%}"])
    return _table(["strata", "up to this many tokens", "efficiency", "idle"], rows)


def node_sizes() -> str:
    """Return what a node's gather and sort cost and bring, by its number of GPUs."""
    words = 1.5 * _MEAN_TOKENS + 2 * _MEAN_MASKED + 0.5  # ids, half a word of segments; places and labels; pair label
    rows = []
    for command, simulated in _read(_SIMULATED).items():
        if "--gpus-per-node" not in command:
            continue
        gpus = int(command.split("--gpus-per-node ")[1])
        row = simulated[0]
        samples = gpus * row["batch"]
        at_least = (gpus - 1) * row["batch"] * 2 * words
        rows.append(
            [
                str(gpus), f"{row['efficiency']:.4f}", f"{row['bytes_per_rank_per_step'] / 1e3:,.0f}",
                f"{at_least / 1e3:,.0f}", f"{samples * math.log2(samples):,.0f}",
            ]
        )  # fmt: skip
    heads = ["GPUs of a node", "efficiency", "KB received a GPU and step", "KB by the formula", "comparisons"]
    return _table(heads, rows)


def clip_modes() -> str:
    """Return what each clip mode exposed in the record with intervals, beside the least that the formula allows."""
    record = _read(_RESULTS / "bench" / "amd_epyc" / "overlap.json")
    buckets = int(re.findall(r"in (\d+) buckets", record["printed"][0])[0])
    by_rate: dict[float, dict[str, Any]] = {}
    for row in record["results"]:
        by_rate.setdefault(row["bandwidth_mbit"], {})[row["mode"]] = row
    rows = []
    for rate, modes in by_rate.items():
        reduction = modes["before"]["exposed_ms"]  # all of it
        computing = statistics.median(row["step_ms"] - row["exposed_ms"] for row in modes.values())
        least = exposed_seconds(reduction, computing, buckets)
        exposed = [f"{modes[mode]['exposed_ms']:.0f}" for mode in ("before", "after", "bucket")]
        interval = f"{modes['bucket']['less_low_ms']:.0f} to {modes['bucket']['less_high_ms']:.0f}"
        rows.append([f"{rate:,.0f}", *exposed, interval, f"{least:.0f}"])
    heads = ["Mbit/s", "`before`", "`after`", "`bucket`", "`bucket` less than `before`", "least by the formula"]
    return _table(heads, rows)


def adam_values() -> str:
    """Return the tuned values of ADAM in each cell of the study of optimizers."""
    rows = []
    for arm in _read(_RACE)["arms"]:
        if arm["arm"].startswith("adam"):
            _, start, batch = arm["arm"].split("_")
            values = arm["values"]
            rows.append(
                [
                    start, batch.removeprefix("b"), f"{values['optimizer.learning_rate']:.4f}",
                    f"{values['optimizer.beta1']:.2f}", f"{values['optimizer.beta2']:.4f}",
                ]
            )  # fmt: skip
    return _table(["start", "batch", "learning rate", "beta1", "beta2"], rows)


def preparation() -> str:
    """Return what each step of preparing MLPerf's data takes: extrapolated from a part, by tokens and by samples."""
    record = _read(_RESULTS / "preparation.json")
    rows = []
    for name, step in record["steps"].items():
        seconds = step["seconds"][1] - step["seconds"][0]
        by = [record[f"all_{unit}"] / (step[unit][1] - step[unit][0]) for unit in ("tokens", "samples")]
        hours = " to ".join(f"{seconds * times / 3600:.1f}" for times in by)
        disk = f"{step['bytes'] * record['all_tokens'] / step['tokens'][1] / 1e9:,.0f} GB" if "bytes" in step else ""
        rows.append([name, hours, disk, f"{step['memory_mb'] / 1e3:.1f} GB"])
    return _table(["step", "hours of one core", "disk", "memory"], rows)


def first_run() -> Any:
    """Return the record of the tutorial's commands: what they printed, and where."""
    return _read(_RESULTS / "first_run.json")


def _times_row(record: dict[str, Any], seconds: list[float]) -> list[str]:
    """Return a row of demo_times: the record's machine, and the range of its runs' seconds."""
    spread = f"{min(seconds):.1f} to {max(seconds):.1f}" if len(seconds) > 1 else f"{seconds[0]:.1f}"
    processor = f"{record['processor']} ({record['instructions']})"
    return [processor, record["measured"], str(len(seconds)), spread]


def _ratio_row(what: str, ours: dict[str, Any], theirs: dict[str, Any], key: str, ratio: list[float]) -> list[str]:
    form = ",.0f" if key == "samples_per_s" else ".1f"
    middle, low, high = ratio
    return [what, f"{ours[key]:{form}}", f"{theirs[key]:{form}}", f"{middle:.2f}x ({low:.2f} to {high:.2f})"]


def _demo_claims() -> Rows:
    logs = sorted((_RESULTS / "cpu_demo" / "bert").glob("result_*.txt"))
    runs = [RunFacts(read_events(log)) for log in logs]
    seconds = [run.time_to_train_s or 0 for run in runs]
    samples = [samples_to_end(run) or 0 for run in runs]
    for claim, values, form in (("seconds", seconds, ".1f"), ("samples", samples, ",.0f")):
        figure = f"{mean_of(values):{form}} (range {min(values):{form}} to {max(values):{form}})"
        command = f"./run_and_time.sh cpu_demo --runs {len(runs)}"
        yield [
            f"The demo's {claim} to its target",
            figure,
            str(len(runs)),
            "mean and range",
            command,
            _link(logs[0].parent),
        ]


def _bench_claims() -> Rows:
    for path in sorted((_RESULTS / "bench").glob("*/*.json")):
        record = _read(path)
        seeds = str(record["results"][0].get("runs", 1)) if path.stem == "train" else "-"
        for table in "\n".join(record["printed"]).split("\n\n"):
            size = table.split("  ")[0] + ": " if path.stem == "step" else ""
            for line in re.findall(
                r"^.*(?:\d x (?:\(.*\) )?(?:as fast|the samples/s)|times the samples/s|95 % interval ).*",
                table,
                re.MULTILINE,
            ):
                found = re.search(r"([-+]?\d+\.\d+) (x|times|%)(?: \((?:95 % interval )?(\S+) to (\S+).*?\))?", line)
                assert found, line
                figure, unit, low, high = found.groups()
                interval = f" ({low} to {high})" if low else ""
                shown = _shown(float(low) <= (unit != "%") <= float(high)) if low else "no interval recorded"
                claim = " ".join(f"{path.stem}: {size}{line.replace(found[0], '...', 1)}".split())
                yield [claim, f"{figure} {unit}{interval}", seeds, shown, command_of(record), _link(path)]


def _overlap_claims() -> Rows:
    """Yield what each mode exposes less than `before`; a record's intervals hold together at 95 %."""
    for path in sorted((_RESULTS / "bench").glob("*/overlap.json")):
        record = _read(path)
        for row in record["results"]:
            if row.get("less_ms") is None:  # `before` itself, or a record without intervals
                continue
            low, high, where = row["less_low_ms"], row["less_high_ms"], f"{row['bandwidth_mbit']:,.0f} Mbit/s"
            yield [
                f"overlap: milliseconds that `{row['mode']}` exposes less than `before`, {where}",
                f"{row['less_ms']:.0f} ({low:.0f} to {high:.0f})", "-", _shown(low <= 0 <= high), command_of(record),
                _link(path),
            ]  # fmt: skip


def _study_claims(name: str) -> Rows:
    path = _RESULTS / "studies" / f"{name}.json"
    found = _read(path)
    for pair in (*found["comparisons"], *found["at_equal_values"]):
        arm, against = (pair["difference"][end] for end in ("arm", "against"))
        mean, low, high = (100 * pair["difference"][end] / pair["reference"] for end in ("mean", "low", "high"))
        values = f"both at the values of `{pair['values_of']}`" if "values_of" in pair else "each at its own values"
        ranks = f", {pair['ranks']} ranks, {values}" if "ranks" in pair else ""
        yield [
            f"Samples of `{arm}` less `{against}`{ranks}",
            f"{mean:+.1f} % ({low:+.1f} to {high:+.1f})",
            str(pair["seeds"]),
            _shown(pair["holm_p"] > 0.05 or pair["missed"] > 0),
            f"bertbench lab {_STUDIES[name]}",
            _link(path),
        ]


def _optimizer_claims() -> Rows:
    study = _read(_RACE)
    arms, batches = {arm["arm"]: arm for arm in study["arms"]}, study["definition"]["cells"]["batch"]
    seeds, where = study["arms"][0]["seeds"], ("bertbench lab optimizer", _link(_RACE))
    pairs = {(pair["arm"], pair["cells"]): pair for pair in study["pooled"]}
    chosen = [pairs[arm, cells] for arm in _OPTIMIZERS for cells in _STARTS]
    for pair, p_value in zip(chosen, holm([*map(_p_value, chosen)]), strict=True):
        samples, seconds = (
            f"{pair[mean]:.2f} ({pair[low]:.2f} to {pair[high]:.2f})"
            for mean, low, high in (("samples", "low", "high"), ("seconds", "seconds_low", "seconds_high"))
        )
        claim = f"Samples of {_OPTIMIZERS[pair['arm']]} over ADAM's, {_STARTS[pair['cells']]}"
        shown = _shown(p_value > 0.05 or pair["verdict"].startswith("not decided"))
        yield [claim, f"{samples}; seconds {seconds}", f"{seeds} x {pair['counted']} cells", shown, *where]
    places = sorted(
        row["samples_to_target"] / arms[row["arm"]]["values"]["decay_samples"]
        for row in study["rows"]
        if row["reached"]
    )
    tenth, *_, last = statistics.quantiles(places, n=10)
    figure = f"{statistics.median(places):.2f} (eight of ten runs: {tenth:.2f} to {last:.2f})"
    yield ["Optimizers: samples to the target over those of the decay", figure, str(seeds), "median", *where]
    evaluations = min(
        arm["samples_to_target"] / batches[arm["batch"]]["evaluation.interval_samples"] for arm in arms.values()
    )
    yield ["Optimizers: evaluations to the target", f"{evaluations:.0f}", str(seeds), "least mean of an arm", *where]
    edges = sum(len(of["at_edge"]) for of in study["tuned"])
    values = sum(len(arm["values"]) for arm in arms.values())
    yield ["Optimizers: tuned values at the edge of their range", f"{edges} of {values}", "-", "counted", *where]


def _p_value(pair: dict[str, Any]) -> float:
    """Return the two-sided p-value of a mean over cells, from its 95 % interval by Student's t."""
    freedom, mean = pair["counted"] - 1, math.log(pair["samples"])
    error = (mean - math.log(pair["low"])) / stats.t.ppf(0.975, freedom)
    return float(2 * stats.t.sf(abs(mean) / error, freedom))


def _shown(undecided: bool) -> str:
    return "not decided here" if undecided else "yes"


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def command_of(record: dict[str, Any]) -> str:
    """Return a record's command by its name today."""
    command = str(record["command"]).replace("bertbench bench ", "bertbench lab ")
    for old, new in renamed.COMMANDS.items():
        command = re.sub(rf"^bertbench {old}\b", f"bertbench {new}", command)
    return command


def fenced(*lines: str) -> str:
    """Return lines as a block of a page."""
    return "\n".join(["```", *lines, "```"])


def _link(path: Path) -> str:
    return f"[{path.parent.name}{'/' + path.stem if path.suffix else ''}]({path.relative_to(_RESULTS)})"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])


READINGS = {
    reading.__name__: reading
    for reading in (
        demo, demo_times, like_for_like, sizes, claims, steps, rules, fixed_values, questions, balance, strata,
        node_sizes, clip_modes, adam_values, preparation, gpu_rates,
    )
}  # fmt: skip
"""What a page may show, by name."""
