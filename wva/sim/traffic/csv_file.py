"""A user's own requests: a CSV file with a line of column names and a line for each request.

The file is checked here, once. An error names the file, the line, the column, the value and what was expected.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.sim.traffic.assembly import ALONE
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.streams import stream

MAXIMUM_BYTES: Final = 2 * 1024**3
MAXIMUM_ROWS: Final = 10_000_000
MAXIMUM_TOKENS: Final = 10_000_000
MAXIMUM_SECONDS: Final = 366 * 86_400.0
SHOWN: Final = 40
"""Characters of a wrong value that an error shows."""

COLUMNS: Final = {
    "time": ("seconds", "timestamp"),
    "prompt_tokens": ("prompt_tokens", "contexttokens"),
    "output_tokens": ("output_tokens", "generatedtokens"),
    "group": ("group",),
    "prefix_tokens": ("prefix_tokens",),
    "shared_tokens": ("shared_tokens",),
}
"""Names that the first line may use for each column, in any case; those of the Azure traces are among them."""

REQUIRED: Final = ("time", "prompt_tokens", "output_tokens")
WRITTEN: Final = ("seconds", "prompt_tokens", "output_tokens", "group", "prefix_tokens", "shared_tokens")


class RequestsFileError(ValueError):
    """A file of requests cannot be read; the text says for people what is wrong. Nothing of the file is used."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where each column is. ``names`` are those of the first line, ``places`` the index of a column by our name."""

    path: Path
    names: tuple[str, ...]
    places: dict[str, int]

    def text(self, row: Sequence[str], column: str) -> str:
        """Return a value as the file has it; empty where there is no such column."""
        return row[self.places[column]].strip() if column in self.places else ""

    def error(self, line: int, column: str, value: str, expected: str) -> RequestsFileError:
        """Return the error for a wrong value."""
        return _error(f"{self.path}, line {line}, column {self.names[self.places[column]]}", value, expected)

    def whole(self, row: Sequence[str], column: str, *, line: int, least: int, most: int) -> int:
        """Return a whole number. Only digits are allowed: ``int`` would also take underscores and a million digits."""
        text = self.text(row, column)
        well_formed = text.isascii() and text.isdigit() and len(text) <= len(str(MAXIMUM_TOKENS))
        if not (well_formed and least <= int(text) <= most):
            raise self.error(line, column, text, f"a whole number from {least} to {most}")
        return int(text)

    def seconds(self, row: Sequence[str], *, line: int) -> float:
        """Return seconds from the start."""
        text = self.text(row, "time")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= MAXIMUM_SECONDS:
            raise self.error(line, "time", text, f"0 to {MAXIMUM_SECONDS:.0f} seconds")
        return value

    def unix_seconds(self, row: Sequence[str], *, line: int) -> float:
        """Return the Unix seconds of a time; without a zone it is in UTC."""
        text = self.text(row, "time")
        try:
            value = float(text)
        except ValueError:
            try:
                moment = datetime.fromisoformat(text)
                value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
            except (ValueError, OverflowError):
                value = -1.0
        if not (isfinite(value) and value >= 0.0):
            raise self.error(line, "time", text, "a time such as 2024-05-10 08:00:00.5, or Unix seconds")
        return value


def _error(where: str, value: str, expected: str) -> RequestsFileError:
    shown = value if len(value) <= SHOWN else value[:SHOWN] + "..."
    return RequestsFileError(f"{where}: {shown!r}: expected {expected}")


