"""How a key is declared, and the forms that its value may have.

A key is declared once, as a field of a pydantic model in ``keys``: ``flag`` and ``key`` declare settings of the
process, ``field`` declares a field in the entries of a ConfigMap. The annotation has the ``Form``: what a text means,
what is expected, how a value is shown. ``declarations`` returns what a model declares. Flags, precedence, live changes,
error texts, ``wva config``, the tables of the documentation and the check of the chart's schema are derived from that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

from pydantic import BaseModel, Field, SecretStr

from wva.godurations import EXPECTED_DURATION, parse_bool, parse_duration, parse_positive_duration
from wva.model.roles import ROLE_LABEL, STAGES, RoleLabels
from wva.numbers import FINITE, Real, Whole

T = TypeVar("T")

MASK: Final = "***"
_MAX_SHOWN_CHARACTERS: Final = 120
_MAX_ENTRY_CHARACTERS: Final = 200
_USER: Final = re.compile(r"//[^/\s]*@")


def shown(value: object) -> str:
    """Return a value as a ConfigMap would have it: ``60s`` for a number of seconds, ``true``; a secret masked."""
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".") + "s"
    return without_user(str(value))


def without_user(text: str) -> str:
    """Return a text with the user and password of any URL in it masked."""
    return _USER.sub(f"//{MASK}@", text)


def shortened(text: str, most: int = _MAX_SHOWN_CHARACTERS) -> str:
    """Return a text from outside, cut to what a line has room for."""
    return text if len(text) <= most else text[:most] + "..."


def printable(text: str) -> str:
    """Return a text from outside in a form that is safe and short enough for a message."""
    cut = shortened(text, _MAX_ENTRY_CHARACTERS)
    return "".join(character if character.isprintable() else "?" for character in cut)


class PlainScalar(str):
    """A scalar of YAML without quotes: it may be meant as a number or a boolean."""

    __slots__ = ()


class FatalValue(ValueError):  # noqa: N818 - it is about the value
    """A value that must not give way to a default: the process does not start with it."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is written.

    ``read`` returns what a text means or raises ValueError; ``expected`` says in words which texts it takes. ``limits``
    is the range of a number, ``words`` are the only texts that it takes. ``metavar`` stands for a value in ``--help``.
    ``instead`` is the value of any other text in an entry, which WVA reports; None: WVA rejects such an entry.
    """

    read: Callable[[str], Any]
    expected: str
    show: Callable[[Any], str] = shown
    limits: Real | Whole | None = None
    words: tuple[str, ...] = ()
    metavar: str = "TEXT"
    instead: Any = None


# --- forms of settings ------------------------------------------------------------------------------------------------


def only(
    read: Callable[[str], T],
    fits: Callable[[T], bool] = lambda value: value is not None,
    error: type[ValueError] = ValueError,
) -> Callable[[str], T]:
    """Return a reader that takes only the values that fit."""

    def checked(text: str) -> T:
        value = read(text)
        if not fits(value):
            raise error(text)
        return value

    return checked


def whole(minimum: int, maximum: int) -> Form:
    """Return the form of plain digits; pydantic alone would also read ``1_0``, ``1e1`` or a number of any length."""
    limits = Whole(minimum, maximum)
    return Form(only(limits.find), limits.expected, limits=limits, metavar="N")


def one_of(*words: str, aliases: Callable[[str], str] = str) -> Form:
    """Return the form of a few words; ``aliases`` turns other spellings into one of them."""
    return Form(only(aliases, words.__contains__), f"{', '.join(words[:-1])} or {words[-1]}", words=words)


def text_of(minimum: int, maximum: int, expected: str) -> Form:
    """Return the form of a text by its number of characters; one that is not UTF-8 does not fit."""
    return Form(only(lambda text: text.encode().decode(), lambda text: minimum <= len(text) <= maximum), expected)


def _level(text: str) -> str:
    """Return a level, also for the spellings of zap: it knows ``panic``, and numbers above 0, which mean debug."""
    level = text.strip().lower()
    if level.isascii() and level.isdecimal() and level.strip("0"):
        return "debug"
    return {"warning": "warn", "panic": "error", "fatal": "error", "dpanic": "error"}.get(level, level)


def strip_token(token: str) -> str:
    """Return a token without surrounding white space and the ``Bearer`` of a header: people store it either way."""
    return token.strip().removeprefix("Bearer ").strip()


def is_header_safe(token: str) -> bool:
    """Tell whether a token can stand in a header: printable ASCII without spaces; surrounding ones do not count."""
    return all("!" <= character <= "~" for character in strip_token(token))


TARGET_KINDS: Final = ("StatefulSet", "LeaderWorkerSet")
"""Kinds that are scaled beside Deployment; ``wva.targets`` says what they are."""
POOL_GROUPS: Final = ("inference.networking.k8s.io", "inference.networking.x-k8s.io")

TEXT: Final = Form(str, "a text")
NAME: Final = text_of(1, 1_000_000, "a text that is not empty")
DURATION: Final = Form(parse_positive_duration, f"{EXPECTED_DURATION}, above zero", metavar="DURATION")
VITAL_DURATION: Final = replace(DURATION, read=only(parse_duration, lambda seconds: seconds > 0, FatalValue))
"""Zero and less are fatal at the start instead of giving way to the default."""
OPTIONAL_DURATION: Final = Form(
    only(parse_duration, lambda seconds: seconds >= 0), f"{EXPECTED_DURATION}, or 0", metavar="DURATION"
)
SWITCH: Final = Form(parse_bool, "true or false", metavar="BOOL")
COUNT: Final = whole(0, 999_999_999)
LEVEL: Final = replace(one_of("debug", "info", "warn", "error", aliases=_level), metavar="LEVEL")
POOL_GROUP: Final = Form(
    only(str, ("", *POOL_GROUPS).__contains__, FatalValue), f"{' or '.join(POOL_GROUPS)}, or nothing for both"
)
TARGET_KINDS_LIST: Final = Form(
    only(
        lambda text: ",".join(name.strip() for name in text.split(",")),
        lambda names: not names or set(names.split(",")) <= set(TARGET_KINDS),
        FatalValue,
    ),
    f"{' or '.join(TARGET_KINDS)}, or both with a comma between them, or nothing",
)
ROLE_KEYS: Final = Form(
    only(lambda text: ",".join(RoleLabels.of(text).keys)),
    f"keys of labels such as {ROLE_LABEL}, with a comma between them",
    metavar="KEYS",
)
ROLE_VALUES: Final = Form(
    only(lambda text: ",".join(f"{value}={role}" for value, role in RoleLabels.of(values=text).values.items())),
    f"pairs VALUE=ROLE with a comma between them, each value once; roles are {', '.join(STAGES)}",
    metavar="PAIRS",
)
SECRET: Final = Form(SecretStr, "a text")
TOKEN: Final = Form(lambda text: SecretStr(strip_token(only(str, is_header_safe)(text))), "one word of printable ASCII")


# --- forms of fields of entries: numbers and booleans stand without quotes, but for the few documented in quotes ------


def number(limits: Real | Whole, *, quoted: bool = False) -> Form:
    """Return the form of a decimal number in the notations of YAML, such as ``1_000`` and ``1e3``."""

    def find(written: str) -> float | None:
        text = str(written) if quoted or isinstance(written, PlainScalar) else ""
        return limits.find(FINITE.find("" if text.startswith("_") else text.replace("_", "")))

    expected = limits.expected if quoted else f"{limits.expected}, without quotes"
    return Form(only(find), expected, lambda value: f"{value:g}", limits)


def member_of(kind: type[StrEnum]) -> Form:
    """Return the form of the values of an enumeration."""
    words = tuple(member.value for member in kind)
    expected = (", " if words[2:] else " or ").join(words)
    return Form(lambda text: kind(str(text)), expected, lambda value: str(value.value), words=words)


def _boolean(written: str) -> bool:
    if not isinstance(written, PlainScalar) or written in {"0", "1"}:
        raise ValueError(written)
    lower = written.lower()
    return lower == "on" if written in {"on", "On", "ON", "off", "Off", "OFF"} else parse_bool(written)


BOOLEAN: Final = Form(_boolean, "true or false, without quotes")


# --- declaring --------------------------------------------------------------------------------------------------------

ENVIRONMENT, CONFIG_MAP, ENTRY, GLOBAL_DEFAULT = "environment", "configmap", "entry", "global default"
BOTH: Final = (ENVIRONMENT, CONFIG_MAP)


class Live(NamedTuple):
    """How the log reports a change while the process runs; one line reports all keys with the same ``Live``."""

    text: str
    event_name: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """One key.

    ``attribute`` is where its value is, ``keys`` and ``flags`` (without dashes) are its spellings, the canonical first.
    ``places`` says where keys may stand beside flags; ``GLOBAL_DEFAULT`` means that a field may be in the global
    ``default`` entry only. ``live`` says how the log reports a change at run time; None: a change needs a restart.
    ``no_effect`` says why an accepted setting changes nothing here. The ConfigMap may give the setting only if the
    environment does not have ``shut_out_by``. ``unset`` says in words what holds without the field. ``group`` is the
    title of its flags in a help text.
    """

    attribute: str
    form: Form
    default: Any
    meaning: str
    keys: tuple[str, ...]
    flags: tuple[str, ...] = ()
    places: tuple[str, ...] = BOTH
    live: Live | None = None
    no_effect: str = ""
    metavar: str = "TEXT"
    group: str = ""
    shut_out_by: str = ""
    unset: str = "-"

    @property
    def key(self) -> str:
        """The canonical key."""
        return self.keys[0]

    def masked(self, text: str) -> str:
        """Return a text that was given for this key in a form that may be shown."""
        return MASK if isinstance(self.default, SecretStr) else without_user(text)


def key(default: object, meaning: str, *keys: str, **more: Any) -> Any:
    """Declare a setting without a flag; its key is the attribute in upper case unless given. ``more``: Declaration."""
    return Field(cast("Any", default), description=meaning, json_schema_extra=cast("Any", {"keys": keys, **more}))


def flag(default: object, meaning: str, *flags: str, keys: tuple[str, ...] = (), **more: Any) -> Any:
    """Declare a setting with flags: the attribute with dashes unless given; the keys are the flags in upper case."""
    return key(default, meaning, *keys, flags=flags or None, **more)


def field(name: str, meaning: str, *, unset: str = "-", place: str = ENTRY) -> Any:
    """Declare a field of an entry. Every field is optional: what is absent is inherited."""
    more = {"keys": (name,), "places": (place,), "unset": unset}
    return Field(None, alias=name, description=meaning, json_schema_extra=cast("Any", more))


@cache
def declarations(model: type[BaseModel]) -> Mapping[str, Declaration]:
    """Return what a model declares, by attribute."""
    by_attribute = {}
    for name, info in model.model_fields.items():
        form = next((annotation for annotation in info.metadata if isinstance(annotation, Form)), TEXT)
        options = {"flags": (), "metavar": form.metavar, **cast("dict[str, Any]", info.json_schema_extra)}
        options["flags"] = (name.replace("_", "-"),) if options["flags"] is None else options["flags"]
        options["keys"] = options["keys"] or tuple(
            spelling.replace("-", "_").upper() for spelling in options["flags"] or (name,)
        )
        by_attribute[name] = Declaration(name, form, info.default, info.description or "", **options)
    return by_attribute


@cache
def by_key(model: type[BaseModel]) -> Mapping[str, Declaration]:
    """Return what a model declares, by canonical key."""
    return {declared.key: declared for declared in declarations(model).values()}
