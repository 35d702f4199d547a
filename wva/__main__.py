"""``python -m wva`` is the ``wva`` command."""

from __future__ import annotations

import sys

from wva.cli import main

if __name__ == "__main__":
    sys.exit(main())
