"""Reads files that others may have written: it never waits for a pipe, and never reads without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file; links are followed.

    Raises OSError when the file cannot be read, is something else (a folder, a pipe, a device), or has more than
    ``most_bytes``; the error says which.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        stream = os.fdopen(descriptor, "rb", closefd=False)
        data = stream.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return data
