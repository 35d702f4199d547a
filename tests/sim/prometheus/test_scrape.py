"""The scraper adds labels, staleness markers and synthetic series, and reads real endpoints."""

import ssl

import pytest
import trustme
from aiohttp import web

from wva.sim.prometheus import HttpEndpoint, InProcess, ScrapeError, Scraper, ScrapeSchedule, ScrapeTarget, Tsdb
from wva.sim.prometheus.scrape import target_labels

BASE = {"job": "vllm", "instance": "10.0.0.1:8000"}


class ScrapedWorld:
    """A scraper with one target, whose page the test sets."""

    def __init__(self, **options) -> None:
        """Pass ``options`` on to the target."""
        self.tsdb = Tsdb()
        self.scraper = Scraper(self.tsdb)
        self.page = ""
        self.target = ScrapeTarget(InProcess(self._render), BASE, **options)
        self.scraper.add(self.target)

    def _render(self) -> str:
        if self.page == "down":
            raise ScrapeError("connection refused")
        return self.page

    async def scrape(self, page: str, *, at: float) -> None:
        """Scrape a page; for ``down`` the target refuses the connection."""
        self.page = page
        await self.scraper.scrape(at)

    def values(self, name: str) -> list[float | None]:
        """Return the values of the only series of a name."""
        (series,) = self.tsdb.of_name(name)
        return series.values

    def times(self, name: str) -> list[int]:
        """Return the times of the only series of a name, in ms."""
        (series,) = self.tsdb.of_name(name)
        return series.times


async def test_samples_carry_the_scrape_time_and_the_labels_of_the_target():
    """All samples of one scrape have its time and the target's labels."""
    world = ScrapedWorld()
    await world.scrape('m{pod="p"} 1\n', at=100.0)
    (series,) = world.tsdb.of_name("m")
    assert series.labels == {"__name__": "m", "pod": "p", **BASE}
    assert (series.times, series.values) == ([100_000], [1.0])


async def test_series_missing_from_the_next_page_ends_there():
    """A missing series gets one staleness marker, not one at each scrape, and continues at its next sample."""
    world = ScrapedWorld()
    for at, page in enumerate(["m 1\nn 1\n", "n 1\n", "n 1\n", "m 2\nn 1\n"]):
        await world.scrape(page, at=at)
    assert world.values("m") == [1.0, None, 2.0]
    assert world.values("n") == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("broken", ["down", "m 2\nbroken {\n"])
async def test_failed_scrape_ends_all_series_and_says_so(broken: str):
    """The scraper stores nothing of a broken page, as if the target had not answered."""
    world = ScrapedWorld()
    await world.scrape("m 1\n", at=1)
    await world.scrape(broken, at=2)
    assert world.values("m") == [1.0, None]
    assert world.values("up") == [1.0, 0.0]
    assert world.values("scrape_samples_scraped") == [1.0, 0.0]
    assert list(world.scraper.errors()) == [world.target.key]
    await world.scrape("m 3\n", at=3)
    assert world.values("m") == [1.0, None, 3.0]
    assert not world.scraper.errors()


async def test_target_that_is_gone_ends_its_series_up_among_them():
    """After the removal of a target, all its series end and get no more samples."""
    world = ScrapedWorld()
    await world.scrape("m 1\n", at=1)
    world.scraper.remove(world.target)
    await world.scrape("m 1\n", at=2)
    await world.scrape("m 1\n", at=3)
    assert world.values("m") == [1.0, None]
    assert world.values("up") == [1.0, None]


async def test_discovered_targets_come_and_go():
    """The scraper asks discovery for targets at each scrape."""
    tsdb = Tsdb()
    scraper = Scraper(tsdb)
    pods = ["a", "b"]
    scraper.discover(
        lambda: [ScrapeTarget(InProcess(lambda: "m 1\n"), {"job": "vllm", "pod": pod}) for pod in pods],
    )
    await scraper.scrape(1)
    pods.remove("a")
    await scraper.scrape(2)
    assert {series.labels["pod"]: series.values for series in tsdb.of_name("m")} == {"a": [1.0, None], "b": [1.0, 1.0]}


