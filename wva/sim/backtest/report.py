"""The recorded run beside the run of each policy: as Markdown, and as the scorecard's page with plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from wva.files import read_bounded
from wva.model.records import replace
from wva.sim.backtest.fit import FittedEngine
from wva.sim.backtest.play import AS_RECORDED
from wva.sim.backtest.scenario import Backtest
from wva.sim.scorecard import shown
from wva.sim.scorecard.card import Card, Cell

DOCUMENT: Final = "backtest.json"
_decoder: Final = msgspec.json.Decoder(Backtest)
_FIGURES: Final = (
    "attainment",
    "ttft_attainment",
    "failed_share",
    "cost",
    "mean_replicas",
    "peak_replicas",
    "reversals",
)
_COLUMNS: Final = tuple(column for column in shown.COLUMNS if column.figure in _FIGURES)


_MOST_BYTES: Final = 256 * 1024**2


def keep(backtest: Backtest, folder: Path) -> None:
    """Write the backtest to the folder. Raises OSError."""
    text = msgspec.json.format(msgspec.json.encode(backtest), indent=1)
    (folder / DOCUMENT).write_bytes(text)


def read(folder: Path) -> Backtest:
    """Return the backtest that ``keep`` wrote. Raises OSError and msgspec.DecodeError."""
    return _decoder.decode(read_bounded(folder / DOCUMENT, _MOST_BYTES))


def write(backtest: Backtest, result: Card, folder: Path, *, name: str, more: Sequence[str] = ()) -> list[Path]:
    """Write the page and the summary, which begins with the lines of ``more``, and return their paths."""
    from wva.sim.scorecard.page import html  # noqa: PLC0415 - plotly, which only this needs

    page, summary = folder / f"{name}.html", folder / f"{name}.md"
    page.write_text(html(replace(result, notes=(*result.notes, *_page_notes(backtest)))), encoding="utf-8")
    summary.write_text("\n".join(markdown(backtest, result, more)), encoding="utf-8")
    return [page, summary]


def markdown(backtest: Backtest, result: Card, more: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of the summary."""
    yield f"# {shown.plain(result.title)}"
    yield ""
    yield f"{_when(backtest.start)} to {_when(backtest.start + backtest.traffic.duration_seconds)}"
    yield ""
    yield from more
    yield "## What really ran"
    yield ""
    yield from _really(backtest)
    yield ""
    yield "## What each policy would have run"
    yield ""
    yield from _table(result)
    yield ""
    yield f'The row "{AS_RECORDED}" plays the replicas that really ran. Compare it with the section above, to see how'
    yield "far the simulation can be trusted for this history."
    yield ""
    yield "## How well the engines fit"
    yield ""
    for fit in backtest.fits:
        yield from _fit(fit)
    if backtest.notes:
        yield "## Assumed"
        yield ""
        yield from (f"- {shown.plain(note)}" for note in backtest.notes)


def _really(backtest: Backtest) -> Iterator[str]:
    reality = backtest.reality
    hours = ", ".join(f"{shown.plain(name)} {value:.1f}" for name, value in reality.replica_hours.items())
    yield f"- requests: {reality.requests:,.0f}"
    yield f"- cost: {reality.cost:,.1f} ({sum(reality.replica_hours.values()):.1f} replica-hours: {hours})"
    yield f"- replicas: {reality.mean_replicas:.1f} on average, {reality.peak_replicas} at most"
    if reality.ttft_share is not None and reality.ttft_seconds is not None:
        yield f"- first token within {reality.ttft_seconds:g} s: {shown.share(reality.ttft_share)} of those answered"


def _table(result: Card) -> Iterator[str]:
    (part,) = result.parts
    yield f"| policy | {' | '.join(column.heading for column in _COLUMNS)} |"
    yield f"|---|{'---|' * len(_COLUMNS)}"
    for cell in part.cells:
        figures = " | ".join(shown.figure(cell, column) for column in _COLUMNS)
        yield f"| {_name(cell, part.winner)} | {figures} |"


def _name(cell: Cell, winner: str) -> str:
    name = shown.plain(cell.policy)
    return f"**{name}**" if cell.policy == winner else name


def _fit(fit: FittedEngine) -> Iterator[str]:
    engine = fit.parameters
    yield (
        f"**{shown.plain(fit.variant)}**: a step takes {engine.alpha_seconds * 1e3:.3g} ms + "
        f"{engine.beta_seconds_per_sequence * 1e6:.3g} us per sequence + "
        f"{engine.kv_read_seconds_per_token * 1e9:.3g} ns per token in the KV cache + "
        f"{engine.prefill_seconds_per_token * 1e6:.3g} us per prompt token; {engine.kv_cache_tokens:,} tokens of KV "
        f"cache, {engine.max_num_seqs} slots. From {fit.samples:,} windows, beginning at {fit.prior}."
    )
    yield ""
    if fit.errors:
        yield "| signal | windows | median error | bias |"
        yield "|---|---|---|---|"
        for error in fit.errors:
            yield f"| {error.signal} | {error.samples:,} | {error.error:.1%} | {error.bias:+.1%} |"
        yield ""
    yield from (f"- {shown.plain(note)}" for note in fit.notes)
    if fit.notes:
        yield ""


def _page_notes(backtest: Backtest) -> Iterator[str]:
    reality = backtest.reality
    yield (
        f"What really ran from {_when(backtest.start)} on: cost {reality.cost:,.1f}, {reality.mean_replicas:.1f} "
        f"replicas on average, {reality.peak_replicas} at most."
    )
    worst = max((error.error for fit in backtest.fits for error in fit.errors), default=None)
    if worst is not None:
        yield f"Engines are fitted to the history. The median error of the signal that fits worst is {worst:.1%}."


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
