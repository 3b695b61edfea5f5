"""Derive the pages' claims from the records in results/: one row each, with figure, interval, command and record."""

import math
import re
import statistics
from collections.abc import Iterator
from itertools import chain
from typing import Any

from bertbench.common.intervals import holm, p_value
from bertbench.common.tables import markdown
from bertbench.runs.run_summary import read_summary
from docs.site.records import RESULTS, link, read

_STUDIES = ("clip", "buckets", "compression", "adam_and_lamb")
"""Studies that compare samples in pairs of runs."""
OPTIMIZER_STUDY = RESULTS / "studies" / "optimizer.json"
_OPTIMIZERS = {"lamb": "LAMB", "muon": "Muon"}
_STARTS = {"start random": "from random weights", "start checkpoint": "from a checkpoint"}
_COMPARING_LINE = re.compile(r"^.*(?:\d x (?:\(.*\) )?(?:as fast|the samples/s)|times the samples/s).*", re.MULTILINE)
"""A line of a bench that compares two programs."""
_COMPARISON = re.compile(r"(\d+\.\d+) (x|times)(?: \((\S+) to (\S+).*?\))?")
"""The figure in such a line, its unit, and the ends of its interval if it has one."""

Rows = Iterator[list[str]]
"""The cells of each row of a table."""


def claims() -> str:
    """Return the claims that follow from the records of the demo, the benches and the studies."""
    rows = [
        *_demo_claims(),
        *_bench_claims(),
        *_overlap_claims(),
        *_format_claims(),
        *(row for name in _STUDIES for row in _study_claims(name)),
    ]
    heads = ["claim", "figure (95 % interval)", "seeds", "shown", "command", "record"]
    return markdown(heads, [*rows, *_optimizer_claims()])


def _demo_claims() -> Rows:
    logs = sorted((RESULTS / "cpu_demo" / "bert").glob("result_*.txt"))
    runs = [*map(read_summary, logs)]
    seconds = [run.time_to_train_s or 0 for run in runs]
    samples = [run.samples or 0 for run in runs]
    for claim, values, form in (("seconds", seconds, ".1f"), ("samples", samples, ",.0f")):
        figure = f"{statistics.mean(values):{form}} (range {min(values):{form}} to {max(values):{form}})"
        command = f"`./run_and_time.sh cpu_demo --runs {len(runs)}`"
        record = link(logs[0].parent)
        yield [f"The demo's {claim} to its target", figure, str(len(runs)), "mean and range", command, record]


def _bench_claims() -> Rows:
    for path in sorted((RESULTS / "bench").glob("*/*.json")):
        record = read(path)
        seeds = str(record["results"][0].get("runs", 1)) if path.stem == "train" else "-"
        for printed_table in "\n".join(record["printed"]).split("\n\n"):
            size = printed_table.split("  ")[0] + ": " if path.stem == "step" else ""
            for line in _COMPARING_LINE.findall(printed_table):
                comparison = _COMPARISON.search(line)
                assert comparison, line
                figure, unit, low, high = comparison.groups()
                interval = f" ({low} to {high})" if low else ""
                claim = " ".join(f"{path.stem}: {size}{line.replace(comparison[0], '...', 1)}".split())
                shown = "no interval recorded"
                if low:
                    shown = _shown(float(low) <= 1 <= float(high))
                yield [claim, f"{figure} {unit}{interval}", seeds, shown, f"`{record['command']}`", link(path)]


def _overlap_claims() -> Rows:
    """Yield by how much each mode exposes less than `before`; the intervals of a record hold jointly at 95 %."""
    for path in sorted((RESULTS / "bench").glob("*/overlap.json")):
        record = read(path)
        for row in record["results"]:
            if row["less_ms"] is None:  # `before` itself
                continue
            low = row["less_low_ms"]
            high = row["less_high_ms"]
            where = f"{row['bandwidth_mbit']:,.0f} Mbit/s"
            claim = f"overlap: milliseconds that `{row['mode']}` exposes less than `before`, {where}"
            figure = f"{row['less_ms']:.0f} ({low:.0f} to {high:.0f})"
            yield [claim, figure, "-", _shown(low <= 0 <= high), f"`{record['command']}`", link(path)]


