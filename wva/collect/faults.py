"""The models that cannot be read in a cycle: an exception about one model concerns only this model.

Such an exception is an error of this program, since wrong input has its own messages. WVA holds the model, reads all
others, and logs the traceback, the same one only from time to time.

The same holds at each later step, for whatever may raise about one model or variant:

- reading: here. ``Snapshot.unread`` has the models, and deciding holds them with the cause in words;
- deciding: ``decide.failed`` sets models aside until the others can be decided on;
- publishing: ``optimizer`` keeps the former number of a variant on which anything raised (``_publish``);
- statuses: ``controllers`` reports a check that raised in place of its result, and the queue retries only that key;
- series: ``publish.metrics`` leaves out the variant, and shows the others;
- starts from zero: ``scale_from_zero.loop`` cannot start that one model, and a condition says why.

A query that fails is no exception: ``query_failures`` says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from wva import log
from wva.model.snapshot import UnreadModel
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey

T = TypeVar("T")

_log: Final = log.get("collect")


class Faults:
    """The models that have to be held in one cycle, each with the first cause."""

    def __init__(self, now: float, throttle: log.Throttle) -> None:
        """Begin without faults; ``throttle`` decides at ``now`` (in seconds) which log lines are written."""
        self._causes: dict[ModelKey, str] = {}
        self._now = now
        self._throttle = throttle

    def __contains__(self, model: ModelKey) -> bool:
        """Tell whether a model has to be held."""
        return model in self._causes

    def note(self, model: ModelKey, what: str, error: Exception) -> None:
        """Hold a model because ``what`` (``reading variant a``) raised an exception."""
        cause = f"{what} failed: {cause_of(error)}"
        self._causes.setdefault(model, cause)
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
        return tuple(UnreadModel(model, self._causes[model]) for model in sorted(self._causes))
