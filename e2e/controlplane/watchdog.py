"""The process that tidies up after test workers that were killed: ``python -m e2e.controlplane.watchdog FOLDER``.

It looks every second whether a user of the control plane is alive, and ends the session when none is.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from e2e.controlplane.session import Session

_INTERVAL_SECONDS = 1.0


def watch(session: Session) -> None:
    """Return when the users or this watchdog have ended the session."""
    while session.directory.exists():
        if not session.users():
            with session.locked_if_unused() as unused:
                if unused:
                    session.end(besides=os.getpid())
                    return
        time.sleep(_INTERVAL_SECONDS)


if __name__ == "__main__":
    watch(Session(Path(sys.argv[1])))
