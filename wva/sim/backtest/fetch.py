"""Range queries about one model, in chunks. Each chunk is kept in a file and is not queried again.

The Prometheus belongs to the user and is in use. So there is one query at a time, a pause after each, and a longer
pause after a failure. A query whose answer is too large or takes too long is sent again for each half of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from wva.clock import Clock
from wva.files import read_bounded
from wva.prometheus.answers import ErrorKind, PrometheusError, RangeQuerier, RangeSeries
from wva.sim.backtest.queries import VISIBLE_MODELS, queries

POINTS_PER_QUERY: Final = 480
MAX_POINTS: Final = 20_000
"""The most points of a history: a week at 30 s."""
MAX_SERIES: Final = 20_000
"""The most series of one answer: twenty bounds of a thousand pods."""

_TIMEOUT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05
_BACK_OFF_SECONDS: Final = (2.0, 5.0, 15.0, 30.0)
_TOO_MUCH: Final = frozenset({ErrorKind.EXECUTION, ErrorKind.TIMEOUT})
_PASSING: Final = frozenset({ErrorKind.UNREACHABLE, ErrorKind.SERVER, ErrorKind.REFUSED, ErrorKind.TIMEOUT})
_FEWEST_POINTS: Final = 8
_WINDOW_STEPS: Final = 2.0
_SHORTEST_WINDOW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ModelSpan:
    """A model and a time span: ``start`` to ``end``, both included, in seconds since the epoch, one point per step."""

    namespace: str
    model_id: str
    start: float
    end: float
    step_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Check the time span. Raises ValueError."""
        if not self.start < self.end:
            raise ValueError("expected --from before --to")
        if self.count > MAX_POINTS:
            least = math.ceil((self.end - self.start) / MAX_POINTS)
            raise ValueError(f"{self.count:,} points are more than {MAX_POINTS:,}: expected --step={least}s or more")

    @property
    def count(self) -> int:
        """The number of points."""
        return int((self.end - self.start) // self.step_seconds) + 1

    @property
    def window_seconds(self) -> float:
        """The seconds that rates and means look back."""
        return max(_SHORTEST_WINDOW_SECONDS, _WINDOW_STEPS * self.step_seconds)


class Chunk(msgspec.Struct, frozen=True):
    """The answers for a part of the time span, by signal."""

    start: float
    end: float
    answers: dict[str, tuple[RangeSeries, ...]]


_decoder: Final = msgspec.json.Decoder(Chunk)

Progress = Callable[[int, int], None]
"""Called with the number of finished chunks and of all chunks."""


async def fetch(
    source: RangeQuerier,
    span: ModelSpan,
    folder: Path,
    *,
    clock: Clock,
    address: str = "",
    progress: Progress = lambda _done, _all: None,
) -> list[Chunk]:
    """Return the chunks of a span in order of time, from the folder if they are already there.

    ``address`` is the address of the source: the answers of another source are not used.

    Raises PrometheusError, and ValueError for an invalid namespace or model id. Chunks read before the error are kept.
    """
    texts = queries(span.namespace, span.model_id, window_seconds=span.window_seconds)
    span_folder = folder / f"history-{_digest(address, span, texts)}"
    span_folder.mkdir(parents=True, exist_ok=True)
    chunk_bounds = list(_parts(span))
    chunks = []
    for done, (start, end) in enumerate(chunk_bounds):
        progress(done, len(chunk_bounds))
        path = span_folder / f"{start:.0f}-{end:.0f}.json"
        chunk = _read(path)
        if chunk is None:
            asker = _Asker(source, span.step_seconds, clock)
            answers = {name: await asker.ask(name, text, start, end) for name, text in texts.items()}
            chunk = Chunk(start, end, answers)
            partial_path = path.with_suffix(".part")
            partial_path.write_bytes(msgspec.json.encode(chunk))
            partial_path.replace(path)
        chunks.append(chunk)
    progress(len(chunk_bounds), len(chunk_bounds))
    return chunks


async def visible_models(source: RangeQuerier, start: float, end: float, *, clock: Clock) -> list[tuple[str, str]]:
    """Return namespace and id of each model that has engines at some time of the span. Raises PrometheusError."""
    step = max(60.0, (end - start) / POINTS_PER_QUERY)
    answer = await _Asker(source, step, clock).ask("models", VISIBLE_MODELS, start, end)
    models = {(series.metric.get("namespace", ""), series.metric.get("model_name", "")) for series in answer}
    return sorted(pair for pair in models if all(pair))


@dataclass(frozen=True, slots=True)
class _Asker:
    """Sends one query at a time, and pauses after each."""

    source: RangeQuerier
    step_seconds: float
    clock: Clock

    async def ask(self, name: str, text: str, start: float, end: float) -> tuple[RangeSeries, ...]:
        """Return the answer of one query, in halves if it is too large."""
        points = int((end - start) // self.step_seconds) + 1
        try:
            answer = await self._patiently(name, text, start, end)
        except PrometheusError as error:
            if error.kind not in _TOO_MUCH or points < _FEWEST_POINTS:
                raise
            middle = start + points // 2 * self.step_seconds
            first = await self.ask(name, text, start, middle - self.step_seconds)
            return _joined(first, await self.ask(name, text, middle, end))
        if len(answer) > MAX_SERIES:
            message = f"{name}: {len(answer):,} series are more than {MAX_SERIES:,}"
            raise PrometheusError(ErrorKind.MALFORMED, message)
        return answer

    async def _patiently(self, name: str, text: str, start: float, end: float) -> tuple[RangeSeries, ...]:
        for pause in (*_BACK_OFF_SECONDS, None):
            try:
                answer = await self.source.query_range(
                    text,
                    name=f"backtest_{name}",
                    start=start,
                    end=end,
                    step_seconds=self.step_seconds,
                    timeout_seconds=_TIMEOUT_SECONDS,
                )
            except PrometheusError as error:
                if pause is None or error.kind not in _PASSING or error.kind in _TOO_MUCH:
                    raise
                await self.clock.sleep(pause)
            else:
                await self.clock.sleep(_PAUSE_SECONDS)
                return answer
        raise AssertionError("the last attempt answers or raises")


def _joined(first: tuple[RangeSeries, ...], second: tuple[RangeSeries, ...]) -> tuple[RangeSeries, ...]:
    """Return the series of two answers, the second of which is about the time after the first."""
    series_by_labels = {tuple(sorted(series.metric.items())): series for series in first}
    for series in second:
        key = tuple(sorted(series.metric.items()))
        earlier = series_by_labels.get(key)
        series_by_labels[key] = (
            series if earlier is None else RangeSeries(series.metric, earlier.values + series.values)
        )
    return tuple(series_by_labels.values())


def _parts(span: ModelSpan) -> Iterator[tuple[float, float]]:
    """Yield the first and last point of each chunk."""
    for first in range(0, span.count, POINTS_PER_QUERY):
        last = min(first + POINTS_PER_QUERY, span.count) - 1
        yield span.start + first * span.step_seconds, span.start + last * span.step_seconds


_MOST_BYTES: Final = 256 * 1024**2
"""Of a kept chunk."""


def _read(path: Path) -> Chunk | None:
    """Return a kept chunk, or None if the file is missing or damaged."""
    try:
        return _decoder.decode(read_bounded(path, _MOST_BYTES))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _digest(address: str, span: ModelSpan, texts: Mapping[str, str]) -> str:
    """Return a name for the queries and the address. Other queries have other files."""
    identity = repr((address, span.namespace, span.model_id, span.step_seconds, sorted(texts.items())))
    return blake2b(identity.encode(), digest_size=8).hexdigest()
