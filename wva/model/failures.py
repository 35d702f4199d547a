"""What messages say of an unexpected exception: its class and where it was raised, and no text of users."""

from __future__ import annotations

from typing import Final

_OURS: Final = "wva."


def cause_of(error: BaseException) -> str:
    """Return the class of an exception, and the line of this program in which it was raised or let through.

    The message of the exception is left out: it may have text of users in it, which may be secret or long. Of a group
    the first exception counts.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place, traceback = "", error.__traceback__
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.startswith(_OURS):
            place = f" in {module}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return f"{type(error).__name__}{place}"
