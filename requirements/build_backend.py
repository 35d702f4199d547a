"""The build backend of the project: hatchling's, on a Python that the project is for.

Some releases of pip, such as Ubuntu 22.04's, do not give up on a folder that needs a newer Python than theirs: they try
every release of every dependency, for hours. So this module ends the build before, in a sentence. It loads on every
Python 3, and an old one installs nothing else: hatchling is required in ``pyproject.toml`` on the same condition.
"""

import sys

NEEDED = (3, 11)
"""The oldest Python, as in ``requires-python`` and in the requirement of hatchling."""


def refusal(version):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - loads on any Python 3
    """Return why the project cannot be built with a version of Python, a tuple; None where it can be."""
    if version[:2] >= NEEDED:
        return None
    return "wva needs Python {}.{} or newer, and this is Python {}.{}: make the environment with a newer one".format(
        *NEEDED, *version[:2]
    )


if __name__ == "build_backend":
    _problem = refusal(sys.version_info)  # type: ignore[no-untyped-call]  # as above
    if _problem is not None:
        raise SystemExit(_problem)
    from hatchling.build import *  # noqa: F403 - all hooks that this hatchling has
