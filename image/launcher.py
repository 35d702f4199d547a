"""Makes the entry point of the image: the file ``/manager``, a name that the original's manifests call."""

from __future__ import annotations

from pathlib import PurePosixPath

_TEXT = """\
#!{interpreter} -ISBO
# -I and -S: neither the environment nor the base image adds modules. -B: nothing is written.
# -O: bytecode without asserts.
import sys

sys.path.append("{libraries}")
sys.pycache_prefix = "{bytecode}"

from wva.cli import main

sys.exit(main())
"""


def launcher(interpreter: PurePosixPath, *, libraries: PurePosixPath, bytecode: PurePosixPath) -> str:
    """Return the text of the entry point; all paths are those in the image.

    The flags are in the first line, as one argument, which is all that the kernel passes on.
    """
    return _TEXT.format(interpreter=interpreter, libraries=libraries, bytecode=bytecode)
