"""The sums of a report, and how they are shown."""

from __future__ import annotations

import pytest

from wva.hindsight.report.days import DAY_SECONDS, ShadowReport, days_until, number, signed
from wva.hindsight.report.page import html
from wva.hindsight.report.text import lines
from wva.hindsight.shadow import Late, RealAndShadow, ShadowFigures
from wva.model.variant import VariantKey

MIDNIGHT = 20_000 * DAY_SECONDS
DAYS = days_until(MIDNIGHT + 2 * DAY_SECONDS, 2)
A, B, C = (VariantKey("ns", name) for name in "abc")


def figures(real, shadow, *, late=None, hours=24.0):
    """Return the numbers of a day; a GPU-hour costs 10."""
    known = None if late is None else Late(RealAndShadow(*late), 5.0)
    return ShadowFigures(hours, RealAndShadow(real, shadow), RealAndShadow(10.0 * real, 10.0 * shadow), known)


REPORT = ShadowReport(
    "a test",
    DAYS,
    {
        A: {DAYS[0]: figures(24.0, 12.0, late=(100.0, 200.0)), DAYS[1]: figures(48.0, 36.0, late=(0.0, 20.0))},
        B: {DAYS[1]: figures(10.0, 10.0, hours=10.0)},
        C: {DAYS[0]: figures(2.0, 5.0)},
    },
    {A: "acme/chat", B: "acme/chat", C: "acme/code"},
)


def test_a_sum_has_what_is_known():
    """Variants side by side have the hours of the longest one; days follow each other."""
    overall, by_model, *variants = REPORT.tables()
    assert overall.sum == ShadowFigures(
        48.0, RealAndShadow(84.0, 63.0), RealAndShadow(840.0, 630.0), Late(RealAndShadow(100.0, 220.0), 10.0)
    )
    assert overall.lines[0].figures == ShadowFigures(
        24.0, RealAndShadow(26.0, 17.0), RealAndShadow(260.0, 170.0), Late(RealAndShadow(100.0, 200.0), 5.0)
    )
    assert [(line.name, line.figures.gpu_hours, line.figures.hours) for line in by_model.lines] == [
        ("acme/chat in ns", RealAndShadow(82.0, 58.0), 48.0),
        ("acme/code in ns", RealAndShadow(2.0, 5.0), 24.0),
    ]
    assert [table.title for table in variants] == [
        "ns/a (model acme/chat)",
        "ns/b (model acme/chat)",
        "ns/c (model acme/code)",
    ]
    assert [line.figures is None for line in variants[1].lines] == [True, False]


def test_one_variant_needs_no_table_of_all():
    """The same numbers would stand there twice."""
    (table,) = ShadowReport("", DAYS, {C: REPORT.figures[C]}).tables()
    assert table.title == "ns/c"


def test_the_headline_has_the_difference_and_the_error():
    """It is what a reader remembers."""
    assert REPORT.headline() == (
        "WVA would have run 63.0 GPU-hours; 84.0 really ran (-25 %). It would have cost 630.0; the real cost was 840.0 "
        "(-25 %). 220.0 ± 10.0 requests would have been late; really it was 100.0 ± 10.0."
    )
    same = ShadowReport("", DAYS, {C: {DAYS[0]: figures(2.0, 2.0)}}).headline()
    assert "2.00 really ran (the same)" in same
    assert "late" not in same
    assert "(" not in ShadowReport("", DAYS, {C: {DAYS[0]: figures(0.0, 2.0)}}).headline()


def test_remarks_count_what_is_missing():
    """Missing days, days seen in part, and late requests that nobody has estimated."""
    remarks = " ".join(REPORT.remarks())
    assert "2 of 6 days of variants have no samples" in remarks
    assert "1 of 6 days of variants were seen in part" in remarks
    assert "there is no estimate" in remarks
    whole = ShadowReport("", DAYS, {A: REPORT.figures[A]})
    assert not any("days of variants" in remark or "no estimate" in remark for remark in whole.remarks())


def test_text_and_page_have_the_same_numbers():
    """Each cell of a table of the text is a cell of the page."""
    source = html(REPORT)
    cells = [cell for line in lines(REPORT) if line.startswith("  2024") for cell in line.split()[1:]]
    for cell in cells:
        assert f">{cell}<" in source or cell in "no samples on this day"
    assert source.count('class="none"') == sum("no samples" in line for line in lines(REPORT)) - 1


@pytest.mark.parametrize(
    ("value", "shown", "with_sign"),
    [
        (0.0, "0.00", "0.00"),
        (-0.001, "-0.00", "0.00"),
        (1.234, "1.23", "+1.23"),
        (-1234.56, "-1,234.6", "-1,234.6"),
    ],
)
def test_numbers_are_short(value, shown, with_sign):
    """A difference that rounds to nothing has no sign."""
    assert (number(value), signed(value)) == (shown, with_sign)


def test_midnight_ends_a_day():
    """As in a window of Prometheus, its instant belongs to the day before."""
    assert [day.name for day in DAYS] == ["2024-10-04", "2024-10-05"]
    (today,) = days_until(MIDNIGHT + 3600.0, 1)
    assert (today.start, today.name) == (MIDNIGHT, "2024-10-04 until 01:00")
    (far,) = days_until(1e17, 1)
    assert far.name.endswith(" s")
