"""Make report pages. Each is one file, without scripts or external resources.

A page is `page(title, section(heading, part, ...), ...)`. Parts are HTML: `paragraph`, `html_table`, `legend`, and
`panels` of figures. Every function escapes its text, except arguments that are documented as HTML or SVG.
"""

import re
from base64 import b64encode
from collections.abc import Sequence

from bertbench.common.markup import escape
from bertbench.runs.figures import Look

_LONGEST_VALUE = 40  # characters; a longer cell is a text
_CODE = re.compile(r"`([^`]+)`")

# Browsers refuse anything outside the file itself, so text from a log can neither load nor run anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_STYLE = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1rem; background: #fff; color: #1b1f24;
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
h2 { font-size: 1.25rem; border-bottom: 1px solid #d8dee4; padding-bottom: .2rem; margin: 2rem 0 .8rem; }
a { color: #1b6ca8; }
code { font: .9em ui-monospace, monospace; }
.soft { color: #5a636e; } .good { color: #1a7f37; } .bad { color: #b3261e; }
.panels { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 1rem 0; padding: .8rem; border: 1px solid #d8dee4; border-radius: .4rem; }
.panels figure { margin: 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
figure img { display: block; width: 100%; height: auto; }
figure .wide { min-width: 36rem; max-width: 48rem; }
ul.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .5rem 0; padding: 0; list-style: none;
  font-size: .9rem; }
.legend i { display: inline-block; width: 1.6em; margin: 0 .4em .25em 0; border-top: 3px; }
/* A shadow marks an edge beyond which a table continues; at the end of the table a layer that scrolls covers it. */
.scroll { overflow-x: auto; background:
  linear-gradient(to left, #fff 1.2rem, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to left, rgb(0 0 0 / .3), transparent) right / 1.2rem 100% no-repeat scroll #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .7rem .25rem 0; text-align: left; border-bottom: 1px solid #d8dee4; white-space: nowrap;
  vertical-align: top; }
th:not(:first-child), td:not(:first-child) { text-align: right; }
th:first-child, td:first-child { position: sticky; left: 0; background: #fff; }
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
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
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


def panels(*figures: str) -> str:
    """Return figures in a grid that fits the width; `figures` are HTML."""
    return f'<div class="panels">{"".join(figures)}</div>\n'


def figure(title: str, drawing: str, wide: bool = False) -> str:
    """Return a drawing with its title; `drawing` is the text of an SVG. A `wide` one scrolls in a narrow window.

    The drawing is an image of its own, in which nothing can run, and whose names don't meet those of others.
    """
    source = b64encode(drawing.encode()).decode()
    shown = f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{source}"{" class=wide" if wide else ""}>'
    if wide:
        shown = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">{shown}</div>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{shown}</figure>\n"


def legend(names: Sequence[tuple[str, Look]]) -> str:
    """Return the names of runs beside the lines with which the figures draw them; nothing for a single run."""
    if len(names) < 2:
        return ""
    entries = [
        f'<li><i style="border-top-style: {look.pattern}; border-top-color: {look.colour}"></i>{escape(name)}</li>'
        for name, look in names
    ]
    return f'<ul class="legend">{"".join(entries)}</ul>\n'


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
