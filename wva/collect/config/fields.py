"""What may stand in a field of an entry, as people write it.

Every field of an entry is optional: what is absent is inherited. Numbers and booleans must be written without quotes,
as the original's YAML library demands it, but for the few that are documented in quotes.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict

from wva.collect.config.reading import PlainScalar
from wva.godurations import EXPECTED_DURATION, parse_bool, parse_positive_duration
from wva.model.policy import MAX_KEEP_WARM_SECONDS
from wva.model.service import MAX_BATCH_SIZE
from wva.numbers import FINITE, Real, Whole

SHARE: Final = Real(0, 1)
POSITIVE_SHARE: Final = Real(0, 1, above=True)
COUNT: Final = Real(0, 1_000_000_000)
"""More requests than any queue holds. Sums over replicas stay far from where floating point overflows."""
WHOLE_COUNT: Final = Whole(0, 1_000_000_000)
BATCH_SIZE: Final = Whole(0, MAX_BATCH_SIZE)
_YAML_BOOLEANS: Final = {"on": True, "On": True, "ON": True, "off": False, "Off": False, "OFF": False}

EXPECTED_SHARE: Final = f"{SHARE.expected}, without quotes"
EXPECTED_POSITIVE_SHARE: Final = f"{POSITIVE_SHARE.expected}, without quotes"
EXPECTED_COUNT: Final = f"{COUNT.expected}, without quotes"
EXPECTED_WHOLE: Final = f"{WHOLE_COUNT.expected}, without quotes"
EXPECTED_BOOLEAN: Final = "true or false, without quotes"
EXPECTED_KEEP_WARM: Final = f"auto, off or {EXPECTED_DURATION}, at most 24h"
KEEP_WARM_WORDS: Final = {MAX_KEEP_WARM_SECONDS: "auto", 0.0: "off"}


def _number(range_: Real | Whole, written: object) -> float:
    return _quoted_number(range_, written if isinstance(written, PlainScalar) else "")


def _quoted_number(range_: Real | Whole, written: object) -> float:
    """Return a number in the notations that YAML has for decimal ones, where ``1_000`` and a whole ``1e3`` are some."""
    text = str(written)
    found = range_.find(FINITE.find("" if text.startswith("_") else text.replace("_", "")))
    if found is None:
        raise ValueError(f"not {range_.expected}")
    return found


def _boolean(written: object) -> bool:
    if not isinstance(written, PlainScalar) or written in {"0", "1"}:
        raise ValueError("not a boolean")
    return _YAML_BOOLEANS[written] if written in _YAML_BOOLEANS else parse_bool(written)


def _text(written: object) -> str:
    """Return the text as written: a model id of digits is text."""
    return str(written)


def _duration(written: object) -> float:
    return parse_positive_duration(str(written))


def _keep_warm(written: object) -> float:
    """Return seconds: 0 for ``off``, the longest time for ``auto``. Programs make ``false`` of off."""
    text = "off" if written == "false" else str(written)
    word = next((seconds for seconds, word in KEEP_WARM_WORDS.items() if word == text), None)
    seconds = parse_positive_duration(text) if word is None else word
    if seconds > MAX_KEEP_WARM_SECONDS:
        raise ValueError(f"not {EXPECTED_KEEP_WARM}")
    return seconds


Share = Annotated[float, BeforeValidator(partial(_number, SHARE))]
PositiveShare = Annotated[float, BeforeValidator(partial(_number, POSITIVE_SHARE))]
Count = Annotated[float, BeforeValidator(partial(_number, COUNT))]
QuotedCount = Annotated[float, BeforeValidator(partial(_quoted_number, COUNT))]
"""A number that may stand in quotes, because documented examples have them."""
WholeCount = Annotated[int, BeforeValidator(partial(_quoted_number, WHOLE_COUNT))]
BatchSize = Annotated[int, BeforeValidator(partial(_quoted_number, BATCH_SIZE))]
Text = Annotated[str, BeforeValidator(_text)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Seconds = Annotated[float, BeforeValidator(_duration)]
KeepWarm = Annotated[float, BeforeValidator(_keep_warm)]
"""Seconds: how long replicas are kept for demand that comes back."""


class Fields(BaseModel):
    """The fields of an entry; None means not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the fields under the names that people write."""
        return frozenset(field.alias or name for name, field in cls.model_fields.items())


class ModelFields(Fields):
    """The fields of an entry that is for one model, or for all."""

    model_id: Text | None = None
    namespace: Text | None = None
