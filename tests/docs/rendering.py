"""Renders the tables of the documentation from the code; ``python -m tests.docs.rendering`` rewrites the pages."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import SecretStr

from tests.docs import engine_differences, physics_tables, scorecard_figures
from tests.docs.markdown import table
from tests.docs.picture import picture
from tests.publish import wrong_states
from wva.api.crd import definition
from wva.collect.days import expressions as earlier_days_expressions
from wva.collect.in_time import ITL_BOUNDS, PICKER_ITL_BOUNDS, PICKER_TTFT_BOUNDS, TTFT_BOUNDS, in_time_query
from wva.collect.queries import ANALYZER_QUERIES, ESSENTIAL_QUERIES
from wva.config import Settings
from wva.config.declare import DURATION, ENVIRONMENT, declarations
from wva.config.keys import (
    ClassFields,
    CostFields,
    ModelFields,
    ProfileFields,
    QueueingFields,
    SaturationFields,
    ScaleToZeroFields,
    TargetFields,
)
from wva.config.kinds import MapKind, Queueing, Saturation
from wva.decide.rules import RULES, Course
from wva.doctor.diagnosis import MEANINGS
from wva.godurations import format_promql_duration
from wva.instruments import Instruments
from wva.model.decision import HOLD_REASONS, Reason
from wva.model.objectives import DEFAULT_OBJECTIVES
from wva.publish import metrics
from wva.publish.meanings import MEANINGS_OF_REASONS
from wva.publish.obstacles import OBSTACLES
from wva.sim.scorecard.learning import LEARNING
from wva.sim.scorecard.roles import ROLES
from wva.sim.scorecard.worlds import WORLDS
from wva.sim.traffic.acceptance import TRACES, comparisons
from wva.sim.traffic.kinds import KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOT_THE_CONTROLLERS = {
    "metrics-reader",
    "variantautoscaling-admin-role",
    "variantautoscaling-editor-role",
    "variantautoscaling-viewer-role",
}


def settings_table():
    """Return one row per setting: flags, keys, default, when it applies, meaning."""
    return table(("Flag", "Key", "Key in", "Default", "Applies", "Meaning"), settings_rows(Settings))


def settings_rows(model):
    """Return the cells of the table's rows."""
    rows = []
    for each in declarations(model).values():
        flags = "<br>".join(f"`{'-' if len(flag) == 1 else '--'}{flag}`" for flag in each.flags) or "-"
        keys = "<br>".join(f"`{key}`" for key in each.keys) if each.places else "-"
        where = "environment" if each.places == (ENVIRONMENT,) else "both" if each.places else "-"
        meaning = f"{each.meaning} No effect: {each.no_effect}." if each.no_effect else each.meaning
        rows.append((flags, keys, where, _default(each.default), "live" if each.live else "start", meaning))
    return rows


