"""Make report pages. Each is one file, without scripts or external resources, in the reader's light or dark mode.

A page is `page(title, section(heading, part, ...), ...)`. Parts are HTML: `paragraph`, `html_table`, and `panels` of
charts from `bertbench.report.charts`. Every function escapes its text, except arguments that are documented as HTML.
"""

import re
from collections.abc import Sequence

from bertbench.common.markup import escape

_LIGHT = (
    "#1b6ca8", "#d9480f", "#2b8a3e", "#9c36b5", "#b08900", "#0b7285", "#c2255c", "#5f6770", "#7a4a21", "#4338ca",
)  # fmt: skip
_DARK = (
    "#6cb6f5", "#ff9561", "#74d089", "#dc8df0", "#e6c34a", "#5fd0e3", "#ff8ab1", "#aeb6bf", "#c9a27e", "#a5a0ff",
)  # fmt: skip

_LONGEST_VALUE = 40  # characters; a longer cell is a text
_CODE = re.compile(r"`([^`]+)`")

# Browsers refuse anything outside the file itself, so text from a log can neither load nor run anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #5a636e; --rule: #d8dee4; --panel: #f6f8fa;
  --shade: rgb(0 0 0 / .3);
  --bad: #b3261e; --good: #1a7f37; LIGHT }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --ink: #e6e9ec; --soft: #a3acb6; --rule: #363d45; --panel: #1c2127;
    --shade: rgb(255 255 255 / .35);
    --bad: #ff8a80; --good: #6fd58a; DARK }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
h2 { font-size: 1.25rem; border-bottom: 1px solid var(--rule); padding-bottom: .2rem; margin: 2rem 0 .8rem; }
a { color: var(--series-0); }
code { font: .9em ui-monospace, monospace; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.panels { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }
figure { margin: 0; padding: .8rem; background: var(--panel); border: 1px solid var(--rule); border-radius: .4rem; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 13px system-ui, sans-serif; fill: var(--soft); }
svg .strong { font-weight: 700; fill: var(--ink); } svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--rule); } svg .level { stroke: var(--ink); stroke-dasharray: 4 4; }
svg [class^=line] { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .pattern-1 { stroke-dasharray: 7 3; } svg .pattern-2 { stroke-dasharray: 2 3; }
SERIES
svg circle:not(.pattern-0) { fill: var(--panel); stroke-width: 1.4; stroke-dasharray: none; }
figure ul { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .5rem 0 0; padding: 0; list-style: none;
  font-size: .85rem; }
figure i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px;
  background: currentColor; }
figure i:not(.pattern-0) { background: none; border: 2px dashed; } figure i.pattern-2 { border-style: dotted; }
/* A shadow marks an edge beyond which a table continues; at the end of the table a layer that scrolls covers it. */
.scroll { overflow-x: auto; background:
  linear-gradient(to left, var(--paper) 1.2rem, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--shade), transparent) right / 1.2rem 100% no-repeat scroll var(--paper); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .7rem .25rem 0; text-align: left; border-bottom: 1px solid var(--rule); white-space: nowrap;
  vertical-align: top; }
th:not(:first-child), td:not(:first-child) { text-align: right; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
th.text, td.text:not(:first-child) { text-align: left; }
td.text { white-space: normal; min-width: 14rem; max-width: 32rem; }
td.text:first-child { min-width: 0; max-width: min(32rem, 45vw); } /* the first column must not cover the others */
"""


def page(title: str, *sections: str) -> str:
    """Return the whole file; `sections` are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n{''.join(sections)}</main></body></html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """Return a heading and its content; `parts` are HTML."""
    return f"<section><h2>{escape(heading)}</h2>\n{''.join(parts)}</section>\n"


def heading(text: str) -> str:
    """Return a heading within a section."""
    return f"<h3>{escape(text)}</h3>\n"


def paragraph(text: str, tone: str = "") -> str:
    """Return a paragraph, or nothing if there is no text; `tone` is "soft", "good" or "bad".

    Text in backticks becomes code.
    """
    if not text:
        return ""
    kind = f' class="{tone}"' if tone else ""
    content = _CODE.sub(r"<code>\1</code>", escape(text))
    return f"<p{kind}>{content}</p>\n"


def panels(*charts: str) -> str:
    """Return charts in a grid that fits the width; `charts` are HTML."""
    return f'<div class="panels">{"".join(charts)}</div>\n'


def html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", links: Sequence[str] = ()
) -> str:
    """Return a table. All columns except the first are right-aligned, but for long texts, which wrap.

    The first column stays visible when the table scrolls.

    `links` holds an address for each row, to which the cell in the first column is linked.
    """
    kinds = []
    for column in range(len(header)):
        longest = max((len(row[column]) for row in rows), default=0)
        kinds.append(' class="text"' if longest > _LONGEST_VALUE else "")
    head = "".join(f'<th scope="col"{kind}>{escape(cell)}</th>' for kind, cell in zip(kinds, header, strict=True))
    names = [escape(row[0]) for row in rows]
    if links:
        names = [f'<a href="{escape(link)}">{name}</a>' for link, name in zip(links, names, strict=True)]
    body = ""
    for name, row in zip(names, rows, strict=True):
        values = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds[1:], row[1:], strict=True))
        body += f"<tr><td{kinds[0]}>{name}</td>{values}</tr>\n"
    label = escape(caption or header[0])
    return (
        f'{paragraph(caption, "soft")}<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n"
    )


def _style() -> str:
    series = "\n".join(
        f"svg .line-{n} {{ stroke: var(--series-{n}); }} svg .fill-{n} {{ fill: var(--series-{n}); "
        f"stroke: var(--series-{n}); stroke-width: 0; }} figure .swatch-{n} {{ color: var(--series-{n}); }}"
        for n in range(len(_LIGHT))
    )
    return _STYLE.replace("LIGHT", _variables(_LIGHT)).replace("DARK", _variables(_DARK)).replace("SERIES", series)


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--series-{n}: {colour};" for n, colour in enumerate(colours))
