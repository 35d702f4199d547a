"""The series about variants: the numbers that scalers read, their explanation, and the obstacles to scaling.

The output has the names and labels of v0.5.1. The other series are for alerts and dashboards. Every variant has a
``wva_desired_reason``; the others exist only while they apply. ``model_name`` is what the user wrote in
``spec.modelID``, so that it can be joined with vLLM's label of that name.

This module counts the changes of numbers. It reads all other values from the ledger and the caches. So each known
variant has exactly one series of a gauge, a removed variant has none from the next scrape on, and a change of the
accelerator cannot leave two series.

Only the leader publishes: an HPA would add the numbers of a standby to those of the leader.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from wva import log
from wva.api.meta import Condition
from wva.hindsight.shadow import COST, GPU_HOURS, HOURS, LATE, LATE_ERROR, ShadowFigures
from wva.model.decision import ROLE_LIMIT, Decision, Reason
from wva.model.in_time import WINDOWS, InTime
from wva.model.trouble import cause_of
from wva.model.variant import Bounds, ModelKey, VariantKey
from wva.publish.ledger import Ledger
from wva.publish.obstacles import standing
from wva.slices import Slices

CURRENT_REPLICAS: Final = "wva_current_replicas"
DESIRED_REPLICAS: Final = "wva_desired_replicas"
DESIRED_RATIO: Final = "wva_desired_ratio"
REPLICA_SCALING: Final = "wva_replica_scaling"
DESIRED_SOURCE: Final = "wva_desired_source"
OBSTACLE: Final = "wva_variant_obstacle"
ROLE: Final = "wva_variant_role"
IN_TIME_RATIO: Final = "wva_in_time_ratio"

VARIANT_LABELS: Final = ("variant_name", "namespace")
"""The labels of all series but those about a model; settings may add ``controller_instance``."""
BASE_LABELS: Final = (*VARIANT_LABELS, "accelerator_type")
"""The labels of ``wva_desired_replicas`` and of the gauges beside it; ``output`` has their values."""
MODEL_LABELS: Final = ("namespace", "model_name")
"""The labels of series about a model; settings may add ``controller_instance``, too."""
INSTANCE_LABEL: Final = "controller_instance"

Row: TypeAlias = tuple[str, float, Mapping[str, str]]
"""The name of a family, the value, and the labels beyond those that all series have."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_log = log.get("publish")


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name, with their help text, their labels in the order of the docs, and gauge or counter."""

    name: str
    help: str
    labels: tuple[str, ...] = BASE_LABELS
    type: str = "gauge"


SHADOW_REPLICAS: Final = "wva_shadow_desired_replicas"

SHADOW: Final = (
    Family(SHADOW_REPLICAS, "Replicas that a variant in shadow mode would have; nothing scales by it."),
    Family(
        HOURS,
        "Hours in shadow mode that the sums of a variant are about; five minutes at most of a time without cycles.",
        VARIANT_LABELS,
        "counter",
    ),
    Family(
        GPU_HOURS,
        "GPU hours of a variant in shadow mode: of the real replicas, and of those that it would have (fleet).",
        (*VARIANT_LABELS, "fleet"),
        "counter",
    ),
    Family(
        COST,
        "Cost of a variant in shadow mode, in its unit times hours: real, and as it would have been (fleet).",
        (*VARIANT_LABELS, "fleet"),
        "counter",
    ),
    Family(
        LATE,
        "Estimate of the requests beyond what the replicas of the model carry within its targets (fleet); with the "
        "first variant of the model, and absent until the demand is known.",
        (*VARIANT_LABELS, "fleet"),
        "counter",
    ),
    Family(
        LATE_ERROR,
        "Late requests that one standard error more demand would have added.",
        VARIANT_LABELS,
        "counter",
    ),
)

OUTPUT: Final = (
    Family(CURRENT_REPLICAS, "Replicas of the variant that exist."),
    Family(DESIRED_REPLICAS, "Replicas that the variant should have."),
    Family(DESIRED_RATIO, "Desired over current replicas; the desired number itself while none exist."),
    Family(
        REPLICA_SCALING,
        "Changes of the desired number, by direction (up, down) and reason.",
        (*VARIANT_LABELS, "direction", "reason"),
        "counter",
    ),
    Family(
        DESIRED_SOURCE,
        "1 for where the number comes from: measured, held, previous-desired, current-replicas.",
        (*VARIANT_LABELS, "source"),
    ),
)

EXPLANATION: Final = (
    Family(
        "wva_desired_reason",
        "1 for the reason of the number; held is true while it is kept for lack of evidence.",
        (*VARIANT_LABELS, "reason", "held"),
    ),
    Family(
        "wva_desired_step_replicas",
        "The number after each stage of the decision: measure, allocate, settle, zero; hold if the model failed, "
        "activate if it was started from zero; with compatibility v0.5: analyze, optimize, enforce, limit.",
        (*VARIANT_LABELS, "stage"),
    ),
    Family(
        "wva_desired_limited_replicas",
        "Replicas that a limit withholds, by stage, kind of limit (maximum: of the scaler or an annotation; role: "
        "another role of the model, which can use no more; gpus) and name of the limit; 0 is an unknown amount, and "
        "there is no series without a limit.",
        (*VARIANT_LABELS, "stage", "limit", "limited_by"),
    ),
    Family(
        "wva_coverage_ratio",
        "Replicas with fresh samples of both signals over replicas expected to report; absent without replicas.",
        VARIANT_LABELS,
    ),
    Family(
        "wva_maximum_replicas",
        "The most replicas that the scaler or an annotation allows; absent without a maximum.",
        VARIANT_LABELS,
    ),
    Family(
        "wva_settling_since_timestamp_seconds",
        "Since when the replicas have been on their way to the number without any progress, in seconds since the "
        "epoch; absent when they have arrived.",
        VARIANT_LABELS,
    ),
    Family(
        "wva_variant_cost",
        "Cost of one replica of the variant, and the model that it serves.",
        (*VARIANT_LABELS, "model_name", "accelerator_type"),
    ),
    Family(
        ROLE,
        "1 for the role of the variant: what its pods compute of a request, and the model that it serves; absent if "
        "they do not say it.",
        (*VARIANT_LABELS, "model_name", "role"),
    ),
    Family(
        "wva_objective_seconds",
        "What the default analyzer plans for: the time to the first token and the time between tokens (objective); of "
        "what no number of replicas reaches, the nearest that one does.",
        (*VARIANT_LABELS, "objective"),
    ),
    Family(
        OBSTACLE,
        "1 for each reason why the variant is not scaled, as its conditions give it; absent without any.",
        (*VARIANT_LABELS, "reason"),
    ),
    Family(
        IN_TIME_RATIO,
        "Share of the requests of a model that were served within its objectives, over the last 5m or 1h (window); "
        "absent without requests.",
        (*MODEL_LABELS, "window"),
    ),
    Family(
        "wva_objective_ratio",
        "Share of the requests of a model that shall be in time.",
        MODEL_LABELS,
    ),
)


_COUNTERS: Final = frozenset(family.name for family in (*OUTPUT, *SHADOW) if family.type == "counter")


def output(decision: Decision, *, current: int, changes: Mapping[tuple[str, str], int]) -> Iterator[Row]:
    """Yield the product's output; ``changes`` counts the changes of the number so far, by direction and reason."""
    accelerator = {"accelerator_type": decision.accelerator}
    yield CURRENT_REPLICAS, current, accelerator
    yield DESIRED_REPLICAS, decision.desired, accelerator
    yield DESIRED_RATIO, decision.desired / current if current else decision.desired, accelerator
    for (direction, reason), count in sorted(changes.items()):
        yield REPLICA_SCALING, count, {"direction": direction, "reason": reason}
    yield DESIRED_SOURCE, 1, {"source": decision.source.value}


