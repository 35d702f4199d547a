"""What the users of a model shall get: the input of the demand analyzer."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Objectives(Struct, frozen=True, gc=False):
    """How quickly users shall be served, in seconds, and how many of them.

    ``ttft_seconds`` is the time to the first token, ``itl_seconds`` the mean time between the tokens of an answer.
    ``in_time`` is the share of requests that shall meet them.
    """

    ttft_seconds: float = 1.0
    itl_seconds: float = 0.1
    in_time: float = 0.99


DEFAULT_OBJECTIVES: Final = Objectives()
"""What holds for a model of which nobody said anything."""
