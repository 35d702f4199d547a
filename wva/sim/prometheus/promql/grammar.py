"""Turns the text of a query into our syntax tree. Only this module uses ``promql_parser``, which has the grammar.

The parser checks syntax, types of arguments and operands, and the syntax of regular expressions. This module refuses
by name what the parser accepts and the evaluator does not, so that a query never gets a wrong answer silently.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache

import promql_parser as grammar

from wva.sim.prometheus.promql.aggregation import AGGREGATIONS
from wva.sim.prometheus.promql.engine import FUNCTIONS
from wva.sim.prometheus.promql.errors import BadQueryError
from wva.sim.prometheus.promql.nodes import (
    Aggregation,
    At,
    Binary,
    Cardinality,
    Expr,
    FunctionCall,
    Matcher,
    Matching,
    Negation,
    Number,
    Range,
    Subquery,
    Text,
    VectorSelector,
)
from wva.sim.prometheus.promql.patterns import regex_test
from wva.sim.prometheus.tsdb import NAME

_CARDINALITIES = {
    "OneToOne": Cardinality.ONE_TO_ONE,
    "ManyToOne": Cardinality.MANY_TO_ONE,
    "OneToMany": Cardinality.ONE_TO_MANY,
    "ManyToMany": Cardinality.MANY_TO_MANY,
}
_MILLISECOND = timedelta(milliseconds=1)


@lru_cache(maxsize=1024)
def parse(query: str) -> Expr:
    """Return the syntax tree of a query; BadQueryError names the part that is wrong or not supported."""
    try:
        tree = grammar.parse(query)
    except ValueError as e:
        raise BadQueryError(f"parse error: {e}") from e
    return _expr(tree)


def parse_duration_seconds(text: str) -> float:
    """Return the seconds of a duration such as ``1h30m``; BadQueryError if the text is not one."""
    try:
        return grammar.parse_duration(text).total_seconds()
    except ValueError as e:
        raise BadQueryError(f"not a valid duration string: {text!r}") from e


def _expr(tree: grammar.Expr) -> Expr:
    for kind, translate in _TRANSLATIONS.items():
        if isinstance(tree, kind):
            return translate(tree)
    raise BadQueryError(f"{type(tree).__name__} is not supported by the embedded Prometheus: {tree}")


def _milliseconds(duration: timedelta) -> int:
    return duration // _MILLISECOND


def _number(tree: grammar.NumberLiteral) -> Expr:
    return Number(tree.val)


def _text(tree: grammar.StringLiteral) -> Expr:
    return Text(tree.val)


def _paren(tree: grammar.ParenExpr) -> Expr:
    return _expr(tree.expr)


def _negation(tree: grammar.UnaryExpr) -> Expr:
    return Negation(_expr(tree.expr))


def _selector(tree: grammar.VectorSelector) -> VectorSelector:
    if tree.matchers.or_matchers:
        raise BadQueryError(f"'or' between matchers is not supported: {tree}")
    matchers = [_matcher(matcher) for matcher in tree.matchers.matchers]
    name = tree.name
    if name is None:
        name = next((matcher.equals for matcher in matchers if matcher.label == NAME and matcher.equals), None)
    offset_ms = _milliseconds(tree.offset) if tree.offset is not None else 0
    return VectorSelector(name, tuple(matchers), offset_ms, _at(tree.at) if tree.at is not None else None)


def _at(modifier: grammar.AtModifier) -> int | At:
    if modifier.at is not None:
        return round(modifier.at.timestamp() * 1000)
    return At.START if modifier.type == grammar.AtModifierType.Start else At.END


def _range(tree: grammar.MatrixSelector) -> Expr:
    return Range(_selector(tree.vector_selector), _milliseconds(tree.range))


def _subquery(tree: grammar.SubqueryExpr) -> Subquery:
    step_ms = _milliseconds(tree.step) if tree.step is not None else 0
    if step_ms <= 0 or tree.range is None:
        raise BadQueryError(f"a subquery without a step is not supported by the embedded Prometheus: {tree}")
    offset_ms = _milliseconds(tree.offset) if tree.offset is not None else 0
    at = _at(tree.at) if tree.at is not None else None
    return Subquery(_expr(tree.expr), _milliseconds(tree.range), step_ms, offset_ms, at)


def _matcher(matcher: grammar.Matcher) -> Matcher:
    value = matcher.value
    if matcher.op == grammar.MatchOp.Equal:
        return Matcher(matcher.name, value.__eq__, value)
    if matcher.op == grammar.MatchOp.NotEqual:
        return Matcher(matcher.name, value.__ne__, None)
    matches = regex_test(value)
    if matcher.op == grammar.MatchOp.Re:
        return Matcher(matcher.name, matches, None)
    return Matcher(matcher.name, lambda text: not matches(text), None)


def _call(tree: grammar.Call) -> Expr:
    if tree.func.name not in FUNCTIONS:
        raise BadQueryError(f"function {tree.func.name!r} is not supported by the embedded Prometheus")
    return FunctionCall(tree.func.name, tuple(_expr(argument) for argument in tree.args))


def _aggregation(tree: grammar.AggregateExpr) -> Expr:
    operator = str(tree.op)
    if operator not in AGGREGATIONS:
        raise BadQueryError(f"aggregation {operator!r} is not supported by the embedded Prometheus")
    modifier = tree.modifier
    return Aggregation(
        operator=operator,
        operand=_expr(tree.expr),
        parameter=_expr(tree.param) if tree.param is not None else None,
        labels=tuple(modifier.labels) if modifier is not None else (),
        without=modifier is not None and modifier.type == grammar.AggModifierType.Without,
    )


def _binary(tree: grammar.BinaryExpr) -> Expr:
    operator = str(tree.op).split(" ", 1)[0]
    modifier = tree.modifier
    if modifier is None:
        return Binary(operator, _expr(tree.lhs), _expr(tree.rhs), Matching(), return_bool=False)
    if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
        raise BadQueryError(f"fill modifiers are not supported: {tree}")
    labels = modifier.matching
    matching = Matching(
        cardinality=_CARDINALITIES[str(modifier.card).rsplit(".", 1)[-1]],
        on=labels is not None and labels.type == grammar.LabelModifierType.Include,
        labels=tuple(labels.labels) if labels is not None else (),
        include=tuple(modifier.group_labels or ()),
    )
    return Binary(operator, _expr(tree.lhs), _expr(tree.rhs), matching, return_bool=modifier.return_bool)


_TRANSLATIONS: dict[type[grammar.Expr], Callable[..., Expr]] = {
    grammar.NumberLiteral: _number,
    grammar.StringLiteral: _text,
    grammar.ParenExpr: _paren,
    grammar.UnaryExpr: _negation,
    grammar.VectorSelector: _selector,
    grammar.MatrixSelector: _range,
    grammar.SubqueryExpr: _subquery,
    grammar.Call: _call,
    grammar.AggregateExpr: _aggregation,
    grammar.BinaryExpr: _binary,
}
