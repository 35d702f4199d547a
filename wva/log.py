"""Logging set-up: structlog, one event name for each kind of event, with keys and values.

Event names are constants in the past tense. Where operators already grep for a text ("Safety net activated"), that text
is the message, and WVA's constant name is the field ``event_name``. Every logger cuts long values, so that no user text
can flood a line, and masks values whose key names a secret.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Hashable
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

Encoding = Literal["json", "console"]

MAX_VALUE_CHARACTERS: Final = 2048
MAX_TRACEBACK_CHARACTERS: Final = 8192
_SECRET_WORDS: Final = ("token", "password", "secret", "authorization", "private_key")
LEVELS: Final = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40}


def tame(_: WrappedLogger, __: str, event_dict: EventDict) -> EventDict:
    """Mask every text whose key names a secret, and cut long texts, at any depth; numbers and booleans stay.

    A traceback keeps both ends: where it began, and what was raised.
    """
    tamed = {key: _tamed(key, value) for key, value in event_dict.items()}
    trace, half = event_dict.get("exception"), MAX_TRACEBACK_CHARACTERS // 2
    if isinstance(trace, str):
        tamed["exception"] = trace if len(trace) <= 2 * half else f"{trace[:half]}\n...\n{trace[-half:]}"
    return tamed


def _tamed(key: str, value: Any) -> Any:
    if isinstance(value, str):
        if _names_secret(key):
            return "***"
        return value if len(value) <= MAX_VALUE_CHARACTERS else value[:MAX_VALUE_CHARACTERS] + "..."
    if isinstance(value, dict):
        return {name: _tamed(str(name), inner) for name, inner in value.items()}
    return [_tamed(key, item) for item in value] if isinstance(value, list) else value


@lru_cache(maxsize=1024)
def _names_secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRET_WORDS) and not key.lower().endswith("_path")


def escape_controls(_: WrappedLogger, __: str, event_dict: EventDict) -> EventDict:
    """Escape control characters, which could steer a terminal; the console renderer does not escape them."""
    for key, value in event_dict.items():
        if isinstance(value, str) and key != "exception":
            event_dict[key] = printable(value)
    return event_dict


def words_first(_: WrappedLogger, __: str, event_dict: EventDict) -> EventDict:
    """Put time, level and words before the fields, so that ``grep "words.*field"`` finds the line."""
    return {key: event_dict[key] for key in ("ts", "level", "event") if key in event_dict} | dict(event_dict)


def printable(text: str) -> str:
    """Return text with unprintable characters escaped: controls, line ends, direction marks."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _Unbreakable:
    """A stream that drops text that it cannot write: a full disk or a closed stderr must not end the process.

    It does not inherit from a class of ``io``: their finalizer flushes at the end of the interpreter, when this module
    is already gone.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def configure(*, level: str, encoding: Encoding) -> None:
    """Set up structlog and route the standard library's loggers through it.

    ``level`` is a key of ``LEVELS``. Lines go to stderr: stdout belongs to commands that print a result.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.format_exc_info,
        tame,
    ]
    if encoding == "console":
        shared.append(escape_controls)
    else:
        shared.append(words_first)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if encoding == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Unbreakable(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    foreign = [structlog.stdlib.add_logger_name, *shared]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=foreign))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(LEVELS[level], logging.WARNING))


def set_level(level: str) -> None:
    """Change the level of everything that logs, from the next line on; ``level`` is a key of ``LEVELS``."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]))
    logging.getLogger().setLevel(max(LEVELS[level], logging.WARNING))


class Throttle:
    """Permits a log line with the same words about the same thing only once in ``seconds``.

    A limit for all lines together keeps many failures from filling a disk. Threads may share a throttle.
    """

    def __init__(self, seconds: float = 600.0, *, most: int = 100) -> None:
        """``most`` is how many lines are written within ``seconds``."""
        self._seconds = seconds
        self._most = most
        self._written_at: dict[tuple[Hashable, str], float] = {}  # oldest first
        self._lock = Lock()

    def permits(self, thing: Hashable, words: str, now: float) -> bool:
        """Tell whether to write these words at ``now`` (in seconds); then they count as written."""
        with self._lock:
            while self._written_at and not 0 <= now - next(iter(self._written_at.values())) < self._seconds:
                del self._written_at[next(iter(self._written_at))]
            if (thing, words) in self._written_at or len(self._written_at) >= self._most:
                return False
            self._written_at[thing, words] = now
            return True


def get(name: str) -> FilteringBoundLogger:
    """Return the logger of one component; ``name`` ends up in the field ``component`` (``logger`` is taken)."""
    logger: FilteringBoundLogger = structlog.get_logger(component=name)
    return logger
