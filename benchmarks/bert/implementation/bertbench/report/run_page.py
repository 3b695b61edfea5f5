"""Draw the page of a run in a terminal, with rich: numbers, curves, where the time goes, ranks."""

from collections.abc import Iterator
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bertbench.common.mlperf import accuracy_text
from bertbench.report.run_reading import FollowedRun
from bertbench.report.run_state import RunState
from bertbench.report.terminal_plot import plot
from bertbench.run_files.reading import accuracies, thinned

_CURVE_LINES = 9
_COLOURS = {"start-up": "magenta", "steps": "green", "waiting for data": "red", "evaluation": "cyan", "other": "yellow"}
_TONES = {"success": "bold green", "running": "bold cyan", "aborted": "bold red", "interrupted": "bold yellow"}


def page(state: RunState, run: FollowedRun, width: int) -> RenderableType:
    """Return the page, for a terminal of `width` letters."""
    loss = [(float(step), row["loss"]) for step, row in run.rows.items() if "loss" in row]
    half = width // 2
    drawn = (
        ("loss by step", plot(thinned(loss), half - 4, _CURVE_LINES)),
        ("accuracy by samples, target dashed", plot(accuracies(run.facts), half - 4, _CURVE_LINES, state.target)),
    )
    curves = Table.grid()
    panels = [
        Panel(Text("\n".join(lines)), title=title, title_align="left", width=half) for title, lines in drawn if lines
    ]
    curves.add_row(*panels)
    return Group(
        Panel(Group(*_summary(state)), title=Text(state.name, style="bold"), title_align="left", width=2 * half),
        curves if panels else Text(" no step was recorded yet", style="dim"),
        *_phases(state, 2 * half - 2),
        *_ranks(state),
    )


def _summary(state: RunState) -> Iterator[Text]:
    first = Text.assemble((state.status, _TONES.get(state.status, "bold")))
    first.append(f"   seed {_shown(state.seed)}   commit {state.commit or '-'!s:.7}")
    first.append(f"   on the clock {duration(state.elapsed_s)}")
    if state.status in ("running", "unfinished"):
        first.append(f"   last wrote {duration(state.silent_s)} ago")
    yield first
    steps = f"step {state.step:,}" + (f" of at most {state.max_steps:,}" if state.max_steps else "")
    yield Text(f"{steps}   {state.samples:,.0f} samples   {_shown(state.samples_per_s, '{:,.0f}')} samples/s recently")
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
    found = state.target_forecast
    if found is None or state.target_s is None:
        return "target: no forecast yet"
    between = "" if found.low == found.high else f" ({found.low:,.0f} to {found.high:,.0f})"
    return f"target in about {duration(state.target_s)}, at {found.samples:,.0f} samples{between}, by {found.basis}"


def _phases(state: RunState, width: int) -> Iterator[RenderableType]:
    total = sum(state.phases_s.values())
    if not total:
        return
    bar, legend = Text(" "), Text(" ")
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
            note = f"the others wait for it: slow in {state.straggler_phase}"
        yield Text(f"   rank {rank.rank}   pid {rank.pid}   {note}", style="yellow" if note else "")


def _shown(value: float | None, form: str = "{}") -> str:
    return "-" if value is None else form.format(value)


def duration(seconds: float | None) -> str:
    """Return a time as hours, minutes and seconds."""
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))
