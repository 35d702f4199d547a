"""The console in a real browser: what one sees and does, with whom it talks, how it looks, and who can use it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from e2e.browser import BrowserPage, browser
from e2e.controlplane.ports import free_port
from tests.builders import NOW, replica, variant
from tests.serve.console_site import GPUS, ConsoleSite
from tests.serve.doubles import serving
from wva.api.meta import Condition
from wva.decide.failed import Load
from wva.hindsight.shadow import Late, RealAndShadow, ShadowFigures
from wva.model.decision import Decision, Limit
from wva.model.in_time import InTime, ServedShare
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.objectives import DEFAULT_OBJECTIVES
from wva.model.variant import ModelKey, VariantKey
from wva.publish.meanings import MEANINGS_OF_REASONS
from wva.serve.gate import Loopback

_CYCLES = 24
_HOSTILE = "<img src=x onerror=\"document.title='broken in'\"></script><script>document.title='broken in'</script>"
_LONG = "an-organisation-with-a-long-name/and-a-model-with-a-longer-one-instruct-fp8-dynamic-2026"
_NAMED = "longest-name-of-a-variant-that-somebody-has-chosen"
_WIDE, _PHONE = (1280, 1800), (375, 3600)
_SEEN = "document.querySelectorAll('#models tbody').length"
_EXPLAINED = "document.getElementById('explanation').open && document.querySelectorAll('#why .steps li').length > 0"
_SEARCHED = "!document.getElementById('why').textContent.includes('Deciding again')"
_AXE = (
    "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map((each) => "
    "({id: each.id, impact: each.impact, nodes: each.nodes.map((node) => node.html).slice(0, 3)})))"
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Run the demo with its console, a minute in each second, and return the URL."""
    address = f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("demo") / "log"
    command = [
        sys.executable,
        "-m",
        "wva",
        "demo",
        "--headless",
        "--scenario",
        "bad-day",
        "--speed",
        "30",
        "--web",
        address,
    ]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield f"http://{address}/"
            assert process.poll() is None, log.read_text()
        finally:
            process.kill()


class ConsoleFleet(ConsoleSite):
    """A fleet with everything that the console can show."""

    async def play(self) -> None:
        """Run cycles in which models are held and limited, and one has a variant in shadow mode."""
        models = {"m": "calm", _LONG: _NAMED, _HOSTILE: "hostile"}
        shadow = VariantKey("one", "calm")
        self.shadows.update({shadow, VariantKey("one", "hostile")})
        for key in self.shadows:
            self.accounts[key] = ShadowFigures(
                0.0, RealAndShadow(41.5, 33.25), RealAndShadow(830, 665), Late(RealAndShadow(12, 340), 95)
            )
        for name in models.values():
            self.conditions[VariantKey("one", name)] = (
                Condition("TargetResolved", "True", "TargetFound", "found", "2026-01-01T00:00:00Z"),
                Condition("MetricsAvailable", "False", "MetricsStale", f"stale {_HOSTILE}", "2026-01-01T00:00:00Z"),
                Condition(_HOSTILE, _HOSTILE, _HOSTILE, _HOSTILE, _HOSTILE),
            )
        key = VariantKey("one", "calm")
        self.served[ModelKey("one", "m")] = InTime(
            DEFAULT_OBJECTIVES, key, ServedShare(20.0, 1.0), ServedShare(200.0, 0.97)
        )
        for number in range(_CYCLES):

            def change(decision: Decision, number: int = number) -> Decision:
                limited = decision.key.name != "calm" and number > _CYCLES // 2
                limiter = _HOSTILE if decision.key.name == "hostile" else "gpu-limiter A100"
                return decision.noted("limit", _HOSTILE, limit=Limit(limiter, 2)) if limited else decision

            await self.cycle(
                number,
                variants=[
                    variant(name, namespace="one", model=model, accelerator=_HOSTILE if model == _HOSTILE else "A100")
                    for model, name in models.items()
                ],
                gpus=Inventory.of([*GPUS.pools, AcceleratorPool(_HOSTILE, 8, 2)], GPUS.quotas),
                replicas=[
                    replica(
                        f"{name}-0", variant=name, namespace="one", kv=None if number in {5, 6} else 0.1 + 0.03 * number
                    )
                    for name in models.values()
                ],
                loads={ModelKey("one", model): Load(1.0 + number, 0.5, 12.0, 14.0) for model in models},
                change=change,
            )


