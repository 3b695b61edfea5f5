"""Turn the records in results/ into the tables that shown.py writes into pages."""

from datetime import UTC, datetime
from typing import Any

from bertbench.common.evaluation import accuracy_text
from bertbench.common.tables import markdown
from compliance import judge_log
from compliance.read.log import read_events
from compliance.read.run import RunFacts
from docs.site.bench_claims import fastest_baselines
from docs.site.claims import SIMULATED, claims, origins
from docs.site.gpu_rates import gpu_rates
from docs.site.records import RESULTS, read
from lab.bench.squad_table import layout_tables
from lab.bench.train_result import OURS


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
    """Return the efficiency and the bytes of gathering and sorting samples in a node, by its number of GPUs."""
    rows = []
    for command, simulated in read(SIMULATED).items():
        if "--gpus-per-node" in command:
            gpus = command.split("--gpus-per-node ")[1]
            row = simulated[0]
            rows.append([gpus, f"{row['load_efficiency']:.4f}", f"{row['bytes_per_rank_per_step'] / 1e3:,.0f}"])
    return markdown(["GPUs per node", "efficiency", "KB received per GPU and step"], rows)


def clip_study() -> str:
    """Return the study of clip modes: samples against those of another mode, by ranks and by how much is clipped."""
    cells = {}
    for pair in read(RESULTS / "studies" / "clip.json")["comparisons"]:
        difference = pair["difference"]
        mean, low, high = (100 * difference[end] / pair["reference"] for end in ("mean", "low", "high"))
        cells[difference["arm"]] = f"{mean:+.1f} % ({low:+.1f} to {high:+.1f}), {pair['verdict'].split(':')[0]}"
    rows = [
        [str(ranks), share, cells[f"before_{ranks}_{share}"], cells[f"bucket_{ranks}_{share}"]]
        for ranks in (16, 64)
        for share in ("few", "half", "all")
    ]
    return markdown(["ranks", "clipped", "`before` against `after`", "`bucket` against `before`"], rows)


def clip_modes() -> str:
    """Return the exposed time of each clip mode."""
    by_rate: dict[float, dict[str, Any]] = {}
    for row in read(RESULTS / "bench" / "amd_epyc" / "overlap.json")["results"]:
        by_rate.setdefault(row["bandwidth_mbit"], {})[row["mode"]] = row
    rows = []
    for rate, modes in by_rate.items():
        exposed = [f"{modes[mode]['exposed_ms']:.0f}" for mode in ("before", "after", "bucket")]
        interval = f"{modes['bucket']['less_low_ms']:.0f} to {modes['bucket']['less_high_ms']:.0f}"
        rows.append([f"{rate:,.0f}", *exposed, interval])
    return markdown(["Mbit/s", "`before`", "`after`", "`bucket`", "`bucket` less than `before`"], rows)


def step_rates() -> str:
    """Return samples/s of a step on one core, by processor, size and format: ours, and those of the baselines."""
    rows = []
    for path in sorted((RESULTS / "bench").glob("*/step.json")):
        record = read(path)
        programs = record["results"]["results"]
        for fastest in fastest_baselines(record):
            alike = [row for row in programs if (row["size"], row["dtype"]) == (fastest.size, fastest.dtype)]
            (ours,) = [row for row in alike if row["name"] == OURS]
            stock = [row for row in alike if row["name"].startswith("transformers") and not row["biased"]]
            rates = [ours["samples_per_s"], max(row["samples_per_s"] for row in stock), fastest.samples_per_s]
            rows.append(
                [
                    record["processor"], f"`{fastest.size}`, {fastest.dtype}", *(f"{rate:.1f}" for rate in rates),
                    f"{fastest.ours_is.value:.2f}",
                ]
            )  # fmt: skip
    heads = ["processor", "model", "bertbench", "transformers", "fastest baseline", "bertbench over it"]
    return markdown(heads, rows)


def squad_layouts() -> str:
    """Return the tables of the record of fine-tuning in several layouts, as `lab squad` prints them."""
    record = read(RESULTS / "bench" / "amd_epyc" / "squad.json")
    return fenced(f"$ {recorded_command(record)}", *layout_tables(record["results"]))


def recorded_command(record: dict[str, Any]) -> str:
    """Return the command that made a record, with its date and its commit."""
    made = f"{record['measured']}, commit {record['commit'][:7]}, torch {record['torch']}"
    return f"{record['command']}    # {made}"


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
        demo, demo_times, like_for_like, sizes, claims, origins, squad_layouts, strata, node_sizes, clip_modes,
        batch_sizes, preparation, gpu_rates, step_rates, clip_study, slow_links,
    )
}  # fmt: skip
"""The tables that a page may show, by name."""
