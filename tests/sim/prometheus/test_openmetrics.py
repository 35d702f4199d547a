"""The writer turns the database into text that a real Prometheus can import."""

from __future__ import annotations

import io
import math

import pytest

from wva.sim.prometheus import Tsdb
from wva.sim.prometheus.openmetrics import OpenMetricsWriter


@pytest.fixture
def tsdb():
    """Return an empty database with ten minutes of retention."""
    return Tsdb(retention_seconds=600)


@pytest.fixture
def file():
    """Return the file that gets the text."""
    return io.StringIO()


def test_each_sample_is_written_once_with_its_time(tsdb, file):
    """Each sample is written once, even if retention has removed the first ones before the next write."""
    writer = OpenMetricsWriter(tsdb, file)
    tsdb.append({"__name__": "up", "job": "a"}, 100.5, 1)
    writer.write()
    writer.write()
    tsdb.append({"__name__": "up", "job": "a"}, 900, 0.25)
    writer.finish()
    assert file.getvalue() == 'up{job="a"} 1 100.500\nup{job="a"} 0.25 900.000\n# EOF\n'


def test_the_end_of_a_series_has_no_line(tsdb, file):
    """The text cannot express the end of a series. Later samples of the series are written."""
    labels = {"__name__": "up"}
    tsdb.append(labels, 1, 1)
    tsdb.mark_stale(labels, 2)
    writer = OpenMetricsWriter(tsdb, file)
    writer.write()
    tsdb.append(labels, 3, 1)
    writer.finish()
    assert file.getvalue() == "up{} 1 1.000\nup{} 1 3.000\n# EOF\n"


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (1e-9, "1e-09"), (0.0, "0.0")]
)
def test_values_are_spelled_as_the_format_has_them(tsdb, file, value, text):
    """NaN and infinities have the spelling of the format, which differs from Python's."""
    tsdb.append({"__name__": "m"}, 1, value)
    OpenMetricsWriter(tsdb, file).finish()
    assert file.getvalue() == f"m{{}} {text} 1.000\n# EOF\n"


def test_label_values_are_escaped(tsdb, file):
    """The writer escapes a quote, a backslash and a line break."""
    tsdb.append({"__name__": "m", "a": 'b"c\\d\ne'}, 1, 1)
    OpenMetricsWriter(tsdb, file).finish()
    assert file.getvalue().splitlines()[0] == 'm{a="b\\"c\\\\d\\ne"} 1 1.000'