async def test_own_timestamps_are_kept_and_their_series_not_ended():
    """A sample keeps its own time. When its series vanishes it gets no staleness marker, as with Prometheus."""
    world = ScrapedWorld()
    await world.scrape("m 1 50000\n", at=100)
    await world.scrape("", at=101)
    assert (world.times("m"), world.values("m")) == ([50_000], [1.0])


async def test_own_timestamps_can_be_overruled():
    """With ``honor_timestamps`` off, samples have the time of the scrape."""
    world = ScrapedWorld(honor_timestamps=False)
    await world.scrape("m 1 50000\n", at=100)
    assert world.times("m") == [100_000]


async def test_same_series_with_labels_in_another_order_does_not_end():
    """A series is identified by its label set, in any order."""
    world = ScrapedWorld()
    await world.scrape('m{a="1",b="2"} 1\n', at=1)
    await world.scrape('m{b="2",a="1"} 2\n', at=2)
    assert world.values("m") == [1.0, 2.0]


async def test_series_added_counts_what_was_not_there_before():
    """The synthetic series counts new series of each scrape."""
    world = ScrapedWorld()
    for at, page in enumerate(["m 1\nn 1\n", "m 1\nn 1\n", "m 1\no 1\n"]):
        await world.scrape(page, at=at)
    assert world.values("scrape_series_added") == [2.0, 0.0, 1.0]


async def test_writes_survive_retention_of_a_silent_series():
    """After retention has dropped a series, a new sample of the target creates it again."""
    world = ScrapedWorld()
    await world.scrape("m 1 0\n", at=10)
    await world.scrape("m 1 0\n", at=8000)
    assert not list(world.tsdb.of_name("m"))
    await world.scrape("m 2 8001000\n", at=8001)
    assert world.values("m") == [2.0]


def test_clashing_label_becomes_exported():
    """The target's label wins. The sample's label gets the prefix ``exported_`` until its name is free."""
    exposed = {"__name__": "m", "pod": "own", "exported_pod": "taken", "job": ""}
    assert target_labels(exposed, {"pod": "p", "job": "j"}, honor_labels=False) == {
        "__name__": "m",
        "pod": "p",
        "job": "j",
        "exported_pod": "taken",
        "exported_exported_pod": "own",
    }


def test_shorter_clashing_label_is_renamed_first():
    """If several labels clash, the one with the shorter name is renamed first."""
    exposed = {"pod": "own", "exported_pod": "own too"}
    assert target_labels(exposed, {"exported_pod": "e", "pod": "p"}, honor_labels=False) == {
        "pod": "p",
        "exported_pod": "e",
        "exported_exported_pod": "own",
        "exported_exported_exported_pod": "own too",
    }


def test_honoured_label_stays():
    """With ``honor_labels`` the sample's label wins."""
    assert target_labels({"pod": "own"}, {"pod": "p", "job": "j"}, honor_labels=True) == {"pod": "own", "job": "j"}


@pytest.fixture
def authority() -> trustme.CA:
    """Return a certificate authority."""
    return trustme.CA()


@pytest.fixture
async def endpoint(authority: trustme.CA):
    """Serve an HTTPS ``/metrics`` that demands a token."""

    async def metrics(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer secret":
            return web.Response(status=401)
        return web.Response(text="m 1\n")

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}/metrics"
    await runner.cleanup()


async def test_https_endpoint_is_scraped(endpoint: str, authority: trustme.CA):
    """A trusted certificate and the right token give the page and a measured duration."""
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    page = await HttpEndpoint(endpoint, verify=trust, bearer_token="secret").fetch()
    assert page.text == "m 1\n"
    assert page.duration_seconds > 0


async def test_self_signed_endpoint_can_be_scraped_unverified(endpoint: str):
    """Verification can be off, because the controller signs its own certificate."""
    assert (await HttpEndpoint(endpoint, verify=False, bearer_token="secret").fetch()).text == "m 1\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [({}, "certificate"), ({"verify": False}, "401"), ({"verify": False, "bearer_token": "wrong"}, "401")],
)
async def test_endpoint_that_refuses_is_a_failed_scrape(endpoint: str, options: dict, reason: str):
    """The error of a failed scrape has the reason from TLS or HTTP."""
    with pytest.raises(ScrapeError, match=reason):
        await HttpEndpoint(endpoint, **options).fetch()