@pytest.fixture
async def fleet() -> AsyncGenerator[ConsoleFleet]:
    """Serve the console of a fleet without tokens."""
    made = ConsoleFleet(Loopback())
    await made.play()
    async with serving(made.handler, name="console") as server:
        made.url = f"http://127.0.0.1:{server.port}"
        yield made


@pytest.fixture
async def page(tmp_path: Path) -> AsyncGenerator[BrowserPage]:
    """Start a browser."""
    async with browser(tmp_path / "profile") as opened:
        yield opened


async def picture(page: BrowserPage, name: str) -> None:
    """Write a picture of the window, if somebody wants to look at it."""
    if folder := os.environ.get("WVA_E2E_LOGS"):
        await page.screenshot(Path(folder) / f"console-{name}.png")


async def text(page: BrowserPage, name: str) -> str:
    """Return the text of an element by its id."""
    return str(await page.evaluate(f"document.getElementById({name!r}).textContent"))


async def click(page: BrowserPage, selector: str) -> None:
    """Click on an element."""
    await page.evaluate(f"document.querySelector({selector!r}).click()")


def others(page: BrowserPage, url: str) -> list[str]:
    """Return the requests that went elsewhere."""
    return [asked for asked in page.requests if not asked.startswith(url)]


async def test_the_demo_is_watched_and_a_decision_explained(demo: str, page: BrowserPage) -> None:
    """Models are there, the timeline zooms by button and by mouse, a decision opens its explanation, all of it live."""
    async with asyncio.timeout(180):
        while not await _answers(demo):  # noqa: ASYNC110 - another process listens
            await asyncio.sleep(0.2)
    await page.open(demo, width=1280, height=1000)
    await page.until(f"{_SEEN} === 1")
    assert "meta/llama-3.1-70b" in await text(page, "models")
    await page.until("document.querySelectorAll('#decisions tbody tr').length > 4")

    # Live: the page changes without being loaded again, and by one stream.
    before = await text(page, "state")
    await page.until(f"document.getElementById('state').textContent !== {before!r}")
    assert len([url for url in page.requests if url == f"{demo}v1/stream"]) == 1
    assert len([url for url in page.requests if url == demo]) == 1

    await click(page, "#models .link")
    await page.until("document.activeElement.id === 'model-title'")
    assert await page.evaluate("location.hash") == "#llm/meta%2Fllama-3.1-70b"

    # The timeline shows the last hour of virtual time at most; its charts are drawn anew for each zoom.
    assert await page.evaluate("state.zoom") is None
    await click(page, "#zoom [data-key='15 min']")
    assert await page.evaluate("state.zoom") == {"seconds": 900}
    assert await page.evaluate("document.querySelector(\"#zoom [aria-pressed='true']\").textContent") == "15 min"
    await click(page, "#zoom [data-key='All']")
    await page.drag("#charts figure svg", begin=0.3, end=0.6)
    await page.until("state.zoom !== null && state.zoom.from !== undefined")
    zoom = await page.evaluate("({...state.zoom, at: state.overview.at})")
    assert zoom["until"] < zoom["at"]
    labels = (
        "[...document.querySelectorAll('#charts svg[role=img]')].map((each) => each.getAttribute('aria-label')).join()"
    )
    assert "Replicas of llama-h100" in await page.evaluate(labels)
    await click(page, "#zoom [data-key='All']")

    await click(page, "#decisions button")
    await page.until(_EXPLAINED)
    await page.until(_SEARCHED)
    why = await text(page, "explanation")
    assert "Why llm/llama-" in why
    assert "Steps to the number" in why
    assert "kv_usage" in why
    await picture(page, "demo-explained")
    await page.press("Escape")
    await page.until("!document.getElementById('explanation').open")
    assert "Explain" in await page.evaluate("document.activeElement.textContent")
    await picture(page, "demo")

    assert others(page, demo) == []
    assert page.complaints == []