def write_csv(traffic: Traffic, path: Path) -> None:
    """Write requests; ``read_csv`` with the same duration and seed gives them back, except for the random draws."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(WRITTEN)
        writer.writerows(
            zip(
                traffic.arrival_seconds.tolist(),
                traffic.prompt_tokens.tolist(),
                traffic.output_tokens.tolist(),
                ("" if group == ALONE else group for group in traffic.group.tolist()),
                traffic.prefix_tokens.tolist(),
                traffic.shared_tokens.tolist(),
                strict=True,
            )
        )


def read_csv(path: Path, *, duration_seconds: float | None = None, seed: int = 0) -> Traffic:
    """Return the requests of a file, in order of arrival.

    ``duration_seconds``: the length of time that the file covers; by default until the last request. ``seed`` is that
    of the draws for routing by chance.

    Raises:
        RequestsFileError: the file is not there, too large, or not as described; or it has no request.

    """
    try:
        size = path.stat().st_size
        if size > MAXIMUM_BYTES:
            raise RequestsFileError(f"{path} has {size} bytes: expected at most {MAXIMUM_BYTES}")
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read(path, file, duration_seconds=duration_seconds, seed=seed)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestsFileError(f"{path} cannot be read: {error}") from error


def _read(path: Path, lines: Iterable[str], *, duration_seconds: float | None, seed: int) -> Traffic:
    reader = csv.reader(lines)
    layout = _layout(path, tuple(name.strip() for name in next(reader, [])))
    relative = layout.names[layout.places["time"]].lower() == "seconds"
    read_time = layout.seconds if relative else layout.unix_seconds
    grouped, sharing = "group" in layout.places, "shared_tokens" in layout.places
    times: list[float] = []
    rows: list[tuple[int, int, int, int, int]] = []
    group_numbers: dict[str, int] = {}
    for row in reader:
        line = reader.line_num
        if not row:
            continue
        if len(row) != len(layout.names):
            raise _error(f"{path}, line {line}", ",".join(row), f"{len(layout.names)} values, as in the first line")
        if len(rows) == MAXIMUM_ROWS:
            raise RequestsFileError(f"{path} has more than {MAXIMUM_ROWS} requests: expected at most that")
        times.append(read_time(row, line=line))
        prompt = layout.whole(row, "prompt_tokens", line=line, least=1, most=MAXIMUM_TOKENS)
        output = layout.whole(row, "output_tokens", line=line, least=1, most=MAXIMUM_TOKENS)
        name = layout.text(row, "group") if grouped else ""
        group, prefix, shared = ALONE, 0, 0
        if name:
            group = group_numbers.setdefault(name, len(group_numbers))
            prefix = layout.whole(row, "prefix_tokens", line=line, least=0, most=prompt)
            shared = layout.whole(row, "shared_tokens", line=line, least=0, most=prompt) if sharing else prefix
        rows.append((prompt, output, group, prefix, shared))
    if not rows:
        raise RequestsFileError(f"{path} has no request: expected a line for each below the line of names")
    seconds = np.array(times) - (0.0 if relative else min(times))
    return _traffic(path, seconds, np.array(rows, dtype=np.int64), duration_seconds=duration_seconds, seed=seed)


def _layout(path: Path, names: tuple[str, ...]) -> _Layout:
    """Return where each column is."""
    line = f"{path}, line 1"
    lowered = [name.lower() for name in names]
    places: dict[str, int] = {}
    for column, accepted in COLUMNS.items():
        matching = [index for index, name in enumerate(lowered) if name in accepted]
        if len(matching) > 1:
            raise _error(line, ",".join(names[index] for index in matching), f"one column {' or '.join(accepted)}")
        if matching:
            places[column] = matching[0]
        elif column in REQUIRED:
            raise _error(line, ",".join(names), f"a column {' or '.join(accepted)}")
    if ("group" in places) != ("prefix_tokens" in places):
        raise _error(line, ",".join(names), "the columns group and prefix_tokens together")
    return _Layout(path, names, places)


def _traffic(
    path: Path,
    arrival_seconds: NDArray[np.float64],
    rows: NDArray[np.int64],
    *,
    duration_seconds: float | None,
    seed: int,
) -> Traffic:
    order = np.argsort(arrival_seconds, kind="stable")
    last = float(arrival_seconds[order[-1]])
    if last > MAXIMUM_SECONDS:
        raise RequestsFileError(f"{path} is about {last:.0f} s: expected at most {MAXIMUM_SECONDS:.0f}")
    duration = last if duration_seconds is None else duration_seconds
    if duration < last:
        raise RequestsFileError(f"{path} has a request at {last:g} s: expected none after the duration, {duration:g} s")
    prompts, outputs, groups, prefixes, shares = np.ascontiguousarray(rows[order].T)
    return Traffic(
        duration_seconds=duration,
        arrival_seconds=arrival_seconds[order],
        prompt_tokens=prompts,
        output_tokens=outputs,
        group=groups,
        prefix_tokens=prefixes,
        shared_tokens=shares,
        draw=stream(seed, "draws").random(len(order)),
    )
