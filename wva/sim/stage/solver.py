"""The cheapest fleet that carries given demands, exactly: an integer linear program, solved by HiGHS.

In: kinds of replicas with price, bounds and capacity; demands to carry; limits on GPUs, such as the pool of a
datacentre or the quota of a namespace. Out: how many of each kind. Needs the extra ``bench``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

_OPTIONS: Final[Mapping[str, float | bool]] = MappingProxyType(
    {
        # One thread and no tolerated gap: the same answer on each machine, and the best one.
        "threads": 1,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
        # A heuristic that takes ten times as long as everything else for a program of a few variables.
        "mip_heuristic_run_feasibility_jump": False,
    }
)
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ReplicaKind:
    """One kind of replica.

    Attributes:
        price: of one replica, in any unit; positive.
        carries: what one replica adds to each demand, by the demand's name, in the demand's unit.
        minimum: fewest replicas.
        maximum: most replicas.
        takes: GPUs that one replica takes from each limit, by the limit's name.

    """

    price: float
    carries: Mapping[str, float]
    minimum: int = 0
    maximum: int = 1000
    takes: Mapping[str, int] = field(default_factory=dict)


def cheapest(
    kinds: Sequence[ReplicaKind], demands: Mapping[str, float], limits: Mapping[str, int] = _NONE
) -> tuple[int, ...] | None:
    """Return the counts, one per kind, of a cheapest fleet; None when no fleet carries every demand within the limits.

    A demand counts as carried when all but a millionth of it is.

    Raises:
        RuntimeError: HiGHS ended without an answer.

    """
    import highspy  # noqa: PLC0415 - from the extra: a policy that does not plan runs without it
    import numpy as np  # noqa: PLC0415 - as above

    class Silent(highspy.Highs):
        """A solver that prints nothing: the constructor, which enables callbacks, prints a banner."""

        def enableCallbacks(self) -> None:  # noqa: N802 - highspy's name
            self.silent()
            super().enableCallbacks()  # type: ignore[no-untyped-call]  # highspy has no types

    solver = Silent()  # type: ignore[no-untyped-call]  # as above
    for option, value in _OPTIONS.items():
        solver.setOptionValue(option, value)
    for column, kind in enumerate(kinds):
        solver.addCol(kind.price, kind.minimum, kind.maximum, 0, np.array([], np.int32), np.array([]))
        solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    for name, demand in demands.items():
        if demand > 0:
            # As shares of the demand, so that the solver's absolute tolerance is a relative one.
            row = [(column, kind.carries.get(name, 0.0) / demand) for column, kind in enumerate(kinds)]
            _add_row(solver, row, 1.0, highspy.kHighsInf)
    for name, limit in limits.items():
        taken = [(column, float(kind.takes.get(name, 0))) for column, kind in enumerate(kinds)]
        _add_row(solver, taken, -highspy.kHighsInf, float(limit))
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        return tuple(round(value) for value in solver.getSolution().col_value)
    # Bounds make every program bounded, so "unbounded or infeasible" is infeasible.
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return None
    raise RuntimeError(f"HiGHS ended with {solver.modelStatusToString(status)}")


def _add_row(solver: object, entries: list[tuple[int, float]], lower: float, upper: float) -> None:
    import numpy as np  # noqa: PLC0415 - as above

    present = [(column, value) for column, value in entries if value]
    columns = np.array([column for column, _ in present], np.int32)
    values = np.array([value for _, value in present], np.float64)
    solver.addRow(lower, upper, len(present), columns, values)  # type: ignore[attr-defined]  # highspy has no types
