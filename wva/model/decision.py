"""The Decision: one number for one variant, and why. Its steps trace the number back to its inputs."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from wva.model.metrics import Coverage
from wva.model.objectives import DEFAULT_OBJECTIVES, Objectives
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey


class Action(StrEnum):
    """What the number asks for, compared with the replicas that exist."""

    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    NO_CHANGE = "no-change"


class Source(StrEnum):
    """Where the number comes from."""

    MEASURED = "measured"
    HELD = "held"
    PREVIOUS_DESIRED = "previous-desired"
    CURRENT_REPLICAS = "current-replicas"


class Reason(StrEnum):
    """Why the number is what it is; also the reason of the OptimizationReady condition."""

    SCALE_UP = "ScaleUp"
    SCALE_DOWN = "ScaleDown"
    STEADY = "Steady"
    SIBLING_GROWS = "SiblingGrows"
    SIBLING_SHRINKS = "SiblingShrinks"
    REPLICAS_PENDING = "ReplicasPending"
    PENDING_SUFFICES = "PendingReplicasSuffice"
    GROWTH_SETTLING = "ScaleUpSettling"
    SHRINK_UNFINISHED = "ScaleDownUnfinished"
    SHRINK_WITHDRAWN = "ScaleDownWithdrawn"
    GROWTH_WITHDRAWN = "ScaleUpWithdrawn"
    SHRINK_UNSAFE = "ScaleDownUnsafe"
    SHRINK_STABILIZED = "ScaleDownStabilized"
    NO_CANDIDATE = "NoCandidate"
    BOUNDED = "Bounded"
    GPU_LIMITED = "GpuLimited"
    ROLE_LIMITED = "RoleLimited"
    IDLE = "ScaledToZero"
    MODEL_MINIMUM = "ModelMinimum"
    SCALE_FROM_ZERO = "ScaleFromZero"
    INACTIVE = "Inactive"
    COMPATIBILITY = "SaturationOnlyMode"
    METRICS_MISSING = "MetricsMissing"
    METRICS_STALE = "MetricsStale"
    METRICS_INVALID = "MetricsInvalid"
    METRICS_INCOMPLETE = "MetricsIncomplete"
    PROMETHEUS_ERROR = "PrometheusError"
    NO_READY_REPLICAS = "NoReadyReplicas"
    NOT_DECIDED = "NotDecidedYet"
    ANALYSIS_FAILED = "AnalysisFailed"
    MODEL_FAILED = "ModelFailed"
    # Recordings of older versions have these.
    MODEL_BASED = "ModelBased"
    SAFETY_OVERRIDE = "SaturationSafetyOverride"


HOLD_REASONS = frozenset(
    {
        Reason.METRICS_MISSING,
        Reason.METRICS_STALE,
        Reason.METRICS_INVALID,
        Reason.METRICS_INCOMPLETE,
        Reason.PROMETHEUS_ERROR,
        Reason.NO_READY_REPLICAS,
        Reason.NOT_DECIDED,
        Reason.ANALYSIS_FAILED,
        Reason.MODEL_FAILED,
    }
)
"""For these reasons the data allow no change, and WVA keeps the number."""


class Limit(NamedTuple):
    """What kept a number from being larger, and by how many replicas."""

    by: str
    fewer: int


NO_LIMIT: Final = Limit("", 0)

LIMITER: Final = "gpu-limiter"
"""The name of a limit of GPUs in a decision; the accelerator follows it."""

ROLE_LIMIT: Final = "role "
"""The name of a limit begins with this if another role of the model can use no more; the other role follows it."""


class Step(Struct, frozen=True, gc=False):
    """What one stage did to the number.

    ``limited_by`` names what kept it from being larger, empty without a limit. ``fewer`` is by how many replicas; 0 is
    an unknown amount.
    """

    stage: str
    reason: str
    before: int
    after: int
    limited_by: str = ""
    fewer: int = 0

    @property
    def change(self) -> str:
        """The number, or its change."""
        return str(self.after) if self.before == self.after else f"{self.before} -> {self.after}"

    @property
    def limit(self) -> str:
        """What limited the number and by how much, in words; empty without a limit."""
        fewer = f": {self.fewer} fewer" if self.fewer else ""
        return f"limited by {self.limited_by}{fewer}" if self.limited_by else ""


class MetricsVerdict(Struct, frozen=True, gc=False):
    """Whether this variant has metrics to decide on; becomes the MetricsAvailable condition."""

    available: bool
    reason: str
    message: str


class Aim(Struct, frozen=True, gc=False):
    """The objectives that WVA plans for: those of the model, as far as its replicas can reach them.

    ``words`` say which objectives were asked for and where, ``beyond`` which of them no number of replicas reaches.
    Both are empty if nobody asked for any.
    """

    objectives: Objectives = DEFAULT_OBJECTIVES
    words: str = ""
    beyond: str = ""

    @property
    def summary(self) -> str:
        """The words about it for people; empty if nobody asked for any objective."""
        return "; ".join(filter(None, (self.words, self.beyond)))


ENGINES_READABLE: Final = MetricsVerdict(True, "EnginesRead", "nothing is known to be wrong with its engines")


class Decision(Struct, frozen=True, gc=False):
    """The number of replicas a variant should have.

    ``desired`` is published, ``current`` exists, ``previous`` was published before (None: nothing was).
    ``spare_capacity`` is the mean spare KV share of the variant. ``settling_since`` is the time since which current and
    desired differ or replicas are pending, in seconds since the epoch; None when settled. ``engines`` says whether its
    engines are awake and report what its analyzer asks for. ``aim`` is None if its analyzer has no objectives.
    """

    key: VariantKey
    model: ModelKey
    accelerator: str
    cost: float
    current: int
    desired: int
    previous: int | None
    reason: Reason
    message: str
    source: Source
    metrics: MetricsVerdict
    coverage: Coverage
    steps: tuple[Step, ...] = ()
    spare_capacity: float = 0.0
    settling_since: float | None = None
    engines: MetricsVerdict = ENGINES_READABLE
    aim: Aim | None = None

    @property
    def action(self) -> Action:
        """Compare the number with what exists."""
        if self.desired > self.current:
            return Action.SCALE_UP
        return Action.SCALE_DOWN if self.desired < self.current else Action.NO_CHANGE

    @property
    def held(self) -> bool:
        """Whether the number was kept for lack of evidence."""
        return self.reason in HOLD_REASONS

    @property
    def limits(self) -> tuple[Step, ...]:
        """The steps in which a limit kept the number from being larger."""
        return tuple(step for step in self.steps if step.limited_by)

    @property
    def way(self) -> str:
        """The steps in a few words: stages, numbers and what limited them."""
        return ", ".join(f"{step.stage} {step.change}{f' ({step.limit})' if step.limit else ''}" for step in self.steps)

    def with_step(self, stage: str, reason: Reason, message: str, desired: int, *, limit: Limit = NO_LIMIT) -> Decision:
        """Return the decision with the number changed by a stage, and the step recorded."""
        step = Step(stage, message, self.desired, desired, *limit)
        return replace(self, desired=desired, reason=reason, message=message, steps=(*self.steps, step))

    def limited(self, stage: str, reason: Reason, message: str, allowed: int, *, by: str) -> Decision:
        """Return the decision with a smaller number, what limited it, and by how many replicas."""
        limit = Limit(by, self.desired - allowed) if by else NO_LIMIT
        return self.with_step(stage, reason, message, allowed, limit=limit)

    def noted(self, stage: str, note: str, *, limit: Limit = NO_LIMIT) -> Decision:
        """Return the decision with a step that changed nothing: number, reason and message stay."""
        return replace(self, steps=(*self.steps, Step(stage, note, self.desired, self.desired, *limit)))