async def _answers(url: str) -> bool:
    """Tell whether the console has decisions already."""
    site = ConsoleSite()
    site.url = url.rstrip("/")
    try:
        return (await site.get("/v1/overview", user=""))[0] == 200
    except OSError:
        return False


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [_WIDE, _PHONE], ids=["wide", "phone"])
async def test_everybody_can_use_it(fleet: ConsoleFleet, page: BrowserPage, scheme: str, size: tuple[int, int]) -> None:
    """Rules of accessibility find nothing serious, and nothing has to be scrolled to the side."""
    width, height = size
    await page.open(fleet.url + "/", width=width, height=height, scheme=scheme)
    await page.until(f"{_SEEN} === 3")
    await page.until("document.querySelectorAll('#charts path').length > 4")
    await page.evaluate("document.querySelectorAll('#conditions details').forEach((each) => { each.open = true; })")
    name = f"{'phone' if width < 500 else 'wide'}-{scheme}"
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await serious(page) == []
    await picture(page, name)
    await click(page, "#models td button")
    await page.until(_EXPLAINED)
    await page.until(_SEARCHED)
    assert await page.evaluate("document.getElementById('explanation').scrollWidth") <= width
    assert await serious(page) == []
    await picture(page, f"{name}-explained")
    assert others(page, fleet.url) == []
    assert page.complaints == []


async def serious(page: BrowserPage) -> list[dict[str, Any]]:
    """Return what axe finds serious or critical."""
    await page.evaluate(f"{files('axe_core_python').joinpath('axe.min.js').read_text('utf-8')}; 0")
    return [found for found in await page.evaluate(_AXE) if found["impact"] in {"serious", "critical"}]


async def test_a_problem_of_accessibility_is_found(page: BrowserPage, tmp_path: Path) -> None:
    """Grey on grey, and a button without a name."""
    path = tmp_path / "page.html"
    path.write_text(
        "<html lang=en><title>x</title><p style='color:#999;background:#aaa'>hard to read</p><button></button>"
    )
    await page.open(path, width=800, height=600)
    assert {found["id"] for found in await serious(page)} >= {"color-contrast", "button-name"}


async def test_holds_limits_budget_and_shadow_are_seen(fleet: ConsoleFleet, page: BrowserPage) -> None:
    """GPUs used and free, what shadow mode would have cost, and in the timeline when a number was held or limited."""
    await page.open(fleet.url + "/", width=1280, height=1800)
    await page.until(f"{_SEEN} === 3")
    pools = await text(page, "pools")
    assert "2 used, 6 free of 8" in pools
    assert "one: quota gpus, nvidia.com/gpu1 used, 3 free of 4" in pools
    regret = await text(page, "regret")
    assert "one/calm" in regret
    assert "41.533.3\u22128.25 (\u221220 %)" in regret
    assert "12340 \u00b1 95+328" in regret
    assert "All of them" in regret
    totals = await text(page, "totals")
    assert "Desired replicas4+1 to come" in totals  # nothing follows the numbers of the two shadows
    assert "Cost per hour3040 as desired" in totals
    assert "In time, last hour97 %fewer than asked for, but not now, or by chance" in totals
    models = await text(page, "models")
    assert "100 % in time in the last 5 minutes, 99 % asked for" in models
    assert "shadow: nothing follows the number" in models
    assert "limited by gpu-limiter A100" in models
    assert "ScaleUp " + MEANINGS_OF_REASONS["ScaleUp"] in models
    assert "MetricsAvailable: MetricsStale " + MEANINGS_OF_REASONS["MetricsStale"].replace("`", "") in models
    assert "24 requests/s demand" in models
    assert "12 carried (200 % used)" in models
    assert "MetricsAvailable: MetricsStale" in models
    await page.until("document.querySelectorAll('#charts .shade-held').length > 0")
    await page.evaluate(
        "[...document.querySelectorAll('#models .link')].find((each) => each.textContent.startsWith('an-')).click()"
    )
    await page.until("document.getElementById('model-title').textContent.includes('an-organisation')")
    await page.until("document.querySelectorAll('#charts .shade-limited').length > 0")
    decisions = await text(page, "decisions")
    assert "held: MetricsIncomplete " + MEANINGS_OF_REASONS["MetricsIncomplete"] in decisions
    assert "limited by gpu-limiter A100" in decisions


