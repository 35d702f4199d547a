"""WVA works on, whatever value it logs, and whatever is wrong with the stream that it logs to."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.app.stage import until
from wva import log


class Full(io.StringIO):
    """A stream on a disk that is full."""

    def write(self, _):
        """Refuse."""
        raise OSError(28, "No space left on device")


def closed():
    """Return a closed stream."""
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Full, closed])
async def test_a_log_that_cannot_be_written_stops_nothing(stage, stream):
    """The numbers matter more than the lines about them."""
    with contextlib.redirect_stderr(stream()):
        log.configure(level="debug", encoding="json")
    async with stage.controller(interval="20ms"):
        await until(lambda: stage.number() == 2)
        await stage.works()


@pytest.mark.parametrize("encoding", ["json", "console"])
@pytest.mark.parametrize("model", ["a\nlevel=error forged", "\x1b[2J\x07bell", "x" * 100_000])
async def test_no_text_of_a_user_forges_a_line(stage, encoding, model):
    """Each line is one event of ours; control characters and floods stay inside or out."""
    lines = io.StringIO()
    with contextlib.redirect_stderr(lines):
        log.configure(level="debug", encoding=encoding)
    stage.patch_va({"spec": {"modelID": model}})
    async with stage.controller(interval="20ms"):
        await until(lambda: stage.number() == 2)
    for line in lines.getvalue().splitlines():
        assert line.isprintable()
        assert not line.startswith("level=error")
        assert len(line) < 10_000
