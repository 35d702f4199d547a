"""The fields of one entry of the saturation ConfigMap, as people write them (surface.md 3.2).

Every field is optional: what is absent is inherited. Numbers and booleans must be written without quotes, as the
original's YAML library demands it.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wva.collect.entries import PlainScalar
from wva.godurations import EXPECTED_DURATION, parse_bool, parse_positive_duration
from wva.model.policy import Compatibility

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)(?:[eE][+-]?[0-9]+)?")
MAX_COUNT: Final = 1_000_000_000
"""More requests than any queue holds. Sums over replicas stay far from where floating point overflows."""
_YAML_BOOLEANS: Final = {"on": True, "On": True, "ON": True, "off": False, "Off": False, "OFF": False}


def _number(written: object) -> float:
    """Return a number in the notations that YAML has for decimal ones; NaN and the infinities are none."""
    if not isinstance(written, PlainScalar) or not _NUMBER.fullmatch(written):
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
Count = Annotated[float, BeforeValidator(_number), Field(ge=0, le=MAX_COUNT, allow_inf_nan=False)]
PositiveShare = Annotated[float, BeforeValidator(_number), Field(gt=0, le=1, allow_inf_nan=False)]
Text = Annotated[str, BeforeValidator(_text)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Seconds = Annotated[float, BeforeValidator(_duration), Field(gt=0, allow_inf_nan=False)]


class SaturationEntry(BaseModel):
    """One entry; None means not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_id: Text | None = None
    namespace: Text | None = None
    kv_cache_threshold: Share | None = Field(default=None, alias="kvCacheThreshold")
    queue_length_threshold: Count | None = Field(default=None, alias="queueLengthThreshold")
    kv_spare_trigger: Share | None = Field(default=None, alias="kvSpareTrigger")
    queue_spare_trigger: Count | None = Field(default=None, alias="queueSpareTrigger")
    enable_limiter: Boolean | None = Field(default=None, alias="enableLimiter")
    analyzer_name: Text | None = Field(default=None, alias="analyzerName")
    scale_up_threshold: PositiveShare | None = Field(default=None, alias="scaleUpThreshold")
    scale_down_boundary: PositiveShare | None = Field(default=None, alias="scaleDownBoundary")
    compatibility: Compatibility | None = None
    transition_deadline_seconds: Seconds | None = Field(default=None, alias="transitionDeadline")

    def thresholds(self) -> dict[str, float | None]:
        """Return the fields that make up a SaturationPolicy, under its names."""
        return {
            "kv_cache_threshold": self.kv_cache_threshold,
            "queue_length_threshold": self.queue_length_threshold,
            "kv_spare_trigger": self.kv_spare_trigger,
            "queue_spare_trigger": self.queue_spare_trigger,
            "transition_deadline_seconds": self.transition_deadline_seconds,
        }


FIELDS: Final = frozenset(field.alias or name for name, field in SaturationEntry.model_fields.items())

_SHARE: Final = "a number from 0 to 1, without quotes"
_COUNT: Final = f"a number from 0 to {MAX_COUNT:,}, without quotes"

EXPECTED: Final = {
    "model_id": "a model id",
    "namespace": "a namespace",
    "kvCacheThreshold": _SHARE,
    "queueLengthThreshold": _COUNT,
    "kvSpareTrigger": _SHARE,
    "queueSpareTrigger": _COUNT,
    "enableLimiter": "true or false, without quotes",
    "analyzerName": "the name of an analyzer",
    "scaleUpThreshold": "a number above 0 and up to 1, without quotes",
    "scaleDownBoundary": "a number above 0 and up to 1, without quotes",
    "compatibility": " or ".join(value.value for value in Compatibility),
    "transitionDeadline": f"{EXPECTED_DURATION}, above zero",
}
"""What each field takes, in words for people."""
