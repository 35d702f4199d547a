"""Reads the page of an endpoint picker while it arrives: a few series, among any number of others.

Clients can make a page long. Each value of the header ``x-gateway-inference-fairness-id`` adds twenty series of 4.5 kB
in all, which the picker (GAIE 1.3) never drops. So WVA keeps only sums by model of a page, and parses only values that
are not zero. Requests beyond a bound count without the name of a model, and do not make the page an error.

The picker of llm-d-router has two names for each metric, of which one will go. Both count the same requests, so only
the sum of one name counts: that of the new name where the page has it.

A page without the queue metric does not say that nobody waits. The series of a queue begins with the first request, so
the other metrics of the page tell whether flow control is on.

Every step takes time in proportion to the page, for any text. Every number must be within a range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from wva.numbers import Real, Whole

QUEUE_SIZE_METRICS: Final = ("llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size")
"""The names of the metric that counts the requests that a picker holds, the preferred one first."""

ERROR_METRICS: Final = ("llm_d_epp_request_error_total", "inference_objective_request_error_total")
"""The names of the metric that counts the requests that a picker refused, the preferred one first."""

MAX_WAITING: Final = 1_000_000_000.0
"""The most requests in one line. No queue holds more, and sums of such numbers stay far from where floats overflow."""

MAX_MODELS: Final = 10_000
"""How many models of one page are told apart: what waits for others counts without a name."""

MAX_NAMED_BYTES: Final = 1024 * 1024
"""How many bytes of lines are searched for the name of a model; what the lines after them say counts without one."""

ENOUGH_BYTES: Final = 1024 * 1024
"""A page that is longer need not be read to its end when all of its queues have been read."""

UNNAMED: Final = ""
"""The key under which requests count whose model a page does not name."""

_MAX_LINE_BYTES: Final = 16 * 1024
_MAX_MODEL_CHARACTERS: Final = 512
_NAME: Final = rb"[A-Za-z_:][A-Za-z0-9_:]*+"
_EXPOSITION: Final = re.compile(rb"\Z|#|" + _NAME + rb"(\{[^\n]*\})?[ \t]+[-+0-9NnIi]")
"""How metrics begin: with nothing at all, a comment, or a sample."""

_LONG_SAMPLE: Final = re.compile(_NAME + rb"\{")
_WANTED: Final = re.compile(
    rb"\n(" + "|".join((*QUEUE_SIZE_METRICS, *ERROR_METRICS)).encode() + rb")(?=[{ \t])([^\n]*+)"
)
_REFUSED: Final = b'error_code="ServiceUnavailable"'
"""The label of requests for which there was no pod. Other errors are no reason to start one."""

_NAMED: Final = re.compile(rb'[{,]model_name="[^",}]')
"""The label, and no value of another label that a client has chosen to look like it."""

_FLOW_CONTROL: Final = (b"\nllm_d_epp_flow_control_", b"\ninference_extension_flow_control_")
_SERVED: Final = (b"\nllm_d_epp_request_total{", b"\ninference_objective_request_total{")
_LABEL: Final = re.compile(r'[ \t]*+([A-Za-z_][A-Za-z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+(?:,|(?=\}))')
_LABELS: Final = re.compile(rf"\{{(?:{_LABEL.pattern})*+[ \t]*+\}}")
_ESCAPE: Final = re.compile(r'\\(["\\n])')
_NO_NUMBERS: Final = frozenset({"nan", "inf", "+inf", "-inf"})
_WAITING: Final = Real(-MAX_WAITING, MAX_WAITING)
_COUNTED: Final = Real(0, 2.0**53)
_MILLISECONDS: Final = Whole(-(2**63), 2**63 - 1)
_VALUE_AND_TIME: Final = 2
_QUEUE_NAMES: Final = frozenset(name.encode() for name in QUEUE_SIZE_METRICS)
_MODEL_LABELS: Final = frozenset({"target_model_name", "model_name"})


class NotMetricsError(ValueError):
    """An answer that is no page of metrics; the message says what it is, in words that are safe to show."""


class FlowControl(Enum):
    """Whether a picker holds requests, according to its page."""

    ON = "on"
    OFF = "off"
    """It has had requests, and shows nothing of flow control."""
    UNKNOWN = "unknown"
    """It has had no request yet."""


@dataclass(frozen=True, slots=True)
class PickerPage:
    """What a page says: the requests that wait, by model id, and those that were refused since the picker began.

    Requests without the name of a model are counted at ``UNNAMED``. ``refused`` is empty where the picker holds the
    requests of each model, because it refuses only what it has held before.
    """

    waiting: Mapping[str, float]
    refused: Mapping[str, float]
    flow_control: FlowControl


@dataclass(slots=True)
class _Family:
    """The sum of one metric, by model id; ``named``: some series has the name of a model."""

    limits: Real
    totals: dict[str, float] = field(default_factory=dict)
    present: bool = False
    named: bool = False

    def add(self, model: str, value: float) -> None:
        if value <= 0:
            return
        known = len(model) <= _MAX_MODEL_CHARACTERS and (model in self.totals or len(self.totals) < MAX_MODELS)
        name = model if known else UNNAMED
        self.totals[name] = self.totals.get(name, 0.0) + value


class PickerPageReader:
    """Takes a page piece by piece. One piece of 64 KiB takes a few milliseconds at most."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.size = 0
        """How many bytes have been read."""
        self.enough = False
        """Whether the page is long, and all of its queues have been read."""
        self._rest = b""
        self._begun = False
        self._in_long_line = False
        self._flow_control = self._served = False
        self._named_bytes = 0
        self._families = {name: _Family(_WAITING) for name in _QUEUE_NAMES}
        self._families.update((name.encode(), _Family(_COUNTED)) for name in ERROR_METRICS)

    def feed(self, piece: bytes) -> None:
        """Read the next piece.

        Raises ValueError on a malformed line and on a number beyond ``MAX_WAITING``, and NotMetricsError on a text that
        does not begin like an exposition: a login page must not pass for an empty queue.
        """
        self.size += len(piece)
        text = self._rest + piece
        if not self._begun:
            text = text.lstrip()
        if self._in_long_line:
            _, newline, text = text.partition(b"\n")
            self._in_long_line = not newline
        whole, _, rest = text.rpartition(b"\n")
        if not self._begun and (whole or len(rest) > _MAX_LINE_BYTES):
            self._begin(text)
        if len(rest) > _MAX_LINE_BYTES:
            self._note(b"\n" + rest)
            self._in_long_line, rest = True, b""
        self._rest = rest
        self._read(whole)

    def end(self) -> PickerPage:
        """Return what the whole page says. Raises as ``feed`` does."""
        if not self._begun:
            self._begin(self._rest)
        self._read(self._rest)
        self._rest = b""
        queue, refused = (self._preferred(names) for names in (QUEUE_SIZE_METRICS, ERROR_METRICS))
        if self._flow_control:
            flow_control = FlowControl.ON
        else:
            flow_control = FlowControl.OFF if self._served or refused.present else FlowControl.UNKNOWN
        return PickerPage(queue.totals, {} if queue.named else refused.totals, flow_control)

    def _begin(self, text: bytes) -> None:
        line = text[:_MAX_LINE_BYTES].partition(b"\n")[0]
        if not _EXPOSITION.match(line) and not (len(line) == _MAX_LINE_BYTES and _LONG_SAMPLE.match(line)):
            raise NotMetricsError("something that is no page of metrics")
        self._begun = True

    def _read(self, lines: bytes) -> None:
        """Read whole lines."""
        text = b"\n" + lines
        self._note(text)
        queues = 0
        for match in _WANTED.finditer(text):
            name, sample = match.groups()
            queue = name in _QUEUE_NAMES
            queues += queue
            if (queue or _REFUSED in sample) and len(name) + len(sample) <= _MAX_LINE_BYTES:
                self._count(self._families[name], sample)
        models_named = any(self._families[name].named for name in _QUEUE_NAMES)
        self.enough = self.size > ENOUGH_BYTES and models_named and bool(lines) and not queues

    def _note(self, text: bytes) -> None:
        """Note which metrics the page has."""
        self._flow_control = self._flow_control or any(name in text for name in _FLOW_CONTROL)
        self._served = self._served or any(name in text for name in _SERVED)

    def _count(self, family: _Family, sample: bytes) -> None:
        """Add one sample to the sum of its metric."""
        family.present = True
        family.named = family.named or _NAMED.search(sample) is not None
        if sample.endswith(b" 0"):
            return
        self._named_bytes += len(sample)
        if self._named_bytes > MAX_NAMED_BYTES:
            family.add(UNNAMED, _value(sample.rpartition(b"}")[2].decode(), family.limits))
            return
        # After the name of the metric come labels, a value, and maybe a time.
        text = sample.decode("utf-8").lstrip(" \t")
        braces = _LABELS.match(text)
        if braces is None and text.startswith("{"):
            raise ValueError("no label")
        end = 0 if braces is None else braces.end()
        value = _value(text[end:], family.limits)
        labels = {
            name: _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)
            for name, value in _LABEL.findall(text[:end])
            if name in _MODEL_LABELS
        }
        family.add(labels.get("target_model_name") or labels.get("model_name") or UNNAMED, value)

    def _preferred(self, names: Iterable[str]) -> _Family:
        families = [self._families[name.encode()] for name in names]
        return next((family for family in families if family.present), families[-1])


def _value(text: str, limits: Real) -> float:
    """Return the value of a sample; zero for NaN and infinity. Raises ValueError."""
    parts = text.split()
    if not 1 <= len(parts) <= _VALUE_AND_TIME:
        raise ValueError("no value, or more than value and time")
    if len(parts) == _VALUE_AND_TIME and _MILLISECONDS.find(parts[1]) is None:
        raise ValueError("no time")
    value = 0.0 if parts[0].lower() in _NO_NUMBERS else limits.find(parts[0])
    if value is None:
        raise ValueError("no value")
    return value