def _default(value):
    if isinstance(value, SecretStr) or value in ("", None):
        return "-"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}s`" if isinstance(value, float) else f"`{value}`"


def config_maps_table():
    """Return one row per kind of ConfigMap: its names, and whether WVA reads it in other namespaces too."""
    settings = {each.default: each.key for each in declarations(Settings).values() if each.default}
    rows = [
        (
            kind.title,
            f"`{kind.canonical}`",
            f"`{settings[kind.canonical]}`" if kind.canonical in settings else "-",
            ", ".join(f"`{name}`" for name in kind.aliases) or "-",
            "yes" if kind.local else "no",
        )
        for kind in MapKind
    ]
    return table(("Kind", "Name", "Setting for another name", "Also found as", "In namespaces"), rows)


def entry_table(fields, *, base=None, more=()):
    """Return one row per field of an entry; ``base`` has the defaults of the fields."""
    declared = [each for model in fields for each in declarations(model).values()]
    if issubclass(fields[0], ModelFields):  # fields that select the models of an entry come last
        declared.sort(key=lambda each: each.attribute in ModelFields.model_fields)
    rows = [(f"`{each.key}`", _unset(each, base), each.meaning) for each in declared]
    return table(("Field", "Default", "Meaning"), [*rows, *more])


def _unset(declared, base):
    value = getattr(base, declared.attribute, None)
    if value is None:
        return declared.unset if " " in declared.unset or declared.unset == "-" else f"`{declared.unset}`"
    return f"`{format_promql_duration(value) if declared.form is DURATION else declared.form.show(value)}`"


def variant_metrics_table():
    """Return one row per series about variants."""
    return _families_table(metrics.OUTPUT)


def explanation_metrics_table():
    """Return one row per series that explains a number."""
    return _families_table(metrics.EXPLANATION)


def shadow_metrics_table():
    """Return one row per series of a variant in shadow mode."""
    return _families_table(metrics.SHADOW)


def _families_table(families):
    rows = [
        (f"`{each.name}{'_total' if each.type == 'counter' else ''}`", each.type, ", ".join(each.labels), each.help)
        for each in families
    ]
    return table(("Metric", "Type", "Labels", "Meaning"), rows)


def own_metrics_table():
    """Return one row per metric of the controller about itself."""
    instruments = Instruments(CollectorRegistry())
    kinds = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
    rows = []
    for metric in vars(instruments).values():
        if type(metric) in kinds:
            kind = kinds[type(metric)]
            suffix = "_total" if kind == "counter" else ""
            labels = ", ".join(metric._labelnames) or "-"
            rows.append((f"`{metric._name}{suffix}`", kind, labels, metric._documentation))
    return table(("Metric", "Type", "Labels", "Meaning"), sorted(rows))


def queries_table():
    """Return one row per query that WVA sends in every cycle."""
    rows = [(f"`{query.name}`", _query(query.text)) for query in (make(["ns"]) for make in ESSENTIAL_QUERIES.values())]
    return table(("Query", "PromQL"), rows)


def signals_table():
    """Return one row per expression of the queries that WVA sends for some analyzers only."""
    rows = []
    for query in (make(["ns"]) for make in ANALYZER_QUERIES.values()):
        found = re.findall(r'label_replace\((.*?), "signal", "(\w+)", "", ""\)', query.text)
        rows += [(f"`{query.name}`", f"`{signal}`", _query(text)) for text, signal in found]
    return table(("Query", "`signal`", "PromQL"), rows)


def in_time_table():
    """Return one row per expression of the query about requests in time, as for the objectives that are built in."""
    text = in_time_query(["ns"], [DEFAULT_OBJECTIVES]).text
    found = re.findall(r'label_replace\(((?:(?!label_replace).)*?), "signal", "(\w+)", "", ""\)', text)
    return table(("`signal`", "PromQL"), [(f"`{signal}`", _query(each)) for each, signal in found])


def earlier_days_table():
    """Return one row per expression of the query about earlier days."""
    rows = [(f"`{signal}`", _query(text)) for signal, text in earlier_days_expressions(["ns"]).items()]
    return table(("`signal`", "PromQL"), rows)


def bounds_table():
    """Return the bounds of the histograms that objectives are judged by."""
    histograms = {
        "vllm:time_to_first_token_seconds": TTFT_BOUNDS,
        "vllm:request_time_per_output_token_seconds": ITL_BOUNDS,
        "llm_d_epp_request_ttft_seconds": PICKER_TTFT_BOUNDS,
        "llm_d_epp_request_streaming_tpot_seconds": PICKER_ITL_BOUNDS,
    }
    rows = [(f"`{name}`", ", ".join(f"{bound:g}" for bound in bounds)) for name, bounds in histograms.items()]
    return table(("Histogram", "Bounds, in seconds"), rows)


def _query(text):
    return "`" + text.replace('"ns"', '"..."') + "`"


def rights_table():
    """Return one row per resource of the controller's roles."""
    rows = []
    for file in sorted((DOCS.parent / "deploy" / "rbac").glob("*.yaml")):
        for item in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if item.get("kind") not in {"Role", "ClusterRole"} or item["metadata"]["name"] in NOT_THE_CONTROLLERS:
                continue
            for rule in item["rules"]:
                what = "<br>".join(
                    f"`{resource}{'.' if group else ''}{group}`{' (names)' if 'resourceNames' in rule else ''}"
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                )
                rows.append((f"`{item['metadata']['name']}`", item["kind"], what, ", ".join(rule["verbs"])))
    return table(("Role", "Kind", "Resources", "Verbs"), rows)


def obstacles_table():
    """Return one row per reason why WVA does not scale a variant."""
    rows = [
        (f"`{each.reason}`", each.meaning, f"`{each.condition}` is {each.status}", f"`{each.event}`")
        for each in OBSTACLES
    ]
    return table(("Reason", "Meaning", "Condition", "Event"), rows)


def reasons_table():
    """Return one row per reason of a decision that is no hold; those are obstacles."""
    found = [reason for reason in Reason if reason is Reason.NOT_DECIDED or reason not in HOLD_REASONS]
    return table(("Reason", "Meaning"), [(f"`{reason}`", MEANINGS_OF_REASONS[reason]) for reason in found])


def rules_table():
    """Return one row per rule of step 5, in the order in which they are asked."""
    rows = []
    for place, row in enumerate(RULES, start=1):
        when, number = row.rule.split(": ")
        courses = ", ".join(course for course in Course if course in row.courses)
        rows.append((f"{place}.", courses, when, number, f"`{row.rule.reason}`"))
    return table(("", "Course", "When", "Number", "Reason"), rows)


def places_table():
    """Return one row per state that a person calls wrong: how each place shows it, or why it does not."""
    header = ("What is wrong", "Reasons", *(place.value for place in wrong_states.Place))
    return table(header, wrong_states.rows())


def findings_table():
    """Return one row per finding of the doctor."""
    rows = [(link.value, f"`{name}`", meaning) for link, found in MEANINGS.items() for name, meaning in found.items()]
    return table(("Link", "Finding", "Meaning"), rows)


def _version():
    return definition()["spec"]["versions"][0]


def _fields(schema, path):
    """Yield a row for each field below a schema, with its path from the root of the object."""
    required = set(schema.get("required", ()))
    for name, field in schema["properties"].items():
        items = field.get("items", {})
        below = f"{path}.{name}" if path else name
        given = "required" if name in required else f"`{field['default']}`" if "default" in field else "-"
        yield (f"`{below}`", _type_of(field), given, _limits(field), field["description"])
        if "properties" in field:
            yield from _fields(field, below)
        elif "properties" in items:
            yield from _fields(items, f"{below}[]")


def _type_of(field):
    return f"list of {field['items']['type']}s" if field["type"] == "array" else field.get("format", field["type"])


def _limits(field):
    """Return the limits that the API server sets on the value of a field."""
    words = {
        "pattern": "matches `{}`",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "minimum": "at least {}",
    }
    found = [text.format(field[name]) for name, text in words.items() if name in field]
    found += ["one of " + ", ".join(f"`{value}`" for value in field["enum"])] if "enum" in field else []
    return "; ".join(found).replace("at least 1 characters", "not empty") or "-"


def _fields_table(part):
    rows = _fields(_version()["schema"]["openAPIV3Schema"]["properties"][part], part)
    return table(("Field", "Type", "Default", "Limits", "Meaning"), rows)


def spec_table():
    """Return one row per field of the spec."""
    return _fields_table("spec")


def status_table():
    """Return one row per field of the status."""
    return _fields_table("status")


def names_table():
    """Return the names of the custom resource's kind."""
    spec = definition()["spec"]
    names = spec["names"]
    rows = [
        ("API version", f"`{spec['group']}/{_version()['name']}`"),
        ("Kind", f"`{names['kind']}`"),
        (
            "Names for kubectl",
            ", ".join(f"`{name}`" for name in (names["plural"], names["singular"], *names["shortNames"])),
        ),
        ("Scope", spec["scope"]),
        ("Subresources", ", ".join(f"`{name}`" for name in _version()["subresources"])),
    ]
    return table(("What", "Value"), rows)


def columns_table():
    """Return one row per column of ``kubectl get``."""
    rows = [
        (column["name"], f"`{column['jsonPath']}`", "yes" if column.get("priority", 0) else "-")
        for column in _version()["additionalPrinterColumns"]
    ]
    return table(("Column", "Shows", "Only with `-o wide`"), rows)


def kinds_table():
    """Return one row per kind of traffic: a description, and the arguments with their defaults."""
    rows = []
    for name, kind in KINDS.items():
        what = getattr(kind, "func", kind).__doc__.splitlines()[0].removeprefix("Return ").rstrip(".")
        arguments = [
            f"{argument.name}={argument.default if isinstance(argument.default, str) else _number(argument.default)}"
            for argument in inspect.signature(kind).parameters.values()
            if isinstance(argument.default, (int, float, str))
        ]
        rows.append((f"`{name}`", what.replace("``", "`"), f"`{', '.join(arguments)}`"))
    return table(("Kind", "Requests", "Arguments"), rows)


