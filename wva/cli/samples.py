"""``wva demo --openmetrics FILE``: every sample of a run in a file, to fill a real Prometheus with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wva.sim.prometheus import Tsdb
from wva.sim.prometheus.openmetrics import OpenMetricsWriter


class SampleFileError(Exception):
    """The file cannot be written; the text names the flag, the file and the reason."""


@contextmanager
def sample_file(path: Path | None, tsdb: Tsdb) -> Iterator[Callable[[], None]]:
    """Open the file for the length of a block and yield what writes the samples that are new; None writes nothing.

    Raises SampleFileError, from what it yields too.
    """
    if path is None:
        yield lambda: None
        return
    with _told(path):
        file = path.open("w", encoding="utf-8")
    try:
        writer = OpenMetricsWriter(tsdb, file)

        def write() -> None:
            with _told(path):
                writer.write()

        yield write
        with _told(path):
            writer.finish()
            file.flush()
    finally:
        with _told(path):
            file.close()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SampleFileError(f"--openmetrics={path}: {error.strerror}") from error
