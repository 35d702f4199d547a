"""``wva report --shadow`` prints what really ran against what WVA would have run."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from tests.builders import policy, replica, variant
from tests.cli.conftest import closed_port
from wva.cli import report as command
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.recordings import RecordingWriter
from wva.model.memory import Memory
from wva.model.snapshot import Snapshot
from wva.sim.prometheus import EmbeddedPrometheus

pytestmark = pytest.mark.usefixtures("log_as_before")

NOON = 1_767_268_800.0  # 2026-01-01
ODD = "<b>&\x1b[2J"


@pytest.fixture
def folder(tmp_path):
    """Return a folder with an hour of one busy replica, which should be two, and another variant with an odd model."""
    place = tmp_path / "cycles"
    snapshot = Snapshot.of(
        [variant("a", maximum=2, cost=10.0), variant("b", model=ODD, cost=1.0)], [replica(kv=0.95, queue=9)]
    )
    for minute in range(0, 61, 5):
        now = NOON + 60 * minute
        decisions = conclude(snapshot, Memory(), policy(), now).decisions
        RecordingWriter(str(place)).write(Recording(now, policy(), Memory(), snapshot, decisions))
    return str(place)


def test_the_text_has_a_table_for_each_variant_and_their_sum(wva, folder):
    """Real and shadow stand beside each other, and what nobody knows is no zero."""
    found = wva("report", "--shadow", "--from", folder)
    assert (found.status, found.err) == (0, "")
    assert f"2026-01-01 until 13:00 (days of UTC), from recordings in {folder}\n" in found.out
    assert "WVA would have run 3.00 GPU-hours; 2.00 really ran (+50 %)." in found.out
    assert re.search(r"^ns/a \(model m\)$", found.out, re.MULTILINE)
    rows = re.findall(r"^  2026-01-01 until 13:00 +(.*)$", found.out, re.MULTILINE)
    assert [row.split() for row in rows[:2]] == [
        ["1.00", "2.00", "3.00", "+1.00", "11.0", "21.0", "+10.0", "-", "-", "-", "-"],
        ["1.00", "1.00", "2.00", "+1.00", "10.0", "20.0", "+10.0", "-", "-", "-", "-"],
    ]
    assert "the first difference of a variant is certain, and a sum is an estimate" in found.out
    assert "\x1b" not in found.out


def test_json_has_the_same_numbers(wva, folder):
    """By day, by model and by variant."""
    document = json.loads(wva("report", "--shadow", "--from", folder, "--output", "json").out)
    assert document["sum"]["gpu_hours"] == {"real": 2.0, "shadow": 3.0, "difference": 1.0}
    assert document["sum"]["late_requests"] is None
    first, second = document["variants"]
    assert (first["name"], first["days"][0]["sum"]["hours"]) == ("a", 1.0)
    assert second["model"] == ODD
    assert document["notes"]


def test_only_one_namespace(wva, folder):
    """Another one has nothing to report."""
    assert wva("report", "--shadow", "--from", folder, "-n", "ns").status == 0
    found = wva("report", "--shadow", "--from", folder, "-n", "other")
    assert found.status == 1
    assert "nothing to report on 2026-01-01 until 13:00 in namespace other: two recorded cycles" in found.err


class ParsedPage(HTMLParser):
    """The elements of a page, with what would load something."""

    def __init__(self, text):
        """Read the page."""
        super().__init__()
        self.open, self.loads, self.bars, self.text = [], [], 0, ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Note an element."""
        given = dict(attributes)
        self.loads += [value for name, value in attributes if name in {"src", "href", "srcset", "data"}]
        self.bars += tag == "rect" and given.get("class") in {"real", "wva"}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        """Note an element that is closed at once."""
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        """Every element ends where it must."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Note the text."""
        self.text += data


def test_the_page_stands_alone(wva, folder, tmp_path):
    """It loads nothing, has bars, and shows labels as text."""
    path = tmp_path / "report.html"
    assert wva("report", "--shadow", "--from", folder, "--html", str(path)).status == 0
    source = path.read_text(encoding="utf-8")
    page = ParsedPage(source)
    assert (page.open, page.loads, page.bars) == ([], [], 4)
    assert "http" not in source.replace("http-equiv", "")
    assert "default-src 'none'" in source
    assert "prefers-color-scheme: dark" in source
    assert "<b>" not in source
    assert ODD.replace("\x1b", "") in page.text.replace("\x1b", "")
    assert "Late requests, no estimate" in page.text


