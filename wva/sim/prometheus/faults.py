"""Faults of the embedded Prometheus: switches that a test or the demo sets while the server runs.

They may be combined; all are off at first and after ``clear``. ``applies_to`` restricts them to some queries. The
switch that refuses connections is ``EmbeddedPrometheus.unreachable``, because it concerns the socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields


def _every_query(_: str | None) -> bool:
    return True


@dataclass(slots=True)
class PrometheusFaults:
    """The switches."""

    hang_up: bool = False
    """Close the connection without an answer."""

    status: int | None = None
    """Answer with this HTTP status, such as 500 or 503, and a body that is not JSON."""

    delay_seconds: float = 0.0
    """Wait this long before answering, in time of the event loop, because sockets live in real time."""

    malformed: bool = False
    """Answer with the first half of the JSON."""

    warnings: tuple[str, ...] = ()
    """Put these warnings into each answer."""

    hide: Callable[[Mapping[str, str]], bool] | None = None
    """Leave out stored series for whose labels this returns true, as a store with lost data does."""

    applies_to: Callable[[str | None], bool] = _every_query
    """Tell by the PromQL text (None: the path takes none) whether a request is affected."""

    def clear(self) -> None:
        """Switch all faults off."""
        for switch in fields(self):
            setattr(self, switch.name, switch.default)
