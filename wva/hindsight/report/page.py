"""A report as one HTML file: tables, and bars that are drawn here. It needs no script, no other file and no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Final

from wva.hindsight.report.days import ShadowReport, Table, TableLine, number
from wva.hindsight.report.text import NO_SAMPLES, cells_of
from wva.hindsight.shadow import RealAndShadow, ShadowFigures

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_HEIGHT: Final = 120.0
_BAR: Final = 14.0
_STEP: Final = 40.0
_STYLE: Final = """
:root {
  color-scheme: light dark;
  --ink: #1b1f24; --quiet: #57606a; --paper: #fff; --line: #d0d7de; --real: #6e7781; --wva: #0969da;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --quiet: #9da7b3; --paper: #0d1117; --line: #30363d; --real: #8b949e; --wva: #58a6ff; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; overflow-wrap: anywhere; }
.quiet, figcaption { color: var(--quiet); overflow-wrap: anywhere; }
.lead { font-size: 1.15rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .45rem; text-align: right; }
tbody th { background: var(--paper); font-weight: normal; left: 0; position: sticky; text-align: left; }
tbody tr:last-child > * { font-weight: 600; }
td.none { color: var(--quiet); text-align: left; }
.plots { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); }
figure { margin: 0; }
svg { height: 9rem; width: 100%; }
.real { fill: var(--real); }
.wva { fill: var(--wva); }
.axis { stroke: var(--line); }
.key { display: inline-block; height: .8em; margin: 0 .3em 0 .8em; width: .8em; }
.key.real { background: var(--real); margin-left: 0; }
.key.wva { background: var(--wva); }
"""


def html(report: ShadowReport) -> str:
    """Return the whole page."""
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>What WVA would have run</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(report: ShadowReport) -> Iterator[str]:
    yield "<main><h1>What really ran, and what WVA would have run</h1>"
    yield f'<p class="quiet">{escape(f"{report.span} (days of UTC), from {report.source}")}</p>'
    yield f'<p class="lead">{escape(report.headline())}</p>'
    yield '<p><span class="key real"></span>really ran <span class="key wva"></span>WVA would have run'
    yield '<span class="quiet">; a gap is a day without samples or estimate</span></p>'
    yield '<div class="plots">'
    yield from _bars("GPU-hours", report.overall, lambda figures: figures.gpu_hours)
    yield from _bars("Cost", report.overall, lambda figures: figures.cost)
    yield from _bars(
        "Late requests", report.overall, lambda figures: None if figures.late is None else figures.late.requests
    )
    yield "</div>"
    for table in report.tables():
        title = escape(table.title)
        yield f'<h2>{title}</h2><div class="wide" tabindex="0" role="region" aria-label="{title}">'
        yield '<table><thead><tr><td></td><th scope="col">hours</th>'
        yield '<th scope="colgroup" colspan="3">GPU-hours</th><th scope="colgroup" colspan="3">cost</th>'
        yield '<th scope="colgroup" colspan="4">late requests</th></tr><tr><td></td><th scope="col">seen</th>'
        yield '<th scope="col">real</th><th scope="col">WVA</th><th scope="col">difference</th>' * 3
        yield '<th scope="col">error</th></tr></thead><tbody>'
        for line in (*table.lines, TableLine("sum", table.sum)):
            yield f'<tr><th scope="row">{escape(line.name)}</th>'
            if line.figures is None:
                yield f'<td class="none" colspan="11">{NO_SAMPLES}</td>'
            else:
                yield "".join(f"<td>{cell}</td>" for cell in cells_of(line.figures))
            yield "</tr>"
        yield "</tbody></table></div>"
    yield "<h2>What the numbers are not</h2><ul>"
    yield from (f"<li>{escape(remark)}</li>" for remark in report.remarks())
    yield "</ul></main>"


def _bars(name: str, table: Table, pick: Callable[[ShadowFigures], RealAndShadow | None]) -> Iterator[str]:
    """Draw two bars for each day; a day without samples has none, and its tooltip says so."""
    pairs = [(line.name, None if line.figures is None else pick(line.figures)) for line in table.lines]
    highest = max((max(pair.real, pair.shadow) for _, pair in pairs if pair is not None), default=0.0)
    width = _STEP * len(pairs)
    text = f"{name} by day; the table below has the numbers"
    yield f'<figure><svg viewBox="0 0 {width:g} {_HEIGHT:g}" preserveAspectRatio="none" role="img" aria-label="{text}">'
    for index, (day, pair) in enumerate(pairs):
        left = index * _STEP + (_STEP - 2 * _BAR) / 2
        tooltip = f"not known, {day}" if pair is None else f"{day}: {number(pair.real)} real, {number(pair.shadow)} WVA"
        yield f"<g><title>{escape(tooltip)}</title>"
        yield f'<rect x="{index * _STEP:g}" y="0" width="{_STEP:g}" height="{_HEIGHT:g}" fill="transparent"/>'
        if pair is not None and highest > 0:
            for offset, (kind, value) in enumerate((("real", pair.real), ("wva", pair.shadow))):
                height = (_HEIGHT - 2) * value / highest
                position = f'x="{left + offset * _BAR:g}" y="{_HEIGHT - 1 - height:.2f}" width="{_BAR - 1:g}"'
                yield f'<rect class="{kind}" {position} height="{height:.2f}"/>'
        yield "</g>"
    yield f'<line class="axis" x1="0" x2="{width:g}" y1="{_HEIGHT - 0.5:g}" y2="{_HEIGHT - 0.5:g}"/></svg>'
    scale = "no estimate" if all(pair is None for _, pair in pairs) else f"highest: {number(highest)} a day"
    yield f"<figcaption>{name}, {scale}</figcaption></figure>"
