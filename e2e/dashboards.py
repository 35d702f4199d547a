"""Dashboards as data: their queries, with Grafana's variables filled in, and a real Prometheus to ask.

In: the JSON files of ``deploy/observability/dashboards`` and samples as OpenMetrics text. Out: what each query gives.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e import tools
from e2e.controlplane.build import PROMETHEUS
from e2e.controlplane.ports import free_port
from e2e.controlplane.processes import ServerProcess
from e2e.controlplane.prometheus import PrometheusApi

FOLDER: Final = Path(__file__).resolve().parents[1] / "deploy" / "observability"
NAMES: Final = ("fleet", "model", "decision", "trust")
RATE_INTERVAL: Final = "1m"
"""The value of Grafana's $__rate_interval with a scrape every 15 s."""

_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")
_LABEL_VALUES: Final = re.compile(r"label_values\((.+), (\w+)\)")
_LONG_AGO: Final = "100y"
_LOOKBACK: Final = "20s"  # samples as text do not say where a series ended


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One query of a panel; ``instant`` takes the values of now, otherwise it is drawn over time."""

    panel: str
    expression: str
    instant: bool


@dataclass(frozen=True, slots=True)
class SampleSpan:
    """From the first to the last sample, in seconds since the epoch."""

    start: float
    end: float


def dashboard(name: str) -> dict[str, Any]:
    """Return the JSON of a dashboard."""
    document: dict[str, Any] = json.loads((FOLDER / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))
    return document


def panels(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels without the headlines."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def queries(document: Mapping[str, Any]) -> list[PanelQuery]:
    """Return every query of every panel."""
    return [
        PanelQuery(panel["title"], target["expr"], target["instant"])
        for panel in panels(document)
        for target in panel["targets"]
    ]


def variables(document: Mapping[str, Any]) -> dict[str, tuple[str, str, bool]]:
    """Return metric with its matchers, label, and whether several may be chosen, by the name of the variable."""
    found = {}
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert match, variable["query"]
            found[variable["name"]] = (match[1], match[2], variable["multi"])
    return found


def defaults(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each box, by the name of the variable."""
    return {
        variable["name"]: variable["query"]
        for variable in document["templating"]["list"]
        if variable["type"] == "textbox"
    }


def filled(expression: str, choices: Mapping[str, str]) -> str:
    """Return an expression with Grafana's variables replaced; KeyError for one that the page does not offer."""
    known = {"__rate_interval": RATE_INTERVAL, **choices}
    return _VARIABLE.sub(lambda match: known[match[1]], expression)


class SampledPrometheus(PrometheusApi):
    """A Prometheus with the samples of a span."""

    def values(self, label: str, selector: str, span: SampleSpan) -> list[str]:
        """Return the values of a label among the series that a selector matches."""
        found: list[str] = self._get(f"/api/v1/label/{label}/values?{_parameters(span, **{'match[]': selector})}")[
            "data"
        ]
        return found

    def over_time(self, expression: str, span: SampleSpan, *, step_seconds: float = 15.0) -> list[list[float]]:
        """Return the values of each series over the span, those that are no number left out."""
        path = f"/api/v1/query_range?{_parameters(span, query=expression, step=str(step_seconds))}"
        return _numbers(series["values"] for series in self._get(path)["data"]["result"])

    def at(self, expression: str, seconds: float) -> list[list[float]]:
        """Return the value of each series at one time, those that are no number left out."""
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": expression, "time": f"{seconds:.3f}"})
        return _numbers([series["value"]] for series in self._get(path)["data"]["result"])

    def answers(self, asked: PanelQuery, choices: Mapping[str, str], span: SampleSpan) -> bool:
        """Tell whether a query has any result."""
        expression = filled(asked.expression, choices)
        return bool(self.at(expression, span.end) if asked.instant else self.over_time(expression, span))


@contextmanager
def filled_prometheus(samples: Path, directory: Path) -> Iterator[SampledPrometheus]:
    """Fill a real Prometheus with samples, and run it for the length of a block."""
    data = directory / "data"
    tools.output("promtool", "tsdb", "create-blocks-from", "openmetrics", samples, data)
    (directory / "prometheus.yaml").write_text("{}\n", encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    process = ServerProcess(
        "prometheus-of-dashboards",
        directory=directory,
        argv=[
            PROMETHEUS.binary("prometheus"),
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--web.listen-address={address}",
            f"--storage.tsdb.path={data}",
            f"--storage.tsdb.retention.time={_LONG_AGO}",
            f"--query.lookback-delta={_LOOKBACK}",
            "--log.level=warn",
        ],
    )
    history = SampledPrometheus(f"http://{address}")
    process.start()
    try:
        process.wait_ready(history.is_ready, timeout_seconds=60)
        yield history
    finally:
        process.stop()


def span_of(samples: Path) -> SampleSpan:
    """Return the span of a file of samples in order of time."""
    times = [line.rpartition(" ")[2] for line in _ends(samples)]
    return SampleSpan(float(times[0]), float(times[1]))


def _ends(samples: Path) -> tuple[str, str]:
    lines = samples.read_text(encoding="utf-8").splitlines()
    return lines[0], lines[-2]  # the last one is the end mark


def _parameters(span: SampleSpan, **others: str) -> str:
    return urllib.parse.urlencode({"start": f"{span.start:.3f}", "end": f"{span.end:.3f}", **others})


def _numbers(rows: Any) -> list[list[float]]:
    found = ([float(value) for _, value in row if value != "NaN"] for row in rows)
    return [values for values in found if values]


def expressions(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return every expression of the dashboards, with any choice."""
    return [
        filled(asked.expression, defaults(document) | dict.fromkeys(variables(document), ".*"))
        for document in documents
        for asked in queries(document)
    ]