def _number(value):
    """Return a number with three significant digits, or as a whole number from 100 on."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def traces_table():
    """Return one row per published statistic of a trace, next to that of the generated traffic."""
    rows = [
        (
            f"`{each.trace}`",
            each.statistic.replace("_", " "),
            _number(each.published),
            _number(each.generated),
            str(each.bound),
        )
        for name in TRACES
        for each in comparisons(name)
    ]
    return table(("Kind", "Statistic", "Published", "Generated", "May be off by"), rows)


def worlds_table():
    """Return one row per scenario in which more changes than a plain load, or that has something to learn."""
    return table(
        ("Scenario", "What happens"), [(f"`{world.name}`", world.title) for world in (*WORLDS, *LEARNING, *ROLES)]
    )


TABLES = {
    "../README.md": {"picture": picture},
    "conditions.md": {"obstacles": obstacles_table, "places": places_table, "reasons": reasons_table},
    "crd-reference.md": {
        "names": names_table,
        "columns": columns_table,
        "spec": spec_table,
        "status": status_table,
    },
    "decisions.md": {"rules": rules_table},
    "physics.md": physics_tables.TABLES,
    "design/engine-differences.md": engine_differences.TABLES,
    "security.md": {"rights": rights_table},
    "configuration.md": {"settings": settings_table},
    "config-maps.md": {
        "config-maps": config_maps_table,
        "saturation": lambda: entry_table([SaturationFields], base=Saturation.base),
        "scale-to-zero": lambda: entry_table([ScaleToZeroFields]),
        "queueing": lambda: entry_table([QueueingFields], base=Queueing.base),
        "service-classes": lambda: entry_table(
            [ClassFields, TargetFields], more=[("`data`", "-", "The models of the class, in the first form.")]
        ),
        "costs": lambda: entry_table([CostFields]),
        "profiles": lambda: entry_table([ProfileFields]),
    },
    "traffic.md": {"kinds": kinds_table, "traces": traces_table, "worlds": worlds_table},
    "explain-and-doctor.md": {"findings": findings_table},
    "metrics.md": {
        "variant-metrics": variant_metrics_table,
        "explanation-metrics": explanation_metrics_table,
        "shadow-metrics": shadow_metrics_table,
        "own-metrics": own_metrics_table,
        "queries": queries_table,
        "signals": signals_table,
        "in-time": in_time_table,
        "earlier-days": earlier_days_table,
    },
    "objectives.md": {"bounds": bounds_table, "costs": scorecard_figures.objective_costs},
    "roles.md": {"results": scorecard_figures.roles},
}


def rendered(text, tables):
    """Return a page in which the tables between markers are rendered from the code."""
    for name, render in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        assert pattern.search(text), f"the page has no place for the table {name}"
        text = pattern.sub(lambda match, render=render: f"{match[1]}{render()}\n{match[2]}", text)
    return text


def main():
    """Rewrite the tables in the pages."""
    for name, tables in TABLES.items():
        page = DOCS / name
        page.write_text(rendered(page.read_text(), tables))


if __name__ == "__main__":
    main()
