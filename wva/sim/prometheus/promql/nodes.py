"""The parsed query as our own types, so that the evaluator depends on no foreign syntax tree.

``grammar`` builds these. It refuses every expression without a node here, before anything is evaluated. Durations are
milliseconds. Parentheses are gone: the tree itself shows the order of evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class At(Enum):
    """The two words that the ``@`` modifier accepts besides a time."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on one label; ``equals`` is the value of a plain ``=`` matcher, None for the others."""

    label: str
    matches: Callable[[str], bool]
    equals: str | None


@dataclass(frozen=True, slots=True)
class Number:
    """A literal number."""

    value: float


@dataclass(frozen=True, slots=True)
class Text:
    """A literal string."""

    value: str


@dataclass(frozen=True, slots=True)
class VectorSelector:
    """An instant vector selector; ``at`` is a time in ms, a word, or None for the time of evaluation."""

    name: str | None
    matchers: tuple[Matcher, ...]
    offset_ms: int
    at: int | At | None


@dataclass(frozen=True, slots=True)
class Range:
    """A range vector selector."""

    selector: VectorSelector
    range_ms: int


@dataclass(frozen=True, slots=True)
class Subquery:
    """An expression evaluated at every multiple of ``step_ms`` within a range, which makes a range vector of it."""

    operand: Expr
    range_ms: int
    step_ms: int
    offset_ms: int
    at: int | At | None


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function call."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """``sum by (a) (expr)``; ``without`` turns the meaning of ``labels`` around."""

    operator: str
    operand: Expr
    parameter: Expr | None
    labels: tuple[str, ...]
    without: bool


class Cardinality(Enum):
    """Which side of a vector match may have several elements per group."""

    ONE_TO_ONE = "one-to-one"
    MANY_TO_ONE = "group_left"
    ONE_TO_MANY = "group_right"
    MANY_TO_MANY = "set operator"


@dataclass(frozen=True, slots=True)
class Matching:
    """How the elements of two vectors are matched: on ``labels`` if ``on`` is true, else ignoring them."""

    cardinality: Cardinality = Cardinality.ONE_TO_ONE
    on: bool = False
    labels: tuple[str, ...] = ()
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands; ``return_bool`` makes a comparison return 0 or 1 instead of filtering."""

    operator: str
    left: Expr
    right: Expr
    matching: Matching
    return_bool: bool


@dataclass(frozen=True, slots=True)
class Negation:
    """Unary minus."""

    operand: Expr


Expr = Number | Text | VectorSelector | Range | Subquery | FunctionCall | Aggregation | Binary | Negation
