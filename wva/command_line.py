"""What the commands of the controller and of the simulator have in common on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Literal


def add_output(parser: argparse.ArgumentParser, default: Literal["text", "json"] = "text") -> None:
    """Add ``--output`` (``-o``): whether the answer on standard output is for people or for programs."""
    parser.add_argument(
        "--output", "-o", choices=["text", "json"], default=default, help=f"what to print (default: {default})"
    )


def with_examples(epilog: str | None, examples: Iterable[str]) -> str:
    """Return the end of a help: an epilog, if there is one, and command lines that work as they are."""
    shown = "\n".join(["examples:", *(f"  {line}" for line in examples)])
    return f"{shown}\n\n{epilog}" if epilog else shown


class HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs of prose, and leaves those with indented lines, such as examples, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(part if "\n  " in part else fill(part, width, indent) for part in text.split("\n\n"))
