"""The pages show the results of the runs, and the HTML page loads no other file."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from tests.sim.scorecard import fakes
from wva.model.records import replace
from wva.sim.scorecard.card import PolicyFamily, card
from wva.sim.scorecard.markdown import FiguresBeside, markdown
from wva.sim.scorecard.page import html
from wva.sim.scorecard.shown import COLUMNS, seconds, share
from wva.sim.scorecard.tables import HEADINGS, DecidedPair, decode, encode, tables
from wva.sim.scorecard.tables_page import tables_page
from wva.sim.scorecard.verdicts import in_short

POLICIES = (*fakes.SKILL, *fakes.MEMBERS)
LIMIT_BYTES = 8_000_000


def read(card):
    """Return the Markdown of a card."""
    return markdown(tables(card), FiguresBeside("figures.html", "figures.json"))


@pytest.fixture(scope="module")
def example():
    """Return a card of two scenarios, one of them with text that looks like HTML and Markdown."""
    scenarios = [fakes.scenario(), fakes.scenario("odd", title="a <b>|</script><script>alert(1)</script>")]
    runs = [fakes.run(of, policy, seed) for of in scenarios for policy in POLICIES for seed in (1, 2, 3, 4)]
    families = (PolicyFamily("hpa-inflight-tuned", tuple(fakes.MEMBERS)),)
    return card(scenarios, runs, title="Scorecard", families=families)


@pytest.fixture(scope="module")
def page(example):
    """Return the HTML page of the example."""
    return html(example)


class Elements(HTMLParser):
    """Collects elements by tag."""

    def __init__(self, text):
        """Parse a page."""
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Record an element."""
        self.found.append((tag, dict(attrs)))

    def all(self, tag):
        """Return the attributes of each element of a tag."""
        return [attributes for name, attributes in self.found if name == tag]


