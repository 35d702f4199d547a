"""The alerts, and the selectors of their queries."""

from __future__ import annotations

from pathlib import Path

import promql_parser
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability"
ALERTS = {
    rule["alert"]: rule
    for rule in yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
}


def selectors(node):
    """Return every selector below a node of the syntax tree."""
    if isinstance(node, promql_parser.VectorSelector):
        return [node]
    below = []
    for name in ("lhs", "rhs", "expr", "vector_selector", "param"):
        child = getattr(node, name, None)
        below += [] if child is None else selectors(child)
    return below + [found for child in getattr(node, "args", ()) for found in selectors(child)]
