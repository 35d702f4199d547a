"""The error that ends a command of ``wva`` with exit status 1."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot go on. Each line of the text names one problem; the command line prints them to stderr."""
