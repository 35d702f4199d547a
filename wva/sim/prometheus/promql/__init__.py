"""PromQL over the embedded database: ``parse`` a query, ``evaluate`` it at an ``EvaluationTime``.

The evaluator covers all selectors with ``offset`` and ``@``, the functions and aggregations listed in ``grammar``, all
binary operators with their matching modifiers, and sub-queries. Native histograms and everything else are refused with
a ``BadQueryError`` that names them.
"""

from __future__ import annotations

from wva.sim.prometheus.promql.engine import evaluate
from wva.sim.prometheus.promql.errors import BadQueryError, ExecutionError, PromqlError
from wva.sim.prometheus.promql.grammar import parse
from wva.sim.prometheus.promql.selection import EvaluationTime

__all__ = ["BadQueryError", "EvaluationTime", "ExecutionError", "PromqlError", "evaluate", "parse"]
