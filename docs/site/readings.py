"""Turn the records in results/ into the tables that shown.py writes into pages."""

import math
import statistics
from datetime import UTC, datetime
from typing import Any

from bertbench.common.evaluation import accuracy_text
from bertbench.common.tables import markdown
from bertbench.plan.dry_run import count_rank
from bertbench.plan.layout_cost import exposed_seconds
from compliance import judge_log
from compliance.read.log import read_events
from compliance.read.run import RunFacts
from docs.site.claims import OPTIMIZER_STUDY, SIMULATED, claims
from docs.site.gpu_rates import gpu_rates, gpu_scaling
from docs.site.records import RESULTS, read
from lab.bench.overlap import bench_system
from lab.bench.squad_table import layout_tables

_MEAN_TOKENS = 255.8  # of a Wikipedia sample, by balance/wikipedia_lengths.json
_MEAN_MASKED = 38.2


def demo() -> str:
    """Return the output of `make demo` in the first recorded run, shortened."""
    log = sorted((RESULTS / "cpu_demo" / "bert").glob("result_*.txt"))[0]
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
    """Return how long the demo takes to reach its target, by processor: one row per record of runs."""
    logs = sorted((RESULTS / "cpu_demo" / "bert").glob("result_*.txt"))
    started = datetime.fromtimestamp(RunFacts(read_events(logs[0])).events()[0].time_ms / 1000, UTC)
    tracked = read(logs[0].with_suffix("") / "run.json") | {"measured": f"{started:%Y-%m-%d}"}
    rows = [_times_row(tracked, [RunFacts(read_events(log)).time_to_train_s or 0 for log in logs])]
    raced = read(RESULTS / "bench" / "intel_xeon_amx" / "train.json")
    rows.append(_times_row(raced, [course[-1][0] for course in raced["courses"]["bertbench"]]))
    alone = first_run()
    rows.append(_times_row(alone, [alone["seconds_to_target"]]))
    return markdown(["processor, two cores", "measured", "runs", "seconds to the target"], rows)


def sizes() -> str:
    """Return the measured sizes of a CPU environment and of the demo's data."""
    record = first_run()
    rows = [
        ["environment with the CPU build of PyTorch", f"{record['environment_mb'] / 1e3:.1f} GB"],
        ["the demo's dataset", f"{record['dataset_mb']} MB"],
    ]
    return markdown(["what", "size"], rows)


def like_for_like() -> str:
    """Return a comparison of bertbench with the Trainer, where both have the same optimizer."""
    record = read(RESULTS / "bench" / "intel_xeon_amx" / "train.json")
    muon, adamw, trainer, trainer_muon = record["results"]
    rows = [
        _ratio_row("samples per second, AdamW", adamw, trainer, "samples_per_s", trainer["rate_ours"]),
        _ratio_row("samples per second, Muon", muon, trainer_muon, "samples_per_s", trainer_muon["rate_ours"]),
        _ratio_row("seconds to the target, Muon", muon, trainer_muon, "seconds_to_target", trainer_muon["times_ours"]),
    ]
    return markdown(["measured, with the same optimizer", "bertbench", "Trainer", "ratio (95 % interval)"], rows)


def strata() -> str:
    """Return the simulated efficiency of 1,024 GPUs x 16 samples by number of strata; each node sorts its samples."""
    efficiencies = {}
    for command, simulated in read(SIMULATED).items():
        if "--strata-edges" in command and "--lengths" not in command:
            edges = command.split("--strata-edges ")[1].split()[0]
            efficiencies[edges] = simulated[0]["load_efficiency"]
    rows = []
    for edges, efficiency in efficiencies.items():
        rows.append([str(edges.count(",") + 1), edges.replace(",", ", "), f"{efficiency:.4f}", f"{1 - efficiency:.1%}"])
    return markdown(["strata", "up to this many tokens", "efficiency", "idle"], rows)


