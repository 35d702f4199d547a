"""What may stand in a field of an entry, as people write it.

Every field of an entry is optional: what is absent is inherited. Numbers and booleans must be written without quotes,
as the original's YAML library demands it, but for the few that are documented in quotes.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wva.collect.config.reading import PlainScalar
from wva.godurations import parse_bool, parse_positive_duration
from wva.model.service import MAX_BATCH_SIZE

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)(?:[eE][+-]?[0-9]+)?")
MAX_COUNT: Final = 1_000_000_000
"""More requests than any queue holds. Sums over replicas stay far from where floating point overflows."""
_YAML_BOOLEANS: Final = {"on": True, "On": True, "ON": True, "off": False, "Off": False, "OFF": False}

EXPECTED_SHARE: Final = "a number from 0 to 1, without quotes"
EXPECTED_POSITIVE_SHARE: Final = "a number above 0 and up to 1, without quotes"
EXPECTED_COUNT: Final = f"a number from 0 to {MAX_COUNT:,}, without quotes"
EXPECTED_WHOLE: Final = f"a whole number from 0 to {MAX_COUNT:,}, without quotes"
EXPECTED_BOOLEAN: Final = "true or false, without quotes"


def _number(written: object) -> float:
    """Return a number in the notations that YAML has for decimal ones; NaN and the infinities are none."""
    return _quoted_number(written if isinstance(written, PlainScalar) else None)


def _quoted_number(written: object) -> float:
    if not isinstance(written, str) or not _NUMBER.fullmatch(written):
        raise ValueError("not a number")
    return float(written.replace("_", ""))


def _boolean(written: object) -> bool:
    if not isinstance(written, PlainScalar) or written in {"0", "1"}:
        raise ValueError("not a boolean")
    return _YAML_BOOLEANS[written] if written in _YAML_BOOLEANS else parse_bool(written)


def _text(written: object) -> str:
    """Return the text as written: a model id of digits is text."""
    return str(written)


def _duration(written: object) -> float:
    return parse_positive_duration(str(written))


Share = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1, allow_inf_nan=False)]
PositiveShare = Annotated[float, BeforeValidator(_number), Field(gt=0, le=1, allow_inf_nan=False)]
Count = Annotated[float, BeforeValidator(_number), Field(ge=0, le=MAX_COUNT, allow_inf_nan=False)]
QuotedCount = Annotated[float, BeforeValidator(_quoted_number), Field(ge=0, le=MAX_COUNT, allow_inf_nan=False)]
"""A number that may stand in quotes, because documented examples have them."""
WholeCount = Annotated[int, BeforeValidator(_quoted_number), Field(ge=0, le=MAX_COUNT)]
BatchSize = Annotated[int, BeforeValidator(_quoted_number), Field(ge=0, le=MAX_BATCH_SIZE)]
Text = Annotated[str, BeforeValidator(_text)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Seconds = Annotated[float, BeforeValidator(_duration), Field(gt=0, allow_inf_nan=False)]


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