async def test_a_chart_shows_the_values_of_a_time_and_a_click_explains_it(
    fleet: ConsoleFleet, page: BrowserPage
) -> None:
    """The values stand beside the pointer, also after a cycle. The explanation is of the time that was clicked on."""
    await page.open(fleet.url + "/", width=1280, height=1000)
    await page.until(f"{_SEEN} === 3")
    await page.evaluate(
        "[...document.querySelectorAll('#models .link')].find((each) => each.textContent.startsWith('an-')).click()"
    )
    await page.until("document.getElementById('model-title').textContent.includes('an-organisation')")
    chart = "#charts figure:nth-child(2) svg"
    shown = f"document.querySelector({chart!r}).querySelector('.tip[visibility=visible]')"
    assert await page.evaluate(shown) is None
    await page.point(chart, share=0.8)
    words = str(
        await page.evaluate(f"[...{shown}.querySelectorAll('text')].map((each) => each.textContent).join('; ')")
    )
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d; exist 1; Ready 1; desired 1; Steady; limited by gpu-limiter A100; Click for why", words
    )
    await fleet.cycle(_CYCLES, variants=[variant(_NAMED, namespace="one", model=_LONG)])
    await page.until(f"state.overview.at === {NOW + 15 * _CYCLES}")
    assert await page.evaluate(f"{shown} !== null")
    await page.point(chart, share=0.8, press=True, release=True)
    await page.until(_EXPLAINED)
    assert _NAMED in await text(page, "explanation-title")
    asked = next(url for url in reversed(page.requests) if "changes=false" in url)
    at = float(re.search(r"at=([0-9.]+)", asked)[1])  # type: ignore[index]
    assert NOW + 15 * 15 < at < NOW + 15 * _CYCLES
    await page.press("Escape")
    await page.point(chart, share=0.1)
    await page.point("#model-title", share=0.5)
    await page.until(f"{shown} === null")


async def test_times_are_those_of_the_zone_of_the_browser(fleet: ConsoleFleet, page: BrowserPage) -> None:
    """Also since when a condition is there, which the API server says in UTC; and the page names the zone."""
    await page.call("Emulation.setTimezoneOverride", timezoneId="America/New_York")
    await page.open(fleet.url + "/", width=1280, height=1000)
    await page.until(f"{_SEEN} === 3")
    local = datetime.fromtimestamp(NOW + 15 * (_CYCLES - 1), ZoneInfo("America/New_York"))
    offset = local.strftime("%z")[:3].replace("0", "")
    decided = f"decided at {local:%H:%M:%S} UTC{offset}"
    await page.until(f"document.getElementById('state').textContent === {decided!r}")
    since = "[...document.querySelectorAll('#conditions td:last-child')].map((each) => each.textContent)"
    assert "19:00:00" in str(await page.evaluate(since))
    assert "Z" not in str((await page.evaluate(since))[0])


async def test_the_cost_over_time_stands_beside_that_of_a_fixed_fleet(page: BrowserPage) -> None:
    """Four replicas at the peak for one of four minutes, and one for the rest, against four all the time."""
    site = ConsoleFleet(Loopback())
    for number, current in enumerate((1, 4, 1, 1, 1)):
        await site.cycle(4 * number, variants=[variant("a", namespace="one", cost=60.0, replicas=current)])
    async with serving(site.handler, name="console") as server:
        await page.open(f"http://127.0.0.1:{server.port}/", width=1280, height=1000)
        await page.until("document.querySelectorAll('#costs figure').length === 2")
        words = await text(page, "costs")
        assert words.count("what existed cost 7. A fleet fixed at the peak, 240 per hour at") == 2
        assert words.count("would have cost 16, 129 % more.") == 2
        await click(page, "[data-key='tile Cost per hour']")
        assert await page.evaluate("document.activeElement.id") == "cost-title"
        assert await serious(page) == []


