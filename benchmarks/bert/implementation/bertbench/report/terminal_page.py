"""Draw a run as a page in a terminal, by rich: numbers, curves, where the time goes, ranks."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bertbench.common.evaluation import accuracy_text
from bertbench.report.followed_run import FollowedRun
from bertbench.report.run_state import RunState
from bertbench.run_files.json_files import thinned
from bertbench.run_files.sample_counts import accuracy_curve

_CURVE_LINES = 9
_LABEL = 7  # characters of a label to the left of a curve
_COLOURS = {"start-up": "magenta", "steps": "green", "waiting for data": "red", "evaluation": "cyan", "other": "yellow"}
_TONES = {"success": "bold green", "running": "bold cyan", "aborted": "bold red", "interrupted": "bold yellow"}


def terminal_page(state: RunState, run: FollowedRun, width: int) -> RenderableType:
    """Return the page for a terminal that is `width` characters wide."""
    half = width // 2
    summary = Group(*_summary(state))
    return Group(
        Panel(summary, title=Text(state.name, style="bold"), title_align="left", width=2 * half),
        _curves(state, run, half),
        *_phases(state, 2 * half - 2),
        *_ranks(state),
    )


def _curves(state: RunState, run: FollowedRun, width: int) -> RenderableType:
    """Return a panel, `width` characters wide, for each curve that has points."""
    losses = thinned([(float(step), row["loss"]) for step, row in run.rows.items() if "loss" in row])
    inside = width - 4
    curves = {
        "loss by step": plot(losses, inside, _CURVE_LINES),
        "accuracy by samples, target dashed": plot(accuracy_curve(run.facts), inside, _CURVE_LINES, state.target),
    }
    panels = []
    for title, lines in curves.items():
        if lines:
            panels.append(Panel(Text("\n".join(lines)), title=title, title_align="left", width=width))
    if not panels:
        return Text(" no step has been recorded yet", style="dim")
    grid = Table.grid()
    grid.add_row(*panels)
    return grid


def plot(points: Sequence[tuple[float, float]], width: int, height: int, level: float | None = None) -> list[str]:
    """Draw a `*` for each point, in `height` lines of `width` characters, with y labels and a dashed `level`."""
    if not points:
        return []
    heights = [y for _, y in points]
    if level is not None:
        heights.append(level)
    left, right = _range([x for x, _ in points])
    low, high = _range(heights)
    columns = max(1, width - _LABEL - 1)
    canvas = [[" "] * columns for _ in range(height)]

    def line_of(y: float) -> list[str]:
        return canvas[round((high - y) / (high - low) * (height - 1))]

    if level is not None:
        line_of(level)[:] = "-" * columns
    for x, y in points:
        column = round((x - left) / (right - left) * (columns - 1))
        line_of(y)[column] = "*"
    labels = {0: f"{high:.3g}", height - 1: f"{low:.3g}"}
    return [f"{labels.get(line, ''):>{_LABEL}} {''.join(letters)}" for line, letters in enumerate(canvas)]


def _range(values: Sequence[float]) -> tuple[float, float]:
    low = min(values)
    high = max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _summary(state: RunState) -> Iterator[Text]:
    first = Text.assemble((state.status, _TONES.get(state.status, "bold")))
    first.append(f"   seed {_shown(state.seed)}   commit {state.commit or '-'!s:.7}")
    first.append(f"   on the clock {duration(state.elapsed_s)}")
    if state.status in ("running", "unfinished"):
        first.append(f"   last wrote {duration(state.silent_s)} ago")
    yield first
    steps = f"step {state.step:,}" + (f" of at most {state.max_steps:,}" if state.max_steps else "")
    yield Text(f"{steps}   {state.samples:,.0f} samples   {_shown(state.samples_per_s, '{:,.0f}')} samples/s recently")
    bubble = "" if state.bubble is None else f"   bubble {state.bubble:.1%}"
    rate = _shown(state.tflops_per_device, "{:.3g}")
    yield Text(f"{rate} TFLOP/s per device   MFU {_shown(state.mfu, '{:.1%}')}{bubble}")
    yield Text(
        f"loss {_shown(state.loss, '{:.4f}')}   rate {_shown(state.learning_rate, '{:.3g}')}   "
        f"gradient norm {_shown(state.grad_norm, '{:.3g}')}   clipped {_shown(state.clipped, '{:.0%}')}"
    )
    yield Text(
        f"accuracy {_accuracy(state, state.accuracy)}   best {_accuracy(state, state.best_accuracy)}   "
        f"target {_shown(state.target, '{:g}')}"
    )
    if state.status == "running":
        yield Text(f"next evaluation in {duration(state.next_evaluation_s)}")
        yield Text(_target(state))


def _accuracy(state: RunState, accuracy: float | None) -> str:
    return "-" if accuracy is None else accuracy_text(accuracy, state.target)


def _target(state: RunState) -> str:
    forecast = state.target_forecast
    if forecast is None or state.target_s is None:
        return "target: no forecast yet"
    between = "" if forecast.low == forecast.high else f" ({forecast.low:,.0f} to {forecast.high:,.0f})"
    when = f"target in about {duration(state.target_s)}, at {forecast.samples:,.0f} samples{between}"
    return f"{when}, by {forecast.basis}"


def _phases(state: RunState, width: int) -> Iterator[RenderableType]:
    total = sum(state.phases_s.values())
    if not total:
        return
    bar = Text(" ")
    legend = Text(" ")
    for name, seconds in state.phases_s.items():
        bar.append("█" * int(width * seconds / total), style=_COLOURS[name])
        legend.append("■ ", style=_COLOURS[name])
        legend.append(f"{name} {seconds / total:.1%}   ")
    yield bar
    yield legend


def _ranks(state: RunState) -> Iterator[RenderableType]:
    if state.status != "running" and not state.ranks:
        return
    expected = f" of {state.world_size}" if state.world_size else ""
    yield Text(f" ranks on this machine: {len(state.ranks)}{expected}")
    for rank in state.ranks:
        note = {"T": "stopped", "D": "waits for a disk"}.get(rank.state, "")
        if rank.rank == state.straggler:
            note = f"straggler: slow in {state.straggler_phase}"
        yield Text(f"   rank {rank.rank}   pid {rank.pid}   {note}", style="yellow" if note else "")


def _shown(value: float | None, form: str = "{}") -> str:
    return "-" if value is None else form.format(value)


def duration(seconds: float | None) -> str:
    """Return a time as hours, minutes and seconds."""
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))
