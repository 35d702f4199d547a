"""The commands of the page about backtests, run on a real Prometheus with a history of the simulated fleet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.dashboards import SampledPrometheus, SampleSpan, filled_prometheus, span_of
from tests.docs.commands import run_page

pytestmark = pytest.mark.timeout(900)

PAGE = "docs/backtest.md"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SampledPrometheus, SampleSpan]]:
    """Run the demo for eighty virtual minutes, and fill a real Prometheus with its samples."""
    folder = tmp_path_factory.mktemp("backtest")
    samples = folder / "demo.om"
    words = ["demo", "--headless", "--for", "80m", "--openmetrics", str(samples)]
    subprocess.run([sys.executable, "-m", "wva", *words], check=True, timeout=600, stdout=subprocess.DEVNULL)
    with filled_prometheus(samples, folder) as history:
        yield history, span_of(samples)


def test_the_page_runs_on_a_real_prometheus(filled: tuple[SampledPrometheus, SampleSpan], tmp_path: Path):
    """The commands read the history, play policies and propose thresholds. The simulation is close to the real run."""
    history, span = filled
    written = run_page(
        PAGE,
        environment={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        directory=tmp_path,
        yours={"PROMETHEUS": history.url, "FROM": f"{span.start:.0f}", "TO": f"{span.end:.0f}"},
    )
    assert len(written) == 3
    first, other, tuned = written
    assert "| other |" in other or "**other**" in other
    assert "kind: ConfigMap" in tuned
    assert "kvSpareTrigger: " in tuned
    folder = tmp_path / "backtest"
    for name in ("backtest", "tune"):
        for suffix in (".html", ".md"):
            assert (folder / name).with_suffix(suffix).stat().st_size > 0
    found = json.loads((folder / "backtest.json").read_bytes())
    reality = found["reality"]
    cost, share = _as_recorded(first)
    assert cost == pytest.approx(reality["cost"], rel=0.05)
    assert share == pytest.approx(reality["ttft_share"], abs=0.03)
    errors = {each["signal"]: each["error"] for fit in found["fits"] for each in fit["errors"]}
    assert errors.keys() == {"time between tokens", "time to first token", "tokens per second", "KV usage"}
    assert all(error < 0.1 for error in errors.values())
    assert {variant["name"]: variant["price"] for variant in found["variants"]} == {"llama-a100": 20, "llama-h100": 40}


def _as_recorded(text: str) -> tuple[float, float]:
    """Return cost and share in time of the replicas that really ran, from the table that a backtest prints."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    heading = next(row for row in rows if row[0] == "policy")
    row = next(row for row in rows if row[0].strip("*") == "as recorded")
    told = dict(zip(heading, row, strict=True))
    return float(told["price"].replace(",", "")), float(told["in time"].split("%")[0]) / 100
