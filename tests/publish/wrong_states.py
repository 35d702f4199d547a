"""The states of a variant that a person calls wrong, and where each of them shows.

``STATES`` is the one list. ``shown`` asks the product itself, place by place: the status, the events, the page of
metrics, the alerts, the console, the doctor and the columns of ``kubectl get``. Where a state does not show,
``UNSHOWN`` has the reason why not. ``tests.docs.rendering`` makes the table in docs/conditions.md of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec
import promql_parser
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import Matcher, MatchOp, VectorSelector

from tests.docs.alerts import ALERTS, selectors
from tests.publish.collectors import collector
from tests.publish.decisions import KEY, NOW, decision
from tests.publish.situations import situation
from tests.publish.statuses import BROKEN, patched, wire
from wva.api.crd import definition
from wva.api.meta import Condition
from wva.api.variantautoscaling import ConditionType, VariantAutoscalingStatus
from wva.config.watch import INVALID_EVENT
from wva.doctor.variants import ExaminedVariant, condition_links
from wva.model.decision import Decision, Reason
from wva.model.trouble import TroubleReason
from wva.model.variant import Bounds
from wva.publish.announce import announcements
from wva.publish.ledger import Ledger
from wva.publish.obstacles import OBSTACLES, PARTLY_LIMITED, begun

REFUSED = "InvalidConfiguration"
"""The reason of ConfigurationValid, which is no obstacle."""

SELECTORS = {name: selectors(promql_parser.parse(rule["expr"])) for name, rule in ALERTS.items()}
_SCRIPTS = "".join(
    each.read_text() for each in files("wva.serve").joinpath("assets").iterdir() if each.name.endswith(".js")
)
GOOD_WHEN_TRUE = set(re.findall(r"\w+", re.findall(r"GOOD_WHEN_TRUE = new Set\(\[(.*?)\]", _SCRIPTS, re.DOTALL)[0]))
"""The conditions that the console shows in red unless they are True, as its script has them."""
_OF_A_TARGET = {"job", "namespace", "instance", "pod"}
_BESIDE = {REFUSED: {"wva_config_invalid_entries": 1.0}}
"""Series about the controller, and not about a variant, that a state raises above 0."""


class Place(StrEnum):
    """Where a person looks."""

    CONDITION = "Condition"
    EVENT = "Event"
    OBSTACLE = "`wva_variant_obstacle`"
    ALERT = "Alert"
    CONSOLE = "Console"
    DOCTOR = "`wva doctor`"
    COLUMN = "`kubectl get va -o wide`"


class WrongState(NamedTuple):
    """A state in the words of a person, with the reasons of conditions that tell it."""

    name: str
    reasons: tuple[str, ...]


def _state(name: str, *reasons: str) -> WrongState:
    return WrongState(name, tuple(str(reason) for reason in reasons))


STATES = (
    _state(
        "its target is missing or not its own",
        "DeploymentNotFound",
        "TargetNotFound",
        "TargetConflict",
        "TargetUnsupported",
    ),
    _state("replicas are late", TroubleReason.REPLICAS_LATE),
    _state("pods crash again and again, or cannot start", TroubleReason.CONTAINERS_FAILING),
    _state("pods find no node", TroubleReason.PODS_UNSCHEDULABLE),
    _state("there is no scaler", TroubleReason.SCALER_MISSING),
    _state("the scaler does not follow", TroubleReason.SCALER_NOT_FOLLOWING, TroubleReason.ACTUATION_NO_CLIENT),
    _state(
        "another writer is at work",
        TroubleReason.ACTUATION_REWRITTEN,
        TroubleReason.ACTUATION_SCALER,
        TroubleReason.ACTUATION_OWNED,
    ),
    _state("the number cannot be written", TroubleReason.ACTUATION_FORBIDDEN, TroubleReason.ACTUATION_FAILED),
    _state("there are no metrics", Reason.METRICS_MISSING, Reason.PROMETHEUS_ERROR, Reason.METRICS_INVALID),
    _state("the metrics are old", Reason.METRICS_STALE),
    _state(
        "the number is held for another cause",
        Reason.METRICS_INCOMPLETE,
        Reason.NO_READY_REPLICAS,
        Reason.ANALYSIS_FAILED,
        Reason.MODEL_FAILED,
    ),
    _state("it is at its maximum while requests wait", Reason.NO_CANDIDATE, Reason.BOUNDED),
    _state("GPUs or another limit keep it small", Reason.GPU_LIMITED, Reason.ROLE_LIMITED, PARTLY_LIMITED),
    _state("its objectives are not met", TroubleReason.OBJECTIVE_MISSED),
    _state("requests wait, and it cannot start from zero", TroubleReason.START_REFUSED, TroubleReason.START_FAILED),
    _state(
        "the picker cannot be read",
        TroubleReason.GATEWAY_UNREADABLE,
        TroubleReason.QUEUE_MISSING,
        TroubleReason.SELECTOR_EMPTY,
        TroubleReason.NAMES_UNKNOWN,
    ),
    _state("some of its configuration is refused", REFUSED),
    _state("the percentage analyzer decides in place of another", TroubleReason.ENGINE_SERIES_UNUSABLE),
    _state(
        "its engines sleep, or another model has its name",
        TroubleReason.ENGINES_DORMANT,
        TroubleReason.MODEL_NAME_SHARED,
    ),
    _state("some of its pods are slower than the others", TroubleReason.ENGINES_SLOW),
    _state("it does not say what it computes of a request", TroubleReason.ROLE_UNKNOWN),
    _state("a query has no answer", TroubleReason.QUERY_FAILED),
    _state(
        "the nodes contradict it",
        TroubleReason.ACCELERATOR_UNKNOWN,
        TroubleReason.LABELS_DISAGREE,
        TroubleReason.INVENTORY_UNKNOWN,
    ),
)

_BY_REASON = "by reason"
_IN_DESCRIBE = "only in `kubectl describe va`"
_BY_DESIGN = "it may be meant so"
UNSHOWN: Mapping[tuple[str, Place], str] = {
    (REFUSED, Place.OBSTACLE): "the variant is scaled all the same; `wva_config_invalid_entries` counts the entries",
    (TroubleReason.QUEUE_MISSING, Place.ALERT): f"{_BY_DESIGN}: a picker without flow control holds no requests",
    (TroubleReason.ENGINES_DORMANT, Place.ALERT): f"{_BY_DESIGN}: somebody has put the engines to sleep",
    (
        TroubleReason.ENGINES_SLOW,
        Place.ALERT,
    ): "its number makes up for it; where that is not enough, those about objectives ring",
    (Reason.ROLE_LIMITED, Place.ALERT): "there is one for the role that it names",
    (
        TroubleReason.ENGINE_SERIES_UNUSABLE,
        Place.ALERT,
    ): "another analyzer decides meanwhile, and engines that lack the series lack them for good",
    **{
        (reason, Place.CONSOLE): "it shows what a cycle has decided on, and without a target there is no decision"
        for reason in ("DeploymentNotFound", "TargetNotFound", "TargetConflict", "TargetUnsupported")
    },
    **{
        (reason, Place.COLUMN): _IN_DESCRIBE
        for reason in (
            REFUSED,
            TroubleReason.GATEWAY_UNREADABLE,
            TroubleReason.QUEUE_MISSING,
            TroubleReason.SELECTOR_EMPTY,
            TroubleReason.NAMES_UNKNOWN,
            TroubleReason.ENGINE_SERIES_UNUSABLE,
            TroubleReason.ENGINES_DORMANT,
            TroubleReason.ENGINES_SLOW,
            TroubleReason.MODEL_NAME_SHARED,
            TroubleReason.ROLE_UNKNOWN,
            TroubleReason.QUERY_FAILED,
            TroubleReason.ACCELERATOR_UNKNOWN,
            TroubleReason.LABELS_DISAGREE,
            TroubleReason.INVENTORY_UNKNOWN,
        )
    },
}
"""Why a reason does not show in a place."""


def sound() -> Decision:
    """Return the decision on a variant with which nothing is wrong."""
    return decision()


@cache
def status(reason: str) -> dict[str, object]:
    """Return the status while a reason holds; that of a sound variant for an empty one."""
    before = patched(None, now=NOW, decision=sound())
    assert before is not None
    if not reason:
        return before
    during = {"decision": sound(), "configuration": BROKEN} if reason == REFUSED else situation(reason)
    after = patched(before, now=NOW + 60, **during)
    assert after is not None
    return after


def decided(reason: str) -> Decision | None:
    """Return the decision while a reason holds, None where there is none."""
    return sound() if reason in ("", REFUSED) else situation(reason).get("decision")


@cache
def series(reason: str) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """Return names and labels of the series while a reason holds."""
    ledger, registry, found = Ledger(), CollectorRegistry(), decided(reason)
    if found is not None:
        ledger.record([found])
    conditions = _conditions(reason)
    of_variants = collector(
        ledger,
        bounds=lambda _: Bounds(maximum=3, maximum_origin="HPA va"),
        statuses=lambda: [KEY],
        conditions=lambda _: conditions,
    )
    registry.register(of_variants)
    page = text_string_to_metric_families(generate_latest(registry).decode())
    told = [(sample.name, sample.labels) for family in page for sample in family.samples]
    return (*told, *((name, {}) for name in _BESIDE.get(reason, ())))


def _selects(selector: VectorSelector, reason: str) -> bool:
    """Tell whether a selector has a series while a reason holds; which target is scraped does not matter."""
    matchers = [each for each in selector.matchers.matchers if each.name not in _OF_A_TARGET]
    return any(
        name == selector.name and all(_matches(each, labels.get(each.name, "")) for each in matchers)
        for name, labels in series(reason)
    )


def _matches(matcher: Matcher, value: str) -> bool:
    alike = matcher.op in (MatchOp.Re, MatchOp.NotRe)
    found = bool(re.fullmatch(matcher.value, value)) if alike else matcher.value == value
    return found is (matcher.op in (MatchOp.Equal, MatchOp.Re))


def _alerts(reason: str) -> list[str]:
    """Return the alerts of which a selector has a series while the reason holds, and none of a sound variant."""
    return [
        name
        for name, found in SELECTORS.items()
        if any(_selects(each, reason) and not _selects(each, "") for each in found)
    ]


def _events(reason: str) -> list[str]:
    """Return the events at the beginning; what a start from zero tells is tested with all obstacles."""
    if reason == REFUSED:
        return [INVALID_EVENT]
    if reason in {TroubleReason.START_REFUSED, TroubleReason.START_FAILED}:
        return [each.event for each in OBSTACLES if each.reason == reason]
    after, found = _conditions(reason), decided(reason)
    told = [] if found is None else announcements(sound(), found)
    return sorted({each.reason for each in (*told, *begun(_conditions(""), after)) if each.type == "Warning"})


def _console(reason: str) -> list[str]:
    """Return the tile that counts the variant. The console draws the conditions of what a cycle has decided on."""
    found = decided(reason)
    if found is None:
        return []
    if found.held:
        return ["Held"]
    new = _new(reason)
    if found.limits or any(each.type == ConditionType.LIMITED and each.status == "True" for each in new):
        return ["Limited"]
    return ["In trouble"] if any(each.type in GOOD_WHEN_TRUE and each.status == "False" for each in new) else []


def _columns(reason: str) -> list[str]:
    """Return the columns about conditions that differ from those of a sound variant."""
    found = []
    for column in definition()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = re.fullmatch(r"\.status\.conditions\[\?\(@\.type=='(\w+)'\)\]\.(\w+)", column["jsonPath"])
        if path is None:
            continue
        now, before = (
            next((getattr(each, path[2]) for each in _conditions(of) if each.type == path[1]), "")
            for of in (reason, "")
        )
        found += [column["name"]] if now != before else []
    return found


def _conditions(reason: str) -> tuple[Condition, ...]:
    return msgspec.convert(status(reason), VariantAutoscalingStatus).conditions


def _new(reason: str) -> list[Condition]:
    """Return the conditions with another status than those of a sound variant."""
    sound_ones = {(each.type, each.status) for each in _conditions("")}
    return [each for each in _conditions(reason) if (each.type, each.status) not in sound_ones]


def _findings(reason: str) -> list[str]:
    return sorted(each.name for each in condition_links(ExaminedVariant(wire(status(reason)))))


@cache
def shown(reason: str, place: Place) -> tuple[str, ...]:
    """Return how a place shows the reason, in words of that place; empty where it does not."""
    if place is Place.CONDITION:
        return tuple(each.type for each in _conditions(reason) if each.reason == reason)[-1:]
    if place is Place.OBSTACLE:
        return tuple(labels["reason"] for name, labels in series(reason) if name == "wva_variant_obstacle")
    by_place = {
        Place.EVENT: _events,
        Place.ALERT: _alerts,
        Place.CONSOLE: _console,
        Place.DOCTOR: _findings,
        Place.COLUMN: _columns,
    }
    return tuple(by_place[place](reason))


def rows() -> list[tuple[str, ...]]:
    """Return the table: a row for each state, a cell for each place. A place that is silent says why."""
    found = []
    for state in STATES:
        cells = [state.name, ", ".join(f"`{reason}`" for reason in state.reasons)]
        for place in Place:
            told = dict.fromkeys(word for reason in state.reasons for word in shown(reason, place))
            cell = _BY_REASON if tuple(told) == state.reasons else ", ".join(_word(place, word) for word in told)
            silent: dict[str, list[str]] = {}
            for reason in state.reasons:
                if not shown(reason, place):
                    silent.setdefault(UNSHOWN[reason, place], []).append(f"`{reason}`")
            whole = len(silent) == 1 and not told
            for why, reasons in silent.items():
                names = "" if whole else f" {', '.join(reasons)}"
                cell += f"{'; ' if cell else ''}not{names}: {why}"
            cells.append(cell)
        found.append(tuple(cells))
    return found


def _word(place: Place, word: str) -> str:
    if place is Place.ALERT:
        return f"[{word}](runbooks/{word}.md)"
    return word if place in {Place.CONSOLE, Place.COLUMN} else f"`{word}`"
