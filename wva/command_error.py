"""How a command of ``wva`` ends: an error with exit status 1 or 2, and the status after Ctrl-C."""

from __future__ import annotations

from typing import Final

INTERRUPTED_STATUS: Final = 130
"""The status that shells report for a program that Ctrl-C ended: 128 plus the number of the signal."""


class CommandError(Exception):
    """A command cannot go on. Each line of the text names one problem; the command line prints them to stderr."""

    status = 1


class UsageError(CommandError):
    """The words of the command line are wrong, whatever the cluster and the files are: the exit status is 2."""

    status = 2