async def test_prometheus_is_asked(wva, monkeypatch):
    """The token comes from the environment; days without samples are told."""

    async def run(*words, **environment):
        with monkeypatch.context() as own:
            for name, value in environment.items():
                own.setenv(name, value)
            return await asyncio.to_thread(wva, *words)

    now = NOON
    monkeypatch.setattr(command, "time", SimpleNamespace(time=lambda: now))
    async with EmbeddedPrometheus(now=lambda: now, retention_seconds=86400 * 3, token="sesame") as prometheus:
        for name, fleets in (("hours", [""]), ("gpu_hours", ["real", "shadow"]), ("cost", ["real", "shadow"])):
            for fleet in fleets:
                labels = {"__name__": f"wva_shadow_{name}_total", "instance": "i", "variant_name": "a"}
                for minute in range(-60, 1):
                    at = now + 60 * minute
                    own = {"job": "wva", "namespace": "wva-system", "exported_namespace": "ns", "fleet": fleet}
                    prometheus.tsdb.append(labels | own, at, (minute + 60) / 60)
        words = ("report", "--shadow", "--prometheus", prometheus.url, "--days", "3")
        words = (*words, "--controller-namespace", "wva-system")
        found = await run(*words, PROMETHEUS_BEARER_TOKEN="sesame")
        refused = await run(*words, PROMETHEUS_BEARER_TOKEN="wrong-word")
        nothing = await run(*words, "--namespace", "other", PROMETHEUS_BEARER_TOKEN="sesame")
        forged = await run(*words, PROMETHEUS_BEARER_TOKEN="sesame", WVA_METRICS_JOB="another")
        half = await run(*words, PROMETHEUS_BEARER_TOKEN="sesame", WVA_METRICS_JOB="\udc80")
        anyones = await run(*words, "--controller-namespace", "", PROMETHEUS_BEARER_TOKEN="sesame")
    assert (found.status, found.err) == (0, "")
    assert "no samples on this day" in found.out
    assert refused.status == 1
    assert "answered 401" in refused.lines[0]
    assert "wrong-word" not in refused.err
    assert nothing.status == 1
    assert "in namespace other: Prometheus has no counters of a variant in shadow mode" in nothing.lines[0]
    assert forged.status == 1
    assert "from a controller in namespace wva-system (--controller-namespace): does it scrape" in forged.lines[0]
    assert anyones.out == found.out
    assert "is no text: it has half a character" in half.lines[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: --shadow"),
        (["--shadow"], "one of the arguments --prometheus --from is required"),
        (["--shadow", "--from", "a", "--prometheus", "b"], "--prometheus: not allowed with argument --from"),
        (["--shadow", "--from", "a", "--days", "93"], "argument --days: '93': expected a whole number from 1 to 92"),
        (["--shadow", "--from", "a", "-n", 'x"}'], "is not a namespace"),
    ],
)
def test_a_wrong_flag_is_a_usage_error(wva, words, message):
    """The status is 2, and one line says what is expected."""
    found = wva("report", *words)
    assert found.status == 2
    assert message in found.err


def test_what_cannot_be_read_or_written_is_one_line(wva, folder, tmp_path, monkeypatch):
    """The status is 1."""
    monkeypatch.setattr("wva.prometheus.client._RETRY_PAUSES_SECONDS", (0.01, 0.02, 0.04))
    unwritten = wva("report", "--shadow", "--from", folder, "--html", str(tmp_path))
    assert (unwritten.status, unwritten.err) == (1, f"wva: --html={tmp_path}: Is a directory\n")
    url = f"http://127.0.0.1:{closed_port()}"
    away = wva("report", "--shadow", "--prometheus", url, "--days", "1")
    assert away.status == 1
    assert away.err.startswith(f"wva: {url} cannot be reached")
    (wrong,) = wva("report", "--shadow", "--prometheus", "nowhere").lines
    assert "--prometheus is 'nowhere': expected a URL" in wrong