async def test_a_tile_leads_to_what_it_counts(fleet: ConsoleFleet, page: BrowserPage) -> None:
    """To the variants that are limited, and back to all. A tile that counts none leads nowhere."""
    await page.open(fleet.url + "/", width=1280, height=1000)
    await page.until(f"{_SEEN} === 3")
    tiles = "[...document.querySelectorAll('.tile')].map((each) => each.dataset.key)"
    counted = await page.evaluate(tiles)
    assert counted == [
        f"tile {name}" for name in ("Models", "Replicas", "Desired replicas", "Cost per hour", "Limited", "In trouble")
    ]
    await click(page, "[data-key='tile Limited']")
    await page.until(f"{_SEEN} === 2")
    assert await page.evaluate("document.activeElement.id") == "models-title"
    assert "Only variants that could not grow as wanted." in await text(page, "only")
    assert await serious(page) == []
    await click(page, "[data-key='tile Desired replicas']")
    await page.until(f"{_SEEN} === 1")
    await click(page, "#all")
    await page.until(f"{_SEEN} === 3")
    assert await page.evaluate("document.getElementById('only').hidden")


async def test_an_empty_console_says_what_to_do_first(page: BrowserPage) -> None:
    """It shows the manifest of a first variant, with the namespace of the user, and how to find out what is wrong."""
    site = ConsoleFleet(Loopback())
    await site.cycle(variants=[], replicas=[])
    async with serving(site.handler, name="console") as server:
        url = f"http://127.0.0.1:{server.port}/"
        for scheme, width in (("light", 390), ("dark", 1280)):
            await page.open(url, width=width, height=1000, scheme=scheme)
            await page.until("document.querySelectorAll('#models pre').length === 3")
            models = await text(page, "models")
            assert "No VariantAutoscaling is decided on yet." in models
            assert "kind: VariantAutoscaling" in models
            assert "wva doctor" in models
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            assert await serious(page) == []
            await picture(page, f"empty-{scheme}")


async def test_hostile_texts_stay_texts(fleet: ConsoleFleet, page: BrowserPage) -> None:
    """Names and messages with markup are shown as they are written, and run nothing."""
    await page.open(fleet.url + "/", width=1280, height=1800)
    await page.until(f"{_SEEN} === 3")
    await page.evaluate(
        "[...document.querySelectorAll('#models .link')].find((each) => each.textContent.startsWith('<')).click()"
    )
    await page.until("document.getElementById('model-title').textContent.includes('<img')")
    await click(page, "[data-key='why one/hostile']")
    await page.until(_EXPLAINED)
    for name in ("pools", "models", "model-title", "conditions", "decisions", "why"):
        assert _HOSTILE in await text(page, name)
    assert await page.evaluate("document.querySelectorAll('main img, dialog img, main script').length") == 0
    assert await page.evaluate("document.title") == "WVA console"
    # Were there a way in, the policy of the page would still stop it.
    for way, what in (("innerHTML = '<b>x</b>'", "TrustedHTML"), ("setAttribute('onclick', 'x')", "TrustedScript")):
        thrown = await page.call("Runtime.evaluate", expression=f"document.body.{way}")
        assert what in str(thrown["exceptionDetails"])
    assert others(page, fleet.url) == []