def _format_claims() -> Rows:
    """Yield the samples that a number format needs over those of another."""
    paths = chain.from_iterable(sorted((RESULTS / "bench").glob(f"*/{name}.json")) for name in ("fp8", "residual"))
    for path in paths:
        record = read(path)
        result = record["results"]
        claim = f"Samples of {result['setting']} {result['changed']} over those of {result['baseline']}"
        figure = f"{result['ratio']:.3f} ({result['low']:.3f} to {result['high']:.3f})"
        shown = _shown(result["low"] <= 1 <= result["high"] or result["missed"] > 0)
        yield [claim, figure, str(len(result["pairs"])), shown, f"`{record['command']}`", link(path)]


def _study_claims(name: str) -> Rows:
    path = RESULTS / "studies" / f"{name}.json"
    study = read(path)
    for pair in (*study["comparisons"], *study["at_equal_values"]):
        difference = pair["difference"]
        mean, low, high = (100 * difference[end] / pair["reference"] for end in ("mean", "low", "high"))
        values = f"both at the values of `{pair['values_of']}`" if "values_of" in pair else "each at its own values"
        ranks = f", {pair['ranks']} ranks, {values}" if "ranks" in pair else ""
        claim = f"Samples of `{difference['arm']}` minus those of `{difference['against']}`{ranks}"
        figure = f"{mean:+.1f} % ({low:+.1f} to {high:+.1f})"
        shown = _shown(pair["holm_p"] > 0.05 or pair["missed"] > 0)
        yield [claim, figure, str(pair["seeds"]), shown, f"`bertbench lab study {name}`", link(path)]


def _optimizer_claims() -> Rows:
    study = read(OPTIMIZER_STUDY)
    arms = {arm["arm"]: arm for arm in study["arms"]}
    batches = study["definition"]["cells"]["batch"]
    seeds = study["arms"][0]["seeds"]
    where = ["`bertbench lab study optimizer`", link(OPTIMIZER_STUDY)]
    pairs = {(pair["arm"], pair["cells"]): pair for pair in study["pooled"]}
    chosen = [pairs[arm, cells] for arm in _OPTIMIZERS for cells in _STARTS]
    p_values = holm([_p_value_of(study, pair) for pair in chosen])
    for pair, corrected in zip(chosen, p_values, strict=True):
        samples = f"{pair['samples']:.2f} ({pair['low']:.2f} to {pair['high']:.2f})"
        seconds = f"{pair['seconds']:.2f} ({pair['seconds_low']:.2f} to {pair['seconds_high']:.2f})"
        claim = f"Samples of {_OPTIMIZERS[pair['arm']]} over ADAM's, {_STARTS[pair['cells']]}"
        shown = _shown(corrected > 0.05 or pair["verdict"].startswith("not decided"))
        yield [claim, f"{samples}; seconds {seconds}", f"{seeds} x {pair['counted']} cells", shown, *where]
    shares_of_decay = sorted(
        row["samples_to_target"] / arms[row["arm"]]["values"]["decay_samples"]
        for row in study["rows"]
        if row["reached"]
    )
    tenth, *_, last = statistics.quantiles(shares_of_decay, n=10)
    figure = f"{statistics.median(shares_of_decay):.2f} (eight of ten runs: {tenth:.2f} to {last:.2f})"
    yield ["Optimizers: samples to the target over those of the decay", figure, str(seeds), "median", *where]
    evaluations = min(
        arm["samples_to_target"] / batches[arm["batch"]]["evaluation.interval_samples"] for arm in arms.values()
    )
    least = "smallest mean of a configuration"
    yield ["Optimizers: evaluations to the target", f"{evaluations:.0f}", str(seeds), least, *where]
    edges = sum(len(tuned["at_edge"]) for tuned in study["tuned"])
    values = sum(len(arm["values"]) for arm in arms.values())
    yield ["Optimizers: tuned values at the edge of their range", f"{edges} of {values}", "-", "counted", *where]


def _p_value_of(study: dict[str, Any], pair: dict[str, Any]) -> float:
    """Return the p-value of a mean over cells: that their ratios differ from 1 as much by chance (Student's t)."""
    level = pair["cells"].rpartition(" ")[2]
    cells = [
        compared
        for compared in study["comparisons"]
        if compared["kind"] == pair["arm"] and level in compared["difference"]["arm"].split("_")
    ]
    assert len(cells) == pair["counted"], pair
    return p_value([math.log(compared["ratio"]) for compared in cells])


def _shown(undecided: bool) -> str:
    return "no significant difference" if undecided else "yes"
