"""What the commands of the controller and of the simulator have in common on the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Literal


def add_output(parser: argparse.ArgumentParser, default: Literal["text", "json"] = "text") -> None:
    """Add ``--output`` (``-o``): whether the answer on standard output is for people or for programs."""
    parser.add_argument(
        "--output", "-o", choices=["text", "json"], default=default, help=f"what to print (default: {default})"
    )


def print_json(document: object) -> None:
    """Print JSON for people to read. Characters that would control a terminal are written as JSON escapes."""
    import msgspec  # noqa: PLC0415 - slow to import, and help does not need it

    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.write("".join(f"{_written_out(line)}\n" for line in text.split("\n")))


def _written_out(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def with_examples(epilog: str | None, examples: Iterable[str]) -> str:
    """Return the end of a help: command lines that work as they are, and an epilog, if there is one."""
    text = "\n".join(["examples:", *(f"  {line}" for line in examples)])
    return f"{text}\n\n{epilog}" if epilog else text


class HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs of prose, and leaves those with indented lines, such as examples, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(part if "\n  " in part else fill(part, width, indent) for part in text.split("\n\n"))
