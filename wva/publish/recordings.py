"""Recordings of cycles on disk: the input of ``wva decide``.

A recording holds what a decision depends on and nothing else: no token, no URL, no label of a pod. The newest hundred
are kept. A disk that is full or a value that JSON cannot hold must not stop the decisions: a failed write is logged and
the cycle goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from wva import log
from wva.model.recording import Recording

KEPT: Final = 100


class RecordingWriter:
    """Writes one file per cycle into a folder."""

    def __init__(self, folder: str) -> None:
        """Use ``folder``, which is created at the first write."""
        self._folder = Path(folder)
        self._logger = log.get("recordings")

    def write(self, recording: Recording) -> None:
        """Write one recording and remove the oldest beyond the limit."""
        path = self._folder / f"cycle-{recording.now:017.3f}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(msgspec.json.encode(recording))
            temporary.replace(path)
            for old in sorted(self._folder.glob("cycle-*.json"))[:-KEPT]:
                old.unlink(missing_ok=True)
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._logger.warning("recording_failed", path=str(path), reason=reason)
