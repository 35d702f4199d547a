"""The command line: it runs a command and returns the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from wva import __version__
from wva.cli.parser import build_parser, with_command
from wva.command_error import INTERRUPTED_STATUS, CommandError

COMPLETE: Final = "__complete"
"""What the scripts of ``wva completion`` call; it is no command for people."""
_WITH_SETTINGS: Final = ("run", "config")
_SIGPIPE_STATUS: Final = 141
"""The status that shells report for a program that SIGPIPE ended: 128 plus the number of the signal."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = with_command(sys.argv[1:] if argv is None else argv)
    name = words[0] if words else ""
    try:
        if name == COMPLETE:
            from wva.cli.completion import answer  # noqa: PLC0415 - only a shell needs it

            return answer(words[1:])
        parser = build_parser(name)
        if name in _WITH_SETTINGS:
            from wva.cli.flags import expand_booleans  # noqa: PLC0415 - slow to import, and only two commands need it

            words = expand_booleans(words)
        arguments = parser.parse_args(words)
        status = 0
        if arguments.command is None:
            parser.print_help()
        elif arguments.command == "version":
            print(f"wva {__version__}")
        elif arguments.command == "crd":
            from wva.api.crd import render  # noqa: PLC0415 - slow to import, and only this command needs it

            sys.stdout.write(render())
        else:
            status = arguments.run(arguments)
        sys.stdout.flush()
    except CommandError as error:
        from wva.log import printable  # noqa: PLC0415 - slow to import, and help does not need it

        for line in str(error).splitlines():
            sys.stderr.write(f"wva: {printable(line)}\n")
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except BrokenPipeError:
        # The reader, such as head, closed the pipe. Python would write to it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _SIGPIPE_STATUS
    return status


def kubectl() -> int:
    """Answer ``kubectl_complete-wva WORD ... BEGINNING``, which kubectl calls; the exit status."""
    return main([COMPLETE, *sys.argv[1:]])
