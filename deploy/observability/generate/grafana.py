"""Dashboards in the JSON of Grafana 11: panels by kind, laid out from left to right in rows of 24 columns.

In: panels with their queries, in reading order. Out: the document. Every panel has a description and a unit; nothing
here knows of a metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SCHEMA_VERSION: Final = 39
"""The version of Grafana 11. Later versions of Grafana read it and convert it."""
COLUMNS: Final = 24
ROW_HEIGHT: Final = 1
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PanelExpression:
    """One PromQL expression; ``legend`` may name labels as ``{{label}}``. A table takes the values of now only."""

    expression: str
    legend: str = "__auto"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``kind`` is Grafana's name of it, ``unit`` Grafana's of the values (``short``: a plain number)."""

    kind: str
    title: str
    description: str
    queries: Sequence[PanelExpression]
    unit: str
    width: int
    height: int
    defaults: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    transformations: Sequence[Json] = ()
    overrides: Sequence[Json] = ()

    def document(self, number: int, *, x: int, y: int) -> Json:
        """Return the JSON of the panel at a place of the page."""
        instant = self.kind in ("stat", "table")
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": {"unit": self.unit, **self.defaults}, "overrides": list(self.overrides)},
            "options": self.options,
            "transformations": list(self.transformations),
            "targets": [
                {
                    "refId": _letter(position),
                    "datasource": SOURCE,
                    "expr": query.expression,
                    "legendFormat": query.legend,
                    "instant": instant,
                    "range": not instant,
                    "format": "table" if self.kind == "table" else "time_series",
                }
                for position, query in enumerate(self.queries)
            ],
        }


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A headline and the panels under it."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice on top of the page: the values of a label. ``several`` offers many of them, and all."""

    name: str
    label: str
    metric: str
    values_of: str
    several: bool = True

    def document(self) -> Json:
        """Return the JSON of the variable."""
        query = f"label_values({self.metric}, {self.values_of})"
        return {
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": f"variable-{self.name}"},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": self.several,
            "includeAll": self.several,
            "allValue": ".*" if self.several else None,
            "current": {"text": ["All"], "value": ["$__all"]} if self.several else {},
            "options": [],
            "hide": 0,
        }


@dataclass(frozen=True, slots=True)
class TextBox:
    """A text on top of the page, with a default. Its values are not taken from series: they say which series count."""

    name: str
    label: str
    default: str

    def document(self) -> Json:
        """Return the JSON of the variable; without ``current`` Grafana begins with the query."""
        return {
            "name": self.name,
            "label": self.label,
            "type": "textbox",
            "query": self.default,
            "current": {},
            "options": [],
            "hide": 0,
        }


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A whole page. ``uid`` is its address and must stay."""

    uid: str
    title: str
    description: str
    variables: Sequence[TextBox | Variable]
    rows: Sequence[PanelRow]

    def document(self) -> Json:
        """Return the JSON of the dashboard."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["workload-variant-autoscaler"],
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "timezone": "browser",
            "time": {"from": "now-1h", "to": "now"},
            "refresh": "30s",
            "links": [_LINK],
            "annotations": {"list": []},
            "templating": {"list": [_DATASOURCE, *(variable.document() for variable in self.variables)]},
            "panels": _laid_out(self.rows),
        }


_DATASOURCE: Final[Json] = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "current": {},
    "options": [],
    "hide": 0,
    "refresh": 1,
}
_LABEL_TITLES: Final = {
    "exported_namespace": "Namespace",
    "variant_name": "Variant",
    "model_name": "Model",
    "accelerator_type": "Accelerator",
    "reason": "Reason",
    "held": "Held",
}
_LINK: Final[Json] = {
    "title": "Workload variants",
    "type": "dashboards",
    "tags": ["workload-variant-autoscaler"],
    "asDropdown": True,
    "includeVars": True,
    "keepTime": True,
}