async def test_no_answer_is_shown_in_a_frame(fleet: ConsoleFleet, page: BrowserPage, tmp_path: Path) -> None:
    """A page of another site that frames the console, or what it asks for, shows an empty frame."""
    paths = ("", "v1/overview", "v1/nothing")
    frames = "".join(f'<iframe src="{fleet.url}/{path}"></iframe>' for path in paths)
    (tmp_path / "evil.html").write_text(f"<html lang=en><title>evil</title>{frames}")
    await page.open(tmp_path / "evil.html", width=800, height=600)
    refusals = "Refused to (frame|display)|Framing '.*' violates"
    async with asyncio.timeout(10):
        while sum(bool(re.search(refusals, each)) for each in page.complaints) < len(paths):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_the_keyboard_reaches_everything_and_keeps_its_place(fleet: ConsoleFleet, page: BrowserPage) -> None:
    """Tab goes through links and buttons; a cycle that draws the page anew leaves the focus where it is."""
    await page.open(fleet.url + "/", width=1280, height=1800)
    await page.until(f"{_SEEN} === 3")
    reached = set()
    key = ""
    for _ in range(60):
        await page.press("ArrowDown" if key.startswith(("model ", "why ")) else "Tab")
        key = await page.evaluate("document.activeElement.dataset.key || document.activeElement.className")
        reached.add(key)
        if key == "why one/calm":
            break
    assert {"skip", f"model one/{_LONG}", "model one/m", "why one/hostile"} <= reached
    await fleet.cycle(_CYCLES + 1, variants=[variant("calm", namespace="one")])
    await page.until(f"{_SEEN} === 1")
    assert await page.evaluate("document.activeElement.dataset.key") == "why one/calm"
    await page.press("Enter")
    await page.until(_EXPLAINED)
    await page.press("Escape")
    await page.until("!document.getElementById('explanation').open")
    assert await page.evaluate("document.activeElement.dataset.key") == "why one/calm"


async def test_a_section_of_many_models_is_one_stop_of_the_tab_key(fleet: ConsoleFleet, page: BrowserPage) -> None:
    """Arrows, Home and End go through its buttons; Tab leaves it, and comes back to the button that it left."""
    names = [f"v{number:02}" for number in range(60)]
    variants = [variant(name, namespace="one", model=f"model-{name}") for name in names]
    pods = [replica(f"{name}-0", variant=name, namespace="one") for name in names]
    await fleet.cycle(_CYCLES + 1, variants=variants, replicas=pods)
    await page.open(fleet.url + "/", width=1280, height=1000)
    await page.until(f"{_SEEN} === 60")
    focused = "document.activeElement.dataset.key || document.activeElement.id"
    assert await page.evaluate("document.querySelectorAll('#models button').length") == 120
    assert await page.evaluate("document.querySelectorAll('#models button[tabindex=\"0\"]').length") == 1
    await page.evaluate("document.querySelector('#models button').focus()")
    for key, expected in (("ArrowDown", "why one/v00"), ("End", "why one/v59"), ("Home", "model one/model-v00")):
        await page.press(key)
        assert await page.evaluate(focused) == expected
    await page.press("End")
    await page.press("Tab")
    assert await page.evaluate("document.getElementById('model').contains(document.activeElement)")
    await fleet.cycle(_CYCLES + 2, variants=variants, replicas=pods)
    await page.until(f"state.overview.at === {NOW + 15 * (_CYCLES + 2)}")
    assert await page.evaluate("document.querySelector('#models button[tabindex=\"0\"]').dataset.key") == "why one/v59"


_BROKEN_WORDS = """[...document.querySelectorAll('.tag')].flatMap((tag) =>
  [...tag.textContent.matchAll(/[A-Za-z]+/g)].filter((word) => {
    const range = document.createRange();
    range.setStart(tag.firstChild, word.index);
    range.setEnd(tag.firstChild, word.index + word[0].length);
    return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1;
  }).map((word) => word[0]))"""


@pytest.mark.parametrize("width", [390, 1280])
async def test_no_word_of_a_tag_is_broken_and_the_heading_covers_every_column(
    fleet: ConsoleFleet, page: BrowserPage, width: int
) -> None:
    """Not even where a limit has a long name. The heading of the decisions stays, with its last column."""
    await page.open(fleet.url + "/", width=width, height=1000)
    await page.until(f"{_SEEN} === 3")
    for number in range(3):
        await page.evaluate(f"document.querySelectorAll('#models .link')[{number}].click()")
        await page.until("document.querySelectorAll('#decisions .tag').length > 0")
        assert await page.evaluate(_BROKEN_WORDS) == []
    place = "[...document.querySelectorAll('#decisions thead tr > *')].map((each) => getComputedStyle(each).position)"
    assert await page.evaluate(place) == ["static" if width < 700 else "sticky"] * 5