def node_sizes() -> str:
    """Return the costs and the benefit of gathering and sorting samples in a node, by its number of GPUs."""
    words = 1.5 * _MEAN_TOKENS + 2 * _MEAN_MASKED + 0.5  # ids, half a word for segments; places and labels; pair label
    rows = []
    for command, simulated in read(SIMULATED).items():
        if "--gpus-per-node" not in command:
            continue
        gpus = int(command.split("--gpus-per-node ")[1])
        row = simulated[0]
        samples = gpus * row["local_batch"]
        at_least = (gpus - 1) * row["local_batch"] * 2 * words
        rows.append(
            [
                str(gpus), f"{row['load_efficiency']:.4f}", f"{row['bytes_per_rank_per_step'] / 1e3:,.0f}",
                f"{at_least / 1e3:,.0f}", f"{samples * math.log2(samples):,.0f}",
            ]
        )  # fmt: skip
    heads = ["GPUs per node", "efficiency", "KB received per GPU and step", "KB by the formula", "comparisons"]
    return markdown(heads, rows)


def clip_modes() -> str:
    """Return the exposed time of each clip mode, from the record with intervals, and the least by the formula."""
    record = read(RESULTS / "bench" / "amd_epyc" / "overlap.json")
    buckets = len(count_rank(bench_system("bucket", rounds=1), rank=0).bucket_elements)
    by_rate: dict[float, dict[str, Any]] = {}
    for row in record["results"]:
        by_rate.setdefault(row["bandwidth_mbit"], {})[row["mode"]] = row
    rows = []
    for rate, modes in by_rate.items():
        reduction = modes["before"]["exposed_ms"]  # this mode exposes the whole reduction
        computing = statistics.median(row["step_ms"] - row["exposed_ms"] for row in modes.values())
        least = exposed_seconds(reduction, computing, buckets)
        exposed = [f"{modes[mode]['exposed_ms']:.0f}" for mode in ("before", "after", "bucket")]
        interval = f"{modes['bucket']['less_low_ms']:.0f} to {modes['bucket']['less_high_ms']:.0f}"
        rows.append([f"{rate:,.0f}", *exposed, interval, f"{least:.0f}"])
    heads = ["Mbit/s", "`before`", "`after`", "`bucket`", "`bucket` less than `before`", "least by the formula"]
    return markdown(heads, rows)


def squad_layouts() -> str:
    """Return the tables of the record of fine-tuning in several layouts, as `lab squad` prints them."""
    record = read(RESULTS / "bench" / "amd_epyc" / "squad.json")
    return fenced(f"$ {recorded_command(record)}", *layout_tables(record["results"]))


def recorded_command(record: dict[str, Any]) -> str:
    """Return the command that made a record, with its date and its commit."""
    made = f"{record['measured']}, commit {record['commit'][:7]}, torch {record['torch']}"
    return f"{record['command']}    # {made}"


def adam_values() -> str:
    """Return the tuned values of ADAM in each cell of the optimizer study."""
    rows = []
    for arm in read(OPTIMIZER_STUDY)["arms"]:
        if arm["arm"].startswith("adam"):
            _, start, batch = arm["arm"].split("_")
            values = arm["values"]
            rows.append(
                [
                    start, batch.removeprefix("b"), f"{values['optimizer.learning_rate']:.4f}",
                    f"{values['optimizer.beta1']:.2f}", f"{values['optimizer.beta2']:.4f}",
                ]
            )  # fmt: skip
    return markdown(["start", "batch", "learning rate", "beta1", "beta2"], rows)


def preparation() -> str:
    """Return the needs of each step of preparing MLPerf's data, extrapolated from a part by tokens and by samples."""
    record = read(RESULTS / "preparation.json")
    rows = []
    for name, step in record["steps"].items():
        seconds = step["seconds"][1] - step["seconds"][0]
        by = [record[f"all_{unit}"] / (step[unit][1] - step[unit][0]) for unit in ("tokens", "samples")]
        hours = " to ".join(f"{seconds * times / 3600:.1f}" for times in by)
        disk = f"{step['bytes'] * record['all_tokens'] / step['tokens'][1] / 1e9:,.0f} GB" if "bytes" in step else ""
        rows.append([name, hours, disk, f"{step['memory_mb'] / 1e3:.1f} GB"])
    return markdown(["step", "hours of one core", "disk", "memory"], rows)


