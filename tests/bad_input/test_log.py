"""WVA goes on deciding with any value in the log, and with a log stream that fails."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.app.stage import until
from wva import log


class Full(io.StringIO):
    """A stream whose disk is full."""

    def write(self, _):
        """Raise an error."""
        raise OSError(28, "No space left on device")


def closed():
    """Return a closed stream."""
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Full, closed])
async def test_a_log_that_cannot_be_written_stops_nothing(stage, stream):
    """WVA goes on deciding when it cannot log."""
    with contextlib.redirect_stderr(stream()):
        log.configure(level="debug", encoding="json")
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.number() == 2)
        await stage.works()


@pytest.mark.parametrize("encoding", ["json", "console"])
@pytest.mark.parametrize("model", ["a\nlevel=error forged", "\x1b[2J\x07bell", "x" * 100_000])
async def test_no_text_of_a_user_forges_a_line(stage, encoding, model):
    """Each line is printable and of limited length, and none is forged."""
    lines = io.StringIO()
    with contextlib.redirect_stderr(lines):
        log.configure(level="debug", encoding=encoding)
    stage.patch_va({"spec": {"modelID": model}})
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.number() == 2)
    for line in lines.getvalue().splitlines():
        assert line.isprintable()
        assert not line.startswith("level=error")
        assert len(line) < 10_000
