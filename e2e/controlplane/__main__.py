"""Run a control plane until interrupted: ``python -m e2e.controlplane [FOLDER]``.

Prints the administrator's kubeconfig, Prometheus' URL and the setting with which test runs join this control plane
instead of starting their own.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

from e2e.controlplane.session import Session


def main() -> int:
    """Start, print, wait for SIGINT or SIGTERM, stop."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="wva-e2e-"))
    session = Session(root)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    started = time.monotonic()
    plane = session.join()
    try:
        print(f"started in {time.monotonic() - started:.1f} s: {plane.versions()}")
        print(f"export KUBECONFIG={plane.kubeconfig}")
        print(f"export WVA_E2E_DIRECTORY={root}")
        print(f"prometheus: {plane.prometheus_api.url} (authority {plane.layout.authority})", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        session.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