def explanation(decision: Decision, bounds: Bounds) -> Iterator[Row]:
    """Yield what explains the number: its reason, its stages, and the limits that kept it from being larger."""
    yield "wva_desired_reason", 1, {"reason": decision.reason.value, "held": "true" if decision.held else "false"}
    # If a stage took several steps, the last one counts.
    for stage, after in {step.stage: step.after for step in decision.steps}.items():
        yield "wva_desired_step_replicas", after, {"stage": stage}
    maxima = {bounds.maximum_origin, bounds.ceiling_origin}
    for (stage, limiter), fewer in {(step.stage, step.limited_by): step.fewer for step in decision.limits}.items():
        limit = "role" if limiter.startswith(ROLE_LIMIT) else "maximum" if limiter in maxima else "gpus"
        yield "wva_desired_limited_replicas", fewer, {"stage": stage, "limit": limit, "limited_by": limiter}
    if decision.coverage.expected and decision.reason is not Reason.NOT_DECIDED:
        yield "wva_coverage_ratio", decision.coverage.fresh / decision.coverage.expected, {}
    if bounds.maximum is not None:
        yield "wva_maximum_replicas", bounds.maximum, {}
    if decision.settling_since is not None:
        yield "wva_settling_since_timestamp_seconds", decision.settling_since, {}
    labels = {"model_name": decision.model.model_id, "accelerator_type": decision.accelerator}
    yield "wva_variant_cost", decision.cost, labels
    if decision.aim is not None:
        objectives = decision.aim.objectives
        yield "wva_objective_seconds", objectives.ttft_seconds, {"objective": "first_token"}
        yield "wva_objective_seconds", objectives.itl_seconds, {"objective": "between_tokens"}