async def test_each_target_is_scraped_at_its_own_phase():
    """All are scraped at zero, and then each once per interval, at an offset that its labels decide."""
    tsdb, schedule = Tsdb(), ScrapeSchedule(15.0)
    scraper = Scraper(tsdb)
    for name in "abcdef":
        scraper.add(ScrapeTarget(InProcess(lambda: "x 1\n"), {"instance": name}))
    while (at := schedule.next(scraper.targets())) <= 120.0:
        await scraper.scrape(at, due=schedule.take(at))
    phases = set()
    for name in "abcdef":
        (up,) = [series for series in tsdb.of_name("up") if series.labels["instance"] == name]
        first, second, *rest = (time / 1000 for time in up.times)
        phases.add(second % 15.0)
        assert first == 0.0 < second <= 15.0
        assert rest == [second + 15.0 * number for number in range(1, len(rest) + 1)]
        assert rest[-1] > 105.0
    assert len(phases) > 3


async def test_a_target_may_have_an_interval_and_an_offset_of_its_own():
    """A schedule that does not begin with all at zero scrapes each target at its offset from the first time on."""
    tsdb, schedule = Tsdb(), ScrapeSchedule(15.0, at_zero=False)
    scraper = Scraper(tsdb)
    scraper.add(ScrapeTarget(InProcess(lambda: "x 1\n"), {"instance": "pod"}, offset_seconds=3.0))
    page = ScrapeTarget(InProcess(lambda: "x 1\n"), {"instance": "page"}, interval_seconds=10.0, offset_seconds=0.0)
    scraper.add(page)
    while (at := schedule.next(scraper.targets())) <= 40.0:
        await scraper.scrape(at, due=schedule.take(at))
    found = {series.labels["instance"]: [time / 1000 for time in series.times] for series in tsdb.of_name("x")}
    assert found == {"pod": [3.0, 18.0, 33.0], "page": [0.0, 10.0, 20.0, 30.0, 40.0]}


async def test_a_target_that_is_found_after_its_offset_waits_for_the_next():
    """It is not scraped at once, as if it had been there at its offset."""
    tsdb, schedule = Tsdb(), ScrapeSchedule(15.0, at_zero=False)
    scraper, page = Scraper(tsdb), InProcess(lambda: "x 1\n")
    scraper.add(ScrapeTarget(page, {"instance": "old"}, offset_seconds=1.0))
    assert schedule.next(scraper.targets()) == 1.0
    await scraper.scrape(16.0, due=schedule.take(16.0))
    for name, offset in (("missed", 2.0), ("next", 3.0)):
        scraper.add(ScrapeTarget(page, {"instance": name}, offset_seconds=offset, found_seconds=17.9))
    while (at := schedule.next(scraper.targets())) <= 40.0:
        await scraper.scrape(at, due=schedule.take(at))
    times = {series.labels["instance"]: [time / 1000 for time in series.times] for series in tsdb.of_name("x")}
    assert times == {"old": [16.0, 31.0], "missed": [32.0], "next": [18.0, 33.0]}


async def test_a_target_that_is_not_due_keeps_its_series():
    """A target that is gone ends at any scrape; one that is not due does not."""
    tsdb = Tsdb()
    scraper = Scraper(tsdb)
    stays, goes = (ScrapeTarget(InProcess(lambda: "x 1\n"), {"instance": name}) for name in ("stays", "goes"))
    scraper.add(stays)
    scraper.add(goes)
    await scraper.scrape(0.0)
    scraper.remove(goes)
    await scraper.scrape(1.0, due=lambda _target: False)
    found = {series.labels["instance"]: list(series.values) for series in tsdb.of_name("x")}
    assert found == {"stays": [1.0], "goes": [1.0, None]}