async def test_a_token_opens_it_and_is_nowhere_but_in_its_tab(page: BrowserPage) -> None:
    """A wrong one is refused with the reason. No address has the token; signing out forgets it and what was shown."""
    site = ConsoleFleet()
    await site.play()
    site.allowed.add(("scraper", "list", "one/"))
    async with serving(site.handler, name="console") as server:
        url = f"http://127.0.0.1:{server.port}/"
        await page.open(url, width=800, height=900)
        await page.until("!document.getElementById('login').hidden")
        assert await serious(page) == []
        await picture(page, "login")
        await sign_in(page, "wrong", "one")
        await page.until("document.getElementById('problem').textContent.includes('a valid bearer token is needed')")
        await sign_in(page, "good", "")
        await page.until("document.getElementById('problem').textContent.includes('lacks the verb list')")
        assert await page.evaluate("document.getElementById('console').hidden") is True
        await sign_in(page, "good", "one")
        await page.until(f"{_SEEN} === 3")
        await page.until("document.getElementById('login').hidden")  # after the timeline, which comes with the models
        await page.open(url, width=800, height=900)  # the tab remembers
        await page.until(f"{_SEEN} === 3")
        assert "good" not in " ".join(page.requests) + await page.evaluate("location.href + document.cookie")
        assert await page.evaluate("localStorage.length") == 0
        await click(page, "#leave")
        assert await page.evaluate("[sessionStorage.length, document.getElementById('models').textContent]") == [0, ""]
        assert await page.evaluate("document.getElementById('token').value") == ""
        await page.open(url, width=800, height=900)
        await page.until("!document.getElementById('login').hidden")
        assert await page.evaluate(_SEEN) == 0


async def sign_in(page: BrowserPage, token: str, namespace: str) -> None:
    """Fill in the form and send it."""
    await page.evaluate(
        f"document.getElementById('token').value = {token!r};"
        f"document.getElementById('namespace').value = {namespace!r};"
        "document.getElementById('problem').textContent = ''; document.getElementById('login').requestSubmit()"
    )


async def test_a_console_that_goes_and_comes_back_is_found_again(page: BrowserPage) -> None:
    """The page says that it is not live, how old its numbers are, and when it tries again; and then it is."""
    site = ConsoleFleet(Loopback())
    async with serving(site.handler, name="console") as server:
        port = server.port
        await page.open(f"http://127.0.0.1:{port}/", width=800, height=900)
        await page.until("document.getElementById('trouble').textContent.includes('no cycle has run yet')")
        await site.play()
        await page.until(f"{_SEEN} === 3")
        await page.until("document.getElementById('trouble').hidden")
    await page.until("document.getElementById('trouble').textContent.includes('No connection')")
    assert await text(page, "state") == "not live"
    await page.until(r"/The numbers are \d+ s old\. Reconnecting in \d+ s\./.test($('trouble').textContent)")
    assert await page.evaluate("$('console').classList.contains('stale')")
    await page.until("/^[1-9][0-9]* s old$/.test($('fleet-title').dataset.age)")
    assert await serious(page) == []
    await picture(page, "lost")
    async with serving(site.handler, name="console", port=port):
        await click(page, "#again")
        await page.until("document.getElementById('trouble').hidden")
        assert (await text(page, "state")).startswith("decided at")
        assert not await page.evaluate("$('console').classList.contains('stale')")


async def test_a_stream_that_dies_without_a_word_is_given_up(fleet: ConsoleFleet, page: BrowserPage) -> None:
    """The numbers are called old, and another stream is opened."""
    await page.open(fleet.url + "/", width=800, height=900)
    await page.until(f"{_SEEN} === 3")
    await page.evaluate("WAITS.silence = 1000; WAITS.retry = 4000")
    await fleet.cycle(_CYCLES + 1)
    await page.until("document.getElementById('trouble').textContent.includes('it says nothing any more')")
    streams = len([url for url in page.requests if url.endswith("/v1/stream")])
    await page.evaluate("WAITS.silence = 45000")
    await page.until("document.getElementById('trouble').hidden")
    async with asyncio.timeout(10):
        while len([url for url in page.requests if url.endswith("/v1/stream")]) == streams:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