def in_time_rows(in_time: InTime) -> Iterator[Row]:
    """Yield the share of requests in time that the users of a model got, and the share that they shall get."""
    yield "wva_objective_ratio", in_time.objectives.in_time, {}
    for window, served in zip(WINDOWS, (in_time.five_minutes, in_time.hour), strict=True):
        if served is not None:
            yield IN_TIME_RATIO, served.share, {"window": window}


class VariantFamily(Metric):
    """A family about variants that makes its samples when they are first read."""

    def __init__(self, family: Family, make: Callable[[], list[Sample]]) -> None:
        """``make`` returns the samples."""
        super().__init__(family.name, family.help, family.type)
        del self.samples
        self._make = make

    @cached_property
    def samples(self) -> list[Sample]:  # type: ignore[override]  # an attribute from then on, as of the library
        """All samples of all variants."""
        return self._make()


class VariantCollector(Collector):
    """Returns the series of one variant at a time, so that a page needs new text only for changed variants."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        current: Callable[[VariantKey], int | None],
        bounds: Callable[[VariantKey], Bounds | None],
        statuses: Callable[[], Iterable[VariantKey]],
        conditions: Callable[[VariantKey], tuple[Condition, ...]],
        leading: Callable[[], bool],
        accounts: Callable[[VariantKey], ShadowFigures | None] = lambda _key: None,
        role: Callable[[VariantKey], str] = lambda _key: "",
        in_time: Callable[[ModelKey], InTime | None] = lambda _model: None,
        instance: str = "",
        aliases: bool = False,
    ) -> None:
        """Read ``ledger`` and what the caches say of a variant: its replicas, bounds, conditions, and role.

        ``statuses`` returns the variants with a status. ``in_time`` returns what the users of a model got, which is
        shown with its first variant. ``instance`` adds the ``controller_instance`` label, and ``aliases`` each gauge of
        the output a second time under the name that the HPAs of older manifests ask for.
        """
        self._ledger = ledger
        self._current = current
        self._bounds = bounds
        self._statuses = statuses
        self._conditions = conditions
        self._leading = leading
        self._accounts = accounts
        self._role = role
        self._in_time = in_time
        self._instance = {INSTANCE_LABEL: instance} if instance else {}
        self._origins: dict[str, str] = {}
        heads: list[Family] = []
        for family in OUTPUT:
            heads.append(family)
            if aliases and family.type == "gauge":
                alias = f"inferno_{family.name.removeprefix('wva_')}"
                heads.append(Family(alias, f"Alias of {family.name}.", family.labels))
                self._origins[alias] = family.name
        self.heads: Sequence[Family] = (*heads, *EXPLANATION, *SHADOW)
        """The families, in the order of the page."""
        self.failed: set[VariantKey] = set()
        """Variants of which something could not be read. ``SeriesText`` makes their text again for the next page."""
        self._throttle = log.Throttle()
        self._changes: dict[VariantKey, Counter[tuple[str, str]]] = {}
        ledger.subscribe(self._count)

    def _count(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:
        """Count changes of the number; forget the counts of a variant that is gone."""
        if new is None:
            self._changes.pop(key, None)
        elif old is not None and old.desired != new.desired:
            direction = "up" if new.desired > old.desired else "down"
            self._changes.setdefault(key, Counter())[direction, new.reason.value] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield all families; they are empty while this process does not lead."""
        by_variant: list[Sequence[Sequence[Sample]]] = []

        def samples(index: int) -> list[Sample]:
            if not by_variant and self._leading():
                keys = {decision.key for decision in self._ledger.decisions()}.union(self._statuses())
                by_variant.extend(self.samples_of(key) for key in sorted(keys))
            return [sample for rows in by_variant for sample in rows[index]]

        for index, head in enumerate(self.heads):
            yield VariantFamily(head, lambda index=index: samples(index))  # type: ignore[misc]  # mypy cannot tell

    def describe(self) -> list[Metric]:
        """Register without a scrape."""
        return []

    def samples_of(self, key: VariantKey) -> Sequence[Sequence[Sample]]:
        """Return the samples of one variant, a list for each head; raise nothing."""
        by_family: dict[str, list[Sample]] = {head.name: [] for head in self.heads}
        variant_labels = {"variant_name": key.name, "namespace": key.namespace, **self._instance}

        def add(rows: Iterable[Row], shared_labels: Mapping[str, str] = variant_labels) -> None:
            for name, value, labels in rows:
                sample_name = f"{name}_total" if name in _COUNTERS else name
                by_family[name].append(Sample(sample_name, {**shared_labels, **labels}, float(value)))

        decision = self._ledger.get(key)
        if decision is not None:
            current = bounds = None
            with self._apart(key):
                current = self._current(key)
            with self._apart(key):
                bounds = self._bounds(key)
            with self._apart(key):
                existing = decision.current if current is None else current
                if self._ledger.shadow(key):
                    accelerator = {"accelerator_type": decision.accelerator}
                    add([(CURRENT_REPLICAS, existing, accelerator), (SHADOW_REPLICAS, decision.desired, accelerator)])
                    account = self._accounts(key)
                    add(() if account is None else account.series())
                else:
                    add(output(decision, current=existing, changes=self._changes.get(key, {})))
            with self._apart(key):
                add(explanation(decision, bounds or Bounds()))
            with self._apart(key):
                if role := self._role(key):
                    add([(ROLE, 1, {"model_name": decision.model.model_id, "role": role})])
            with self._apart(key):
                served = self._in_time(decision.model)
                if served is not None and served.first == key:
                    model = {"namespace": key.namespace, "model_name": decision.model.model_id}
                    add(in_time_rows(served), {**model, **self._instance})
        with self._apart(key):
            add((OBSTACLE, 1, {"reason": obstacle.reason}) for obstacle, _ in standing(self._conditions(key)))
        for alias, origin in self._origins.items():
            by_family[alias] = [sample._replace(name=alias) for sample in by_family[origin]]
        return list(by_family.values())

    @contextmanager
    def _apart(self, key: VariantKey) -> Iterator[None]:
        """Log an error about one variant, so that the page still shows all other series."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the page still shows the other variants
            cause = cause_of(error)
            self.failed.add(key)
            if self._throttle.permits(key, cause, time.monotonic()):
                _log.exception("variant_not_shown", variant=str(key), cause=cause)


class SeriesText:
    """Keeps the text of the series of each variant, and makes it again only after a change.

    A fleet of 1,800 variants has 18,000 series, and few of them change between two scrapes. A change marks its
    variants, and the next page makes only their text again. The text is the same in every format that scrapers ask
    for; only the heads of the families differ.
    """

    def __init__(self, collector: VariantCollector, *, leading: Callable[[], bool]) -> None:
        """Start without any text; ``collector`` makes the samples."""
        self._collector = collector
        self._leading = leading
        self._texts: dict[VariantKey, tuple[bytes, ...]] = {}
        self._order: list[VariantKey] | None = []
        self._marked: set[VariantKey] = set()
        self.heads = collector.heads

    def mark(self, keys: Iterable[VariantKey]) -> None:
        """Note that something about these variants may have changed."""
        self._marked.update(keys)

    async def page(self, heading: Callable[[Family], bytes]) -> list[bytes]:
        """Return the heads and series of all families, in pieces. Other tasks may run in between.

        ``heading`` returns the lines above the series of a family, in the format of the page.
        """
        heads = [heading(head) for head in self.heads]
        if not self._leading():
            return heads
        slices = Slices()
        self._marked |= self._collector.failed
        self._collector.failed.clear()
        while self._marked:
            key = self._marked.pop()
            rows = self._collector.samples_of(key)
            if any(rows) is not (key in self._texts):
                self._order = None
            self._texts.pop(key, None)
            if any(rows):
                self._texts[key] = tuple("".join(map(_line, samples)).encode() for samples in rows)
            await slices.rest()
        if self._order is None:
            self._order = sorted(self._texts)
        texts = [self._texts[key] for key in self._order]
        return [piece for index, head in enumerate(heads) for piece in (head, *[text[index] for text in texts])]


def _line(sample: Sample) -> str:
    """Return the line of a sample, which is the same in all formats."""
    labels = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(sample.labels.items()))
    value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]  # the library has no types here
    return f"{sample.name}{{{labels}}} {value}\n"
