"""Models that cannot be read: if reading a model raises an exception, WVA holds this model and reads all others.

Such an exception is an error of this program, since wrong input has its own messages. So WVA logs the traceback, and
the same one only from time to time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from wva import log
from wva.model.snapshot import UnreadModel
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey

T = TypeVar("T")

_log = log.get("collect")
_EVERY_LINE: Final = log.Throttle()


class Faults:
    """The models that have to be held in one cycle, each with the first cause."""

    def __init__(self, now: float = 0.0, *, throttle: log.Throttle = _EVERY_LINE) -> None:
        """Begin without faults; ``throttle`` decides at ``now`` (in seconds) which log lines are written."""
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
        """Return the result of ``read``. If it raises, hold the model and return ``default``."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - a model that raises must not end the others
            self.note(model, what, error)
            return default

    def unread(self) -> tuple[UnreadModel, ...]:
        """Return the models to hold, sorted."""
        return tuple(UnreadModel(model, self._found[model]) for model in sorted(self._found))