def first_run() -> Any:
    """Return the record of the tutorial's commands: their output, and the machine."""
    return read(RESULTS / "first_run.json")


def fenced(*lines: str) -> str:
    """Return lines as a fenced block."""
    return "\n".join(["```", *lines, "```"])


def _times_row(record: dict[str, Any], seconds: list[float]) -> list[str]:
    """Return a row of demo_times: the machine of a record, and the range of its runs' times."""
    spread = f"{min(seconds):.1f} to {max(seconds):.1f}" if len(seconds) > 1 else f"{seconds[0]:.1f}"
    processor = f"{record['processor']} ({record['instructions']})"
    return [processor, record["measured"], str(len(seconds)), spread]


def _ratio_row(what: str, ours: dict[str, Any], theirs: dict[str, Any], key: str, ratio: list[float]) -> list[str]:
    form = ",.0f" if key == "samples_per_s" else ".1f"
    middle, low, high = ratio
    return [what, f"{ours[key]:{form}}", f"{theirs[key]:{form}}", f"{middle:.2f}x ({low:.2f} to {high:.2f})"]


def batch_sizes() -> str:
    """Return the samples and steps to target for each batch size, by the rule that scaled its values from batch 32."""
    record = read(RESULTS / "studies" / "batch.json")
    base = record["arms"][0]
    against_base = {
        pair["difference"]["arm"]: pair
        for pair in record["comparisons"]
        if pair["difference"]["against"] == base["arm"]
    }
    rows = []
    for arm in record["arms"]:
        _, batch, *rule = arm["arm"].split("_")
        pair = against_base.get(arm["arm"])
        samples = "-"
        steps = "-"
        ratio = "-"
        if arm["reached"] == arm["seeds"]:
            samples = f"{arm['samples_to_target']:,.0f} ± {arm['half_width']:,.0f}"
            steps = f"{arm['samples_to_target'] / int(batch):,.0f}"
        if pair and arm["reached"] == arm["seeds"]:
            ratio = f"{pair['ratio']:.2f} ({pair['ratio_low']:.2f} to {pair['ratio_high']:.2f})"
        reached = f"{arm['reached']} of {arm['seeds']}"
        rows.append([batch, rule[0] if rule else "tuned here", reached, samples, steps, ratio])
    return markdown(["batch", "rule", "reached the target", "samples", "steps", "samples over batch 32's"], rows)


def slow_links() -> str:
    """Return the seconds of each technique to the target over each link, from the records of `lab links`."""
    records = [read(RESULTS / "bench" / "intel_xeon_amx" / f"{name}.json") for name in ("links", "links_5ms")]
    runs = [run for record in records for run in record["results"]]
    links = list(dict.fromkeys((run["mbit"], run["latency_ms"]) for run in runs))
    seconds = {(run["way"], run["mbit"], run["latency_ms"]): run["seconds"] for run in runs}
    techniques = list(dict.fromkeys(run["way"] for run in runs))
    rows = [[f"`{name}`", *(f"{seconds[name, *link]:.1f}" for link in links)] for name in techniques]
    heads = [f"{mbit:,.0f} Mbit/s, {latency_ms:.0f} ms" for mbit, latency_ms in links]
    return markdown(["seconds to the target", *heads], rows)


READINGS = {
    reading.__name__: reading
    for reading in (
        demo, demo_times, like_for_like, sizes, claims, squad_layouts, strata,
        node_sizes, clip_modes, adam_values, batch_sizes, preparation, gpu_rates, gpu_scaling, slow_links,
    )
}  # fmt: skip
"""The tables that a page may show, by name."""