def data_of(page):
    """Return the data for the plots."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_loads_nothing(page):
    """No element of the page has an address, and its security policy forbids all requests."""
    elements = Elements(page)
    assert [each for each in elements.found if {"src", "srcset"} & each[1].keys() or each[0] in {"link", "img"}] == []
    assert all(each["href"].startswith("#") for each in elements.all("a"))
    (policy,) = [each["content"] for each in elements.all("meta") if "http-equiv" in each]
    assert policy.startswith("default-src 'none'")
    assert len(page.encode()) < LIMIT_BYTES


def test_text_of_a_scenario_is_text(page):
    """The text of a scenario is shown as text, even if it looks like HTML."""
    assert "<script>alert" not in page
    assert "a &lt;b&gt;|&lt;/script&gt;" in page


def test_names_of_variants_are_text_in_plots():
    """Names of variants are shown as text. Plotly would make a link of such a name."""
    (part,) = card([fakes.scenario()], [fakes.run(fakes.scenario(), "wva", 1)], title="").parts
    timeline = part.timelines["wva"]
    odd = replace(timeline, variants=(replace(timeline.variants[0], name='<a href="http://x">y</a>'),))
    found = html(card([fakes.scenario()], [replace(fakes.run(fakes.scenario(), "wva", 1), timeline=odd)], title=""))
    assert data_of(found)["parts"][0]["variants"] == ['&lt;a href="http://x"&gt;y&lt;/a&gt;']


def test_every_scenario_has_its_plots_and_every_policy_its_point(page, example):
    """Each scenario has a section with plots, and each policy a point with its own number."""
    sections = [each["id"] for each in Elements(page).all("section")]
    assert sections == ["waves", "odd"]
    parts = data_of(page)["parts"]
    shown = {cell.policy for cell in example.parts[0].cells}
    for part in parts:
        assert part["runs"].keys() == shown
        assert len(part["points"]) == len({point["number"] for point in part["points"]}) == len(shown)


def test_what_one_looks_for_first_is_named_in_the_plot(example):
    """The plot names WVA, the clairvoyant policy and the best one. Its load begins with the measured time."""
    for part, data in zip(example.parts, data_of(html(example))["parts"], strict=True):
        named = {point["policy"].partition(" (")[0] for point in data["points"] if point["named"]}
        shown = {cell.policy for cell in part.cells}
        assert named == {"wva", "clairvoyant", part.winner, part.unaided} & shown
        assert data["load"][0] is None
        assert data["load"][1] is not None


def test_changes_of_replicas_are_exact_and_lines_are_thinned(example):
    """Plots have exact changes of replicas and fewer points of lines, for any length of a run."""
    part = example.parts[0]
    timeline = part.timelines["wva"]
    assert len(timeline.late_share) == 61
    long = replace(
        timeline,
        offered_per_second=timeline.offered_per_second * 20,
        late_share=timeline.late_share * 20,
        ideal_replicas=timeline.ideal_replicas * 20,
    )
    parts = (replace(part, timelines=dict.fromkeys(part.timelines, long)), *example.parts[1:])
    thin = data_of(html(replace(example, parts=parts)))["parts"][0]
    assert len(thin["load"]) == len(thin["ideal"]) == len(thin["runs"]["wva"]["late"]) <= 240
    exact = data_of(html(example))["parts"][0]["runs"]["wva"]["ready"][0]
    values = timeline.variants[0].ready
    assert exact[1::2] == [value for index, value in enumerate(values) if index == 0 or value != values[index - 1]]


def test_two_pages_of_the_same_runs_are_the_same(page, example):
    """Two pages of the same runs are equal byte by byte, also when the tables come from their file."""
    assert html(example) == page
    assert read(example) == read(example)
    again = decode(encode(tables(example)))
    assert again == tables(example)
    assert tables_page(again) == tables_page(tables(example))


def test_a_column_that_was_not_recorded_says_so(example):
    """Data of a version that lacked a column have the present ones, and no figure in place of the one that lacks."""
    found = tables(example)
    lacking = HEADINGS.index("tokens late by cause")

    def without(values):
        return values[:lacking] + values[lacking + 1 :]

    old = [
        replace(part, rows=tuple(replace(row, values=without(row.values)) for row in part.rows))
        for part in found.scenarios
    ]
    again = decode(encode(replace(found, headings=without(HEADINGS), scenarios=tuple(old))))
    assert again.headings == HEADINGS
    for part, before in zip(again.scenarios, found.scenarios, strict=True):
        for row, known in zip(part.rows, before.rows, strict=True):
            assert row.values[lacking] == "not recorded"
            assert without(row.values) == without(known.values)


def test_the_page_says_which_seeds_it_has(example):
    """The page names its seeds, and whether development has seen what they do."""
    found = tables(example)
    assert "The seeds are 1, 2, 3, 4. Development uses these too" in read(example)

    def told(*numbers):
        return markdown(replace(found, seed_numbers=numbers), FiguresBeside("p", "d"))

    assert "The seeds are 1001, 1002. Development uses others" in told(1001, 1002)
    assert "Which seeds these are was not recorded." in told()


def test_the_page_says_what_is_certain(example):
    """The page says for how many comparisons it was corrected, and of data that were not that they were not."""
    found = tables(example)
    assert f"{found.tests:,} differences were tested" in read(example)
    assert found.tests == 2 * 2 * 4, "two scenarios, four rivals, share and cost"
    old = markdown(replace(found, tests=0), FiguresBeside("p", "d"))
    assert "before the number of comparisons was corrected for" in old


def test_the_bound_stands_beside_the_results(example):
    """The page has the bound of each scenario, and of data without one it says that it was not recorded."""
    found = tables(example)
    assert [part.bound for part in found.scenarios] == ["97.0%", "97.0%"]
    assert read(example).count("| 97.0% |") == 2
    assert "without foresight or spare replicas: 97.0%." in tables_page(found)
    old = json.loads(encode(found))
    for part in old["scenarios"]:
        del part["bound"]
    text = markdown(decode(json.dumps(old)), FiguresBeside("p", "d"))
    assert text.count("| not recorded |") == 2


def test_slow_tokens_have_a_column_of_causes(example):
    """The causes of a late time between tokens stand in a column of their own."""
    wva = tables(example).scenarios[0].row("wva")
    assert wva.values[HEADINGS.index("tokens late by cause")].startswith("slow pod 0.")
    assert "slow pod" not in wva.values[HEADINGS.index("late by cause")]


def test_the_markdown_has_a_line_for_every_scenario(example):
    """The Markdown has one table, no cell breaks its rows, and it links every figure."""
    text = read(example)
    (table,) = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    rows = table.splitlines()
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| waves", "| odd"]
    assert len({row.count("|") for row in rows}) == 1
    assert "](figures.html)" in text
    assert "](figures.json)" in text


def test_the_tables_have_every_scenario_and_every_policy(example):
    """The data and the page of tables have a row for every policy, as the page with plots shows it."""
    found = tables(example)
    page, plots = tables_page(found), html(example)
    for part, table in zip(example.parts, found.scenarios, strict=True):
        assert [row.policy for row in table.rows] == [cell.policy for cell in part.cells]
        for row, cell in zip(table.rows, part.cells, strict=True):
            assert len(row.values) == len(HEADINGS) == len(COLUMNS) + 2
            cells = "".join(f"<td>{value}</td>" for value in row.values[: len(COLUMNS)])
            assert cells in page
            assert cells in plots
            assert row.cost == round(cell.cost_ratio, 2)
    assert "<script" not in page
    assert "a &lt;b&gt;|&lt;/script&gt;" in page


def test_the_tables_say_where_it_wins_and_loses_and_why(example):
    """The tables name each rival, the difference and its causes, and the counts are those of the scenarios."""
    found = tables(example)
    waves = found.scenarios[0]
    assert {pair.name: pair.by for pair in waves.loses.against} == {"static-peak": "attainment"}
    assert waves.loses.why.startswith("The best of them is static-peak: wva is late more often because of ")
    by = {pair.name: pair.by for pair in waves.wins.against}
    assert by["hpa-kv"] == "attainment"
    page = tables_page(found)
    assert f"<b>wva loses</b> by attainment to static-peak. {waves.loses.why}" in page
    for count in found.counts:
        for verdict in ("wins", "loses"):
            lists = [getattr(part, verdict).against for part in found.scenarios]
            names = [pair.name.partition(" (")[0] for pairs in lists for pair in pairs]
            assert names.count(count.against) == getattr(count, verdict)


def test_the_markdown_says_what_to_conclude():
    """It says where the default is enough, where nobody is, what another setting costs, and how others do."""
    scenario = fakes.scenario()
    runs = [fakes.run(scenario, policy, seed) for policy in fakes.SKILL for seed in (1, 2)]
    found = tables(card([scenario], runs, title="t"))
    (part,) = found.scenarios
    own = next(row for row in part.rows if row.policy == "wva")

    def concluded(in_time, **changes):
        rows = tuple(replace(row, in_time=in_time, cost=1.1) if row is own else row for row in part.rows)
        text = markdown(replace(found, scenarios=(replace(part, rows=rows, **changes),)), FiguresBeside("p", "d"))
        return text.partition("## What to conclude\n")[2].partition("\n## ")[0]

    enough = concluded(0.99, goal=True)
    assert "at least 99% in time in waves. The median cost there is 1.10, the highest 1.10 (waves)." in enough
    assert "no autoscaler" not in enough
    assert "(HPA, KEDA, Knative; targets set beforehand) wva wins in 1 of the 1 scenarios, and loses in 0." in enough
    nobody = concluded(0.98, goal=False)
    assert "Where the default is enough" not in nobody
    assert "In 1 of 1 scenarios no policy that does not know the traffic has 99% in time." in nobody
    assert "A fleet fixed at the size for the peak has the goal in 1 of these 1, at 1." in nobody
    hybrid = replace(own, policy="wva-hybrid", name="wva-hybrid", cost=2.2)
    loses = replace(part.loses, against=(DecidedPair("wva-hybrid", "attainment"), DecidedPair("static-peak", "cost")))
    other = replace(part, rows=(replace(own, cost=1.1), hybrid, *part.rows[1:]), loses=loses)
    text = markdown(replace(found, scenarios=(other,)), FiguresBeside("p", "d"))
    assert "look at `wva-hybrid`. It has more requests in time in waves, at 2.0 to 2.0 times the cost of wva." in text


def test_the_markdown_begins_with_what_it_comes_to(example):
    """Before any table, the Markdown names the best policy, the rank of WVA, and the rivals it beats most often."""
    first_screen = read(example).partition("\n## Results\n")[0]
    assert "|" not in first_screen
    assert "compares `wva` with 5 other [policies](rivals.md) in 2 scenarios" in first_screen
    assert "- **Who is best without knowing the traffic:** `wva` (2)." in first_screen
    assert "it is the best in 2 of 2 scenarios, level with the best in 0, and loses to the best in 0" in first_screen
    assert "- **Whom wva wins against most often:** `hpa-kv` (2), `keda-prometheus` (2)." in first_screen
    assert "static-peak" not in first_screen


def test_a_loss_has_its_causes_in_words_and_its_price():
    """If WVA loses to a rival, the summary names the rival, the causes and their meaning."""
    found = card([fakes.scenario()], [fakes.run(fakes.scenario(), name, 1) for name in ("wva", "hpa-kv")], title="t")
    (part,) = found.parts
    wva, other = part.cells if part.cells[0].policy == "wva" else reversed(part.cells)
    better = replace(other, policy="hpa-kv", figures=wva.figures, attainments=wva.attainments)
    worse = replace(wva, figures=other.figures, attainments=other.attainments, late_by_cause=other.late_by_cause)
    better = replace(better, late_by_cause=dict.fromkeys(other.late_by_cause, 0.0), cost_ratios=other.cost_ratios)
    lost = replace(found, parts=(replace(part, cells=(worse, better), unaided="hpa-kv"),))
    answers = dict(in_short(lost))
    assert answers["Whom wva loses to most often"] == "`hpa-kv` (1)."
    assert "*decision* (1): the policy had looked, and asked for too little." in answers["Why wva loses to the best"]


def test_a_card_without_rivals_has_nothing_in_short():
    """Without rivals the page has no section in short."""
    scenario = fakes.scenario()
    alone = card([scenario], [fakes.run(scenario, "wva", 1)], title="t")
    assert list(in_short(alone)) == []
    assert "## In short" not in read(alone)


def test_one_seed_has_no_interval(example):
    """With one seed there is no interval, and the page says so."""
    scenario = fakes.scenario()
    one = card([scenario], [fakes.run(scenario, policy, 1) for policy in fakes.SKILL], title="t")
    assert "±" not in html(one)[: html(one).index("<script>")]
    assert "One seed has no confidence interval" in read(one)
    assert "±" not in encode(tables(one))
    assert "±" in encode(tables(example))


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "100%"), (0.99996, "99.99%"), (0.9995, "99.95%"), (0.99, "99.0%"), (0.0, "0.0%")],
)
def test_nearly_all_is_not_all(value, text):
    """A share just below 100 % is not rounded to 100 %, so that a late request stays visible."""
    assert share(value) == text


def test_durations_have_their_unit():
    """Durations have their unit, and three digits at most."""
    assert [seconds(value) for value in (0.05, 1.234, 140.2)] == ["50 ms", "1.2 s", "140 s"]


def test_the_first_comparison_stands_beside_this_one():
    """The table has results on the first comparison's engines and on the present ones, where both exist."""
    scenarios = [fakes.scenario("step"), fakes.scenario("first-step")]
    runs = [fakes.run(each, policy, seed) for each in scenarios for policy in fakes.SKILL for seed in (1, 2)]
    found = card(scenarios, runs, title="t")
    rows = tables(found).earlier
    assert [(row[1], row[2]) for row in rows] == [
        ("wva", "87.8% at 1.33"),
        ("hpa-kv", "96.7% at 1.65"),
        ("static-peak", "100% at 1.64"),
    ]
    assert all("±" in row[3] and "±" in row[4] for row in rows)
    assert "Beside the first comparison" in tables_page(tables(found))
    assert "Beside the first comparison" not in tables_page(tables(replace(found, parts=())))
