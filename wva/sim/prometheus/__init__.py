"""The embedded Prometheus: scrapes the simulated world and answers PromQL over the real HTTP API.

- ``tsdb``        samples in memory
- ``exposition``  the text format of ``/metrics``
- ``fetch``       where pages come from: a function, or HTTP(S)
- ``scrape``      targets, labels, staleness
- ``promql``      the query language; ``promql_parser`` (extra ``demo``) gives the grammar
- ``api``         the HTTP API, with a log of requests and switchable faults
- ``server``      all of it on a port

Time is the time of the world: nothing here sleeps or reads a clock, and a scrape happens on request only.
"""

from __future__ import annotations

from wva.sim.prometheus.faults import PrometheusFaults
from wva.sim.prometheus.fetch import FetchedPage, HttpEndpoint, InProcess, ScrapeError
from wva.sim.prometheus.requests import QueryLog, QueryRequest
from wva.sim.prometheus.scrape import Scraper, ScrapeSchedule, ScrapeTarget
from wva.sim.prometheus.server import EmbeddedPrometheus
from wva.sim.prometheus.tsdb import StoredSeries, Tsdb

__all__ = [
    "EmbeddedPrometheus",
    "FetchedPage",
    "HttpEndpoint",
    "InProcess",
    "PrometheusFaults",
    "QueryLog",
    "QueryRequest",
    "ScrapeError",
    "ScrapeSchedule",
    "ScrapeTarget",
    "Scraper",
    "StoredSeries",
    "Tsdb",
]
