"""Draw a pipeline's first recorded step: a row for each rank, a bar for each pass; gaps are the bubble."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertbench.common.markup import escape
from bertbench.config.layout import bubble_share
from bertbench.run_files.json_files import read_json
from bertbench.run_files.run_settings import configured
from compliance.read.run import as_integer, number

_WIDTH = 840.0
_LEFT = 60.0
_LINE = 26.0
_BAR = 20.0
_COLOURS = {"forward": 0, "backward": 1}
_MOST_BARS = 4000


def equal_stages_bubble(log: Path) -> float | None:
    """Return the bubble of a run's pipeline by the formula; None without a pipeline."""
    settings = configured(log)
    names = ("pipeline", "microbatches", "virtual_stages")
    sizes = [as_integer(settings.get(f"parallel.{name}")) for name in names]
    pipeline, microbatches, virtual_stages = sizes
    if pipeline is None or microbatches is None or virtual_stages is None or pipeline < 2 or microbatches < 1:
        return None
    return bubble_share(pipeline, microbatches, max(1, virtual_stages))


def pipeline_chart(log: Path) -> str:
    """Return the chart as HTML; empty if the run recorded nothing that can be drawn."""
    bars = [*_bars(read_json(log, "pipeline.json"))]
    if not bars:
        return ""
    step = bars[0]["step"]
    bars = [bar for bar in bars if bar["step"] == step][:_MOST_BARS]
    begin = min(bar["began"] for bar in bars)
    length = max(bar["ended"] for bar in bars) - begin
    ranks = 1 + max(bar["rank"] for bar in bars)
    if length <= 0:
        return ""
    scale = (_WIDTH - _LEFT) / length
    shapes = [f'<text x="0" y="{_LINE * rank + 15:.1f}" class="start">rank {rank}</text>' for rank in range(ranks)]
    for bar in bars:
        left = _LEFT + scale * (bar["began"] - begin)
        text = f"{bar['kind']} of microbatch {bar['microbatch']}, stage {bar['stage']}"
        shapes.append(
            f'<rect x="{left:.2f}" y="{_LINE * bar["rank"]:.1f}" width="{scale * (bar["ended"] - bar["began"]):.2f}" '
            f'height="{_BAR:.0f}" class="fill-{_COLOURS[bar["kind"]]}" fill-opacity="{_shade(bar["stage"], ranks)}">'
            f"<title>{escape(text)}</title></rect>"
        )
    title = f"A step of the pipeline, {length:.1f} ms; gaps are its bubble ({log.stem})"
    legend = "".join(f'<li><i class="swatch-{colour}"></i>{kind}</li>' for kind, colour in _COLOURS.items())
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH:.0f} {_LINE * ranks:.0f}" role="img" aria-label="{escape(title)}">'
        f"{''.join(shapes)}</svg><ul>{legend}</ul></figure>\n"
    )


def _shade(stage: int, ranks: int) -> float:
    """Return the opacity of a pass; later stages of a rank are paler."""
    return round(max(0.35, 1 - 0.25 * (stage // ranks)), 2)


def _bars(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the passes in pipeline.json that can be drawn; anybody may have edited the file."""
    rows = content.get("spans")
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, list) or len(row) != 7 or row[1] not in _COLOURS:
            continue
        rank, kind, step, stage, microbatch, began, ended = row
        places = [as_integer(value) for value in (rank, step, stage, microbatch)]
        times = [number(value) for value in (began, ended)]
        if None in places or None in times or not 0 <= rank < 1000:
            continue
        yield {
            "rank": rank, "kind": kind, "step": step, "stage": stage, "microbatch": microbatch,
            "began": began, "ended": ended,
        }  # fmt: skip
