"""Tables of other pages that repeat figures of the published scorecard, from its data."""

from __future__ import annotations

from pathlib import Path

from tests.docs.markdown import table
from wva.sim.scorecard.tables import decode

DATA = Path(__file__).resolve().parents[2] / "docs" / "scorecard-tables.json"
OBJECTIVES = {"0.3 s": "-300ms", "1 s": "", "3 s": "-3s", "10 s": "-10s"}
"""The ends of the names of the scenarios with this objective for the first token."""
BESIDE_ROLES = {
    "WVA": "wva",
    "KEDA by tokens": "keda-tokens",
    "the same, tuned": "keda-tokens-tuned",
    "HPA per role, tuned": "hpa-roles-inflight-tuned",
    "KEDA by requests in flight": "keda-inflight",
    "fixed ratio, tuned": "fixed-ratio-tuned",
    "knows the load": "clairvoyant",
}


def _rows():
    """Return the row of each policy in each scenario, and the columns by name."""
    data = decode(DATA.read_text(encoding="utf-8"))
    rows = {part.name: {row.policy.partition(" (")[0]: row for row in part.rows} for part in data.scenarios}
    return rows, {name: index for index, name in enumerate(data.headings)}


def _mean(text):
    """Return the mean of a value with its interval, with a space before the percent sign."""
    return text.partition(" ±")[0].replace("%", " %")


def objective_costs():
    """Return what each objective for the first token costs on three kinds of traffic."""
    rows, columns = _rows()
    lines, traffics = [], ("upstream-ramp", "sine", "conversation")
    for objective, end in OBJECTIVES.items():
        values = [rows[f"{traffic}{end}"]["wva"].values for traffic in traffics]
        cells = [f"{_mean(row[columns['in time']])} with {row[columns['mean']]}" for row in values]
        lines.append((objective, *cells))
    return table(("First token within", *(f"`{traffic}`" for traffic in traffics)), lines)


def roles():
    """Return the share in time and the cost of policies in the scenarios with roles."""
    rows, columns = _rows()
    lines = []
    for name, played in rows.items():
        if name.startswith("roles-"):
            results = [played[policy] for policy in BESIDE_ROLES.values()]
            cells = [f"{_mean(row.values[columns['in time']])} at {row.cost:.2f}" for row in results]
            lines.append((f"`{name}`", *cells))
    return table(("Scenario", *BESIDE_ROLES), lines)
