"""What a setting may be: where it is given (``Origin``) and the types of its value.

Every field of ``Settings`` carries an Origin in its annotation. The flag parser, the sources, ``wva config`` and the
tables of the documentation are derived from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from wva.godurations import parse_bool, parse_duration
from wva.numbers import Whole

_ENVIRONMENT: Final = "environment"
_CONFIG_MAP: Final = "configmap"
BOTH: Final = frozenset({_ENVIRONMENT, _CONFIG_MAP})
ENV_ONLY: Final = frozenset({_ENVIRONMENT})
FLAG_ONLY: Final[frozenset[str]] = frozenset()
POOL_GROUPS: Final = ("inference.networking.k8s.io", "inference.networking.x-k8s.io")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a setting may be given.

    ``flags`` without dashes; ``keys`` in the sources named by ``places``; the first of each is canonical, the others
    are accepted spellings. ``dynamic`` settings follow the ConfigMap at run time. ``no_effect`` says why an accepted
    setting changes nothing here; giving it is answered with a warning.
    """

    flags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    places: frozenset[str] = BOTH
    dynamic: bool = False
    no_effect: str = ""
    metavar: str = "TEXT"


def given(
    *flags: str,
    keys: tuple[str, ...] = (),
    places: frozenset[str] = BOTH,
    no_effect: str = "",
    metavar: str = "TEXT",
    dynamic: bool = False,
) -> Origin:
    """Return the Origin of a setting with flags; its key is the first flag in upper case unless given."""
    return Origin(flags, keys or (flags[0].replace("-", "_").upper(),), places, dynamic, no_effect, metavar)


def key(*keys: str, places: frozenset[str] = BOTH, dynamic: bool = False) -> Origin:
    """Return the Origin of a setting without a flag."""
    return Origin((), keys, places, dynamic)


def origin_of(field: FieldInfo) -> Origin:
    """Return where a field of ``Settings`` may be given. Every field has an Origin; the lookup fails otherwise."""
    return next(entry for entry in field.metadata if isinstance(entry, Origin))


class FatalValue(ValueError):  # noqa: N818 - it is about the value; pydantic wants a ValueError
    """A value that says something which must not be replaced by a default: the process does not start with it."""


def _positive(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("must be greater than zero")
    return seconds


def _vital(seconds: float) -> float:
    if seconds <= 0:
        raise FatalValue("must be greater than zero")
    return seconds


def _not_negative(seconds: float) -> float:
    if seconds < 0:
        raise ValueError("must not be negative")
    return seconds


def _as_duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _as_bool(value: object) -> object:
    return parse_bool(value) if isinstance(value, str) else value


def _as_level(value: object) -> object:
    """Take the spellings of others too: zap knows ``panic`` and numbers above 0, which are levels of debug."""
    if not isinstance(value, str):
        return value
    level = value.strip().lower()
    if level.isascii() and level.isdecimal() and level.strip("0"):
        return "debug"
    return _LEVEL_ALIASES.get(level, level)


def _as_count(value: object) -> object:
    """Take plain digits: pydantic alone would read ``1_0``, ``1e1`` or a number too long for anything."""
    if not isinstance(value, str):
        return value
    number = _COUNT.find(value)
    if number is None:
        raise ValueError(_COUNT.expected)
    return number


def _pool_group(text: str) -> str:
    if text and text not in POOL_GROUPS:
        raise FatalValue(f"{' or '.join(POOL_GROUPS)}, or nothing for both")
    return text


def _as_token(value: object) -> object:
    """Drop the word that goes before a token in a header: people store it either way; the original doubled it."""
    if not isinstance(value, str):
        return value
    token = value.strip().removeprefix("Bearer ").strip()
    if not token.isascii() or not all("!" <= character <= "~" for character in token):
        raise ValueError("one word of printable ASCII")
    return token


_COUNT: Final = Whole(0, 999_999_999)
_LEVEL_ALIASES: Final = {"warning": "warn", "panic": "error", "fatal": "error", "dpanic": "error"}

Duration = Annotated[float, BeforeValidator(_as_duration), AfterValidator(_positive)]
"""Seconds, above zero."""
VitalDuration = Annotated[float, BeforeValidator(_as_duration), AfterValidator(_vital)]
"""Seconds; zero and less are fatal at the start instead of giving way to the default."""
OptionalDuration = Annotated[float, BeforeValidator(_as_duration), AfterValidator(_not_negative)]
"""Seconds; zero switches off."""
Switch = Annotated[bool, BeforeValidator(_as_bool)]
Level = Annotated[Literal["debug", "info", "warn", "error"], BeforeValidator(_as_level)]
Count = Annotated[int, BeforeValidator(_as_count)]
PoolGroup = Annotated[str, AfterValidator(_pool_group)]
Token = Annotated[SecretStr, BeforeValidator(_as_token)]