def stat(
    title: str, description: str, *queries: PanelExpression, unit: str = "short", defaults: Json | None = None
) -> Panel:
    """Return a panel with the values of now as large numbers; eight fit side by side."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value_and_name" if len(queries) > 1 or "{{" in queries[0].legend else "value",
        "colorMode": "value",
        "graphMode": "none",
    }
    return Panel("stat", title, description, queries, unit, 3, 4, defaults=defaults or {}, options=options)


def graph(
    title: str, description: str, *queries: PanelExpression, unit: str = "short", stacked: bool = False, width: int = 8
) -> Panel:
    """Return a panel with lines over time; stacked where the sum means something."""
    custom: Json = {"lineWidth": 1, "fillOpacity": 25 if stacked else 5, "showPoints": "never", "spanNulls": False}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel(
        "timeseries",
        title,
        description,
        queries,
        unit,
        width,
        8,
        defaults={"custom": custom, "min": 0},
        options=options,
    )


def steps(title: str, description: str, *queries: PanelExpression, unit: str = "short", width: int = 12) -> Panel:
    """Return a graph of whole numbers that jump: no slope between two of them."""
    panel = graph(title, description, *queries, unit=unit, width=width)
    panel.defaults["custom"]["lineInterpolation"] = "stepAfter"
    panel.defaults["decimals"] = 0
    return panel


def states(title: str, description: str, query: PanelExpression, *, width: int = 24, height: int = 8) -> Panel:
    """Return a band per series that is filled while its value is 1."""
    defaults = {
        "custom": {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False},
        "mappings": [{"type": "value", "options": {"1": {"text": "yes", "index": 0}}}],
        "color": {"mode": "palette-classic-by-name"},
    }
    options = {"showValue": "never", "rowHeight": 0.8, "mergeValues": True, "legend": {"showLegend": False}}
    return Panel(
        "state-timeline", title, description, (query,), "short", width, height, defaults=defaults, options=options
    )


def table(title: str, description: str, columns: Sequence[tuple[str, PanelExpression]]) -> Panel:
    """Return a table with one row per label set: the labels, then the value of each query under its title.

    At least two queries. Without a title it is the labels of a query that say something, and its value is not shown.
    """
    names = {f"Value #{_letter(position)}": title for position, (title, _) in enumerate(columns)}
    hidden = ["Time", *(field for field, title in names.items() if not title)]
    shown = {field: title for field, title in names.items() if title} | _LABEL_TITLES
    organize = {
        "id": "organize",
        "options": {"excludeByName": dict.fromkeys(hidden, True), "renameByName": shown},
    }
    queries = [query for _, query in columns]
    return Panel(
        "table",
        title,
        description,
        queries,
        "short",
        COLUMNS,
        9,
        options={"showHeader": True, "cellHeight": "sm"},
        transformations=({"id": "merge", "options": {}}, organize),
    )


def warning_above(limit: float) -> Json:
    """Return thresholds: green up to the limit, orange from there on."""
    return {
        "color": {"mode": "thresholds"},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": "green", "value": None}, {"color": "orange", "value": limit}],
        },
    }


def warning_below(limit: float) -> Json:
    """Return thresholds: red below the limit, green from there on."""
    return {
        "color": {"mode": "thresholds"},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": "red", "value": None}, {"color": "green", "value": limit}],
        },
    }


def _letter(position: int) -> str:
    return chr(ord("A") + position)


def _laid_out(rows: Sequence[PanelRow]) -> list[Json]:
    """Return headlines and panels with numbers and places; a panel that does not fit begins a new line."""
    placed: list[Json] = []
    y = 0
    for row in rows:
        placed.append(_headline(row.title, len(placed) + 1, y=y))
        y += ROW_HEIGHT
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                y, x, tallest = y + tallest, 0, 0
            placed.append(panel.document(len(placed) + 1, x=x, y=y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return placed


def _headline(title: str, number: int, *, y: int) -> Json:
    place = {"h": ROW_HEIGHT, "w": COLUMNS, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
