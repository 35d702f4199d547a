"""Models that cannot be read: if objects or samples of a model raise an exception, it is held, and all others go on.

An exception here is an error of this program: input that is merely wrong has its own messages. So it is logged with
its traceback, though not again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from wva import log
from wva.model.failures import cause_of
from wva.model.snapshot import UnreadModel
from wva.model.variant import ModelKey

T = TypeVar("T")

_log = log.get("collect")
_EVERY_LINE: Final = log.Throttle()


class Faults:
    """The models that have to be held in one cycle, each with the first cause."""

    def __init__(self, now: float = 0.0, *, throttle: log.Throttle = _EVERY_LINE) -> None:
        """Begin without any; ``now`` (in seconds) and ``throttle`` say which log lines have been written lately."""
        self._found: dict[ModelKey, str] = {}
        self._now = now
        self._throttle = throttle

    def __contains__(self, model: ModelKey) -> bool:
        """Tell whether a model has to be held."""
        return model in self._found

    def note(self, model: ModelKey, what: str, error: Exception) -> None:
        """Hold a model because ``what`` (``reading variant a``) raised an exception."""
        cause = f"{what} failed: {cause_of(error)}"
        self._found.setdefault(model, cause)
        if self._throttle.permits(model, cause, self._now):
            _log.error("model_failed", model=str(model), cause=cause, exc_info=error)

    def attempt(self, model: ModelKey, what: str, read: Callable[[], T], default: T) -> T:
        """Return what is read of a model; ``default`` if that raises, and the model is held."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - this is what isolates
            self.note(model, what, error)
            return default

    def unread(self) -> tuple[UnreadModel, ...]:
        """Return the models to hold, sorted."""
        return tuple(UnreadModel(model, self._found[model]) for model in sorted(self._found))
