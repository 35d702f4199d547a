"""The console: its page is open, and what it shows needs the right to list VariantAutoscalings."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from importlib.resources import files
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
import yaml

from tests.builders import NOW, replica, variant
from tests.serve.console_site import ConsoleSite
from tests.serve.doubles import serving, until
from wva.actuation import MODE_ANNOTATION
from wva.api.crd import render
from wva.api.meta import Condition
from wva.api.variantautoscaling import ACCELERATOR_LABEL, VariantAutoscaling
from wva.hindsight.shadow import Late, RealAndShadow, ShadowFigures
from wva.model.decision import Limit, Reason
from wva.model.in_time import InTime, ServedShare
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.objectives import DEFAULT_OBJECTIVES
from wva.model.records import replace
from wva.model.variant import VariantKey
from wva.publish.obstacles import OBSTACLES
from wva.serve.console import MOST_STREAMS, SCRIPTS
from wva.serve.gate import Loopback
from wva.sim.apiserver import ObjectStore, StoreOptions

A = VariantKey("one", "a")
GOOD = {"Authorization": "Bearer good"}


@pytest.fixture
async def site():
    """Return a console that listens."""
    made = ConsoleSite()
    async with serving(made.handler, instruments=made.guarded.instruments, name="console") as server:
        made.url = f"http://127.0.0.1:{server.port}"
        yield made


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        *[(f"/{name}.js", "text/javascript") for name in SCRIPTS],
        ("/console.css", "text/css"),
        ("/console.svg", "image/svg+xml"),
        ("/meanings.json", "application/json"),
    ],
)
async def test_the_page_is_open_and_loads_nothing_from_elsewhere(site, path, kind):
    """The same files are for everybody. Their policy forbids other hosts, inline scripts, frames and markup of text."""
    status, headers, text = await site.get(path, user="")
    assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
    rules = dict(rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert {rules[name] for name in rules if name.endswith("-src")} == {"'none'", "'self'"}
    assert rules["require-trusted-types-for"] == "'script'"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == headers["Cross-Origin-Opener-Policy"] == "same-origin"
    text = json.dumps(text)
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert site.guarded.reviewer.asked == {}


async def test_every_reason_has_a_sentence_and_obstacles_have_that_of_their_table(site):
    """So a code on the page is never without words, and the words are those of the documentation."""
    _, _, meanings = await site.get("/meanings.json", user="")
    assert {*meanings} == {str(reason) for reason in Reason} | {each.reason for each in OBSTACLES}
    assert {each.reason: each.meaning for each in OBSTACLES}.items() <= meanings.items()
    assert len({each.reason for each in OBSTACLES}) == len(OBSTACLES)
    assert [words for words in meanings.values() if not re.fullmatch(r"[A-Z].{10,300}\.", words)] == []


async def test_the_overview_shows_what_a_client_may_list(site):
    """Models of the namespace with their variants, load and cost."""
    await site.cycle(kv=0.79)
    assert (await site.get("/v1/overview?namespace=two", user="stranger"))[0] == 403
    assert (await site.get("/v1/overview", user=""))[0] == 401
    site.allowed.add(("scraper", "list", "one/"))
    status, headers, page = await site.get("/v1/overview?namespace=one")
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    (model,) = page["models"]
    (shown,) = model["variants"]
    assert (model["namespace"], model["model"]) == ("one", "m")
    assert model["load"] == {"kv": 0.79, "waiting": 0, "demand": None, "serving": None, "desired": None}
    assert (shown["name"], shown["current"], shown["ready"], shown["desired"]) == ("a", 1, 1, 2)
    assert (shown["reason"], shown["held"], shown["shadow"], shown["regret"]) == ("ScaleUp", False, False, None)


async def test_the_role_of_each_variant_is_shown(site):
    """A variant that does not say it has none."""
    site.allowed.add(("scraper", "list", "one/"))
    pair = [variant("a", namespace="one"), replace(variant("b", namespace="one"), role="decode")]
    await site.cycle(variants=pair)
    _, _, page = await site.get("/v1/overview?namespace=one")
    (model,) = page["models"]
    assert {each["name"]: each["role"] for each in model["variants"]} == {"a": "", "b": "decode"}


async def test_a_client_sees_nothing_of_namespaces_that_it_may_not_list(site):
    """Neither their variants nor their quotas, nor what all of them together take from the nodes."""
    await site.cycle()
    site.allowed.add(("scraper", "list", "one/"))
    status, _, page = await site.get("/v1/overview?namespace=one")
    assert status == 200
    assert "two" not in json.dumps(page)
    assert "secret" not in json.dumps(page)
    assert page["gpus"]["pools"] == []
    assert [(quota["namespace"], quota["capacity"], quota["free"]) for quota in page["gpus"]["quotas"]] == [
        ("one", 4, 3)
    ]
    for path in (
        "/v1/overview",
        "/v1/overview?namespace=two",
        "/v1/overview?namespace=",
        "/v1/stream",
        "/v1/timeline/two",
    ):
        assert (await site.get(path))[0] == 403, path
    assert (await site.get("/v1/timeline/two?model=m&namespace=one"))[0] == 403
    assert (await site.get("/v1/explain/two/b"))[0] == 403


async def test_who_may_list_everywhere_sees_the_gpus_of_the_nodes(site):
    """Used against free, by pool, and every quota."""
    await site.cycle()
    site.allowed.add(("scraper", "list", "/"))
    _, _, page = await site.get("/v1/overview")
    gpus = page["gpus"]
    assert gpus["pools"] == [{"accelerator": "A100", "capacity": 8, "used": 2, "free": 6}]
    assert [(quota["namespace"], quota["used"], quota["free"]) for quota in gpus["quotas"]] == [
        ("one", 1, 3),
        ("two", 2, 0),
    ]
    await site.cycle(1, gpus=None)
    assert (await site.get("/v1/overview"))[2]["gpus"]["counted"] is False


async def test_a_variant_has_its_conditions_and_in_shadow_mode_its_sums(site):
    """The sums go by the names of their series, so that the page and a dashboard say the same."""
    site.conditions[A] = (Condition("Limited", "True", "GpuLimited", "no GPUs", "2026-01-01T00:00:00Z"),)
    late = Late(RealAndShadow(0.0, 7.0), 2.0)
    site.accounts[A] = ShadowFigures(0.0, RealAndShadow(4.0, 3.0), RealAndShadow(40.0, 30.0), late)
    await site.cycle()
    site.allowed.add(("scraper", "list", "one/"))
    _, _, page = await site.get("/v1/overview?namespace=one")
    (shown,) = page["models"][0]["variants"]
    (condition,) = shown["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Limited", "True", "GpuLimited")
    assert (condition["message"], condition["since"]) == ("no GPUs", "2026-01-01T00:00:00Z")
    assert shown["regret"] is None  # it acts now
    site.shadows.add(A)
    _, _, page = await site.get("/v1/overview?namespace=one")
    (shown,) = page["models"][0]["variants"]
    assert shown["shadow"] is True
    assert shown["regret"]["wva_shadow_gpu_hours"] == {"real": 4.0, "shadow": 3.0}
    assert shown["regret"]["wva_shadow_cost"] == {"real": 40.0, "shadow": 30.0}
    assert shown["regret"]["wva_shadow_late_requests"] == {"real": 0.0, "shadow": 7.0}
    assert shown["regret"]["wva_shadow_late_requests_error"] == {"": 2.0}


async def test_what_users_got_stands_beside_what_they_shall_get(site):
    """In the overview of a model, and in the explanation of the last cycle; no recording has it."""
    await site.cycle(0)
    await site.cycle(1)
    model, key = site.recent.newest.decisions[0].model, site.recent.newest.decisions[0].key
    site.allowed |= {("scraper", "list", "/"), ("scraper", "get", f"{key.namespace}/{key.name}")}
    site.served[model] = InTime(DEFAULT_OBJECTIVES, key, None, ServedShare(200.0, 0.97))
    _, _, overview = await site.get("/v1/overview")
    first, second = overview["models"]
    assert first["in_time"] == {
        "five_minutes": None,
        "hour": {"share": 0.97, "requests": 200.0},
        "wanted": 0.99,
        "objectives": "first token within 1 s, between tokens 100 ms, in time 99 %",
        "missed": False,
    }
    assert second["in_time"] is None
    path = f"/v1/explain/{key.namespace}/{key.name}?changes=false"
    _, _, last = await site.get(path)
    assert last["served"] == "requests in time: 97 % of 200 in the last hour"
    _, _, before = await site.get(f"{path}&at={NOW}")
    assert before["served"] == ""


async def test_the_timeline_has_a_line_for_each_variant_of_the_model(site):
    """A point is kept when something changed; it has holds and limits."""
    for number, kv in enumerate((0.2, 0.2, 0.79)):
        await site.cycle(number, kv=kv)
    await site.cycle(3, kv=None)
    await site.cycle(4, change=lambda each: each.noted("limit", "no GPUs", limit=Limit("gpu-limiter A100", 1)))
    site.allowed.add(("scraper", "list", "one/"))
    _, _, page = await site.get("/v1/timeline/one?model=m")
    assert [point[:3] for point in page["model"]] == [
        [NOW, 0.2, 0],
        [NOW + 30, 0.79, 0],
        [NOW + 45, None, 0],
        [NOW + 60, 0.2, 0],
    ]
    points = page["variants"]["a"]
    assert [(point[0], point[3], point[5], point[6]) for point in points] == [
        (NOW, 1, False, ""),
        (NOW + 30, 2, False, ""),
        (NOW + 45, 1, True, ""),
        (NOW + 60, 1, False, "gpu-limiter A100"),
    ]
    assert (await site.get("/v1/timeline/one?model=nothing"))[0] == 404


async def cost(site):
    """Run cycles in which the cost of both namespaces changes."""
    for number, (mine, others) in enumerate(((10.0, 70.0), (10.0, 70.0), (20.0, 30.0))):
        variants = [
            variant("a", namespace="one", cost=mine, replicas=2),
            variant("b", namespace="two", cost=others, replicas=1),
        ]
        await site.cycle(number, variants=variants)


async def test_the_cost_of_a_namespace_is_for_who_may_list_it(site):
    """Per hour, at the cost of that time. A client of one namespace sees nothing of what the others cost."""
    await cost(site)
    site.allowed.add(("scraper", "list", "one/"))
    _, headers, page = await site.get("/v1/cost?namespace=one")
    assert headers["Cache-Control"] == "no-store"
    assert page == {"points": [[NOW, 20.0], [NOW + 30, 40.0]]}
    _, _, lines = await site.get("/v1/timeline/one?model=m")
    assert [(point[0], point[6]) for point in lines["model"]] == [(NOW, 20.0), (NOW + 30, 40.0)]
    for path in ("/v1/cost", "/v1/cost?namespace=", "/v1/cost?namespace=two"):
        assert (await site.get(path))[0] == 403, path


async def test_who_may_list_everywhere_sees_the_cost_of_all(site):
    """It is the sum over the namespaces."""
    await cost(site)
    site.allowed.add(("scraper", "list", "/"))
    assert (await site.get("/v1/cost"))[2] == {"points": [[NOW, 90.0], [NOW + 30, 70.0]]}


async def test_a_cycle_is_an_event_of_the_stream(site):
    """The stream begins at once, and tells of each cycle when it is decided: the time and nothing else."""
    site.allowed.add(("scraper", "list", "/"))
    async with aiohttp.ClientSession() as session, session.get(site.url + "/v1/stream", headers=GOOD) as response:
        assert response.content_type == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        async with asyncio.timeout(10):
            assert await response.content.readuntil(b"\n\n") == b": wva\n\n"
            await site.cycle()
            assert await response.content.readuntil(b"\n\n") == f"event: cycle\ndata: {NOW}\n\n".encode()


async def test_streams_are_bounded_and_leave_room_for_questions(site):
    """One more is refused; one that ends makes room, though nothing is sent."""
    site.allowed.add(("scraper", "list", "/"))
    await site.cycle()
    async with (
        aiohttp.ClientSession(headers=GOOD, connector=aiohttp.TCPConnector(limit=0)) as session,
        AsyncExitStack() as stack,
    ):
        opened = []
        for _ in range(MOST_STREAMS):
            opened.append(await stack.enter_async_context(session.get(site.url + "/v1/stream")))
            assert await opened[-1].content.readuntil(b"\n\n") == b": wva\n\n"
        status, headers, text = await site.get("/v1/stream")
        assert (status, headers["Retry-After"]) == (503, "15")
        assert str(MOST_STREAMS) in text
        assert (await site.get("/v1/overview"))[0] == 200
        opened[0].close()
        await until(lambda: site.pages._streams == MOST_STREAMS - 1)
        async with session.get(site.url + "/v1/stream") as response:
            assert response.status == 200
    await until(lambda: site.pages._streams == 0)


async def test_only_the_header_carries_a_token(site):
    """A token in the address or in a cookie would be in logs, or be sent by other sites."""
    site.allowed.add(("scraper", "list", "/"))
    await site.cycle()
    for query in ("token=good", "access_token=good", "authorization=Bearer%20good"):
        assert (await site.get(f"/v1/overview?{query}", user=""))[0] == 401
        assert (await site.get(f"/v1/stream?{query}", user=""))[0] == 401
    assert (await site.get("/v1/overview", user="", headers={"Cookie": "token=good; Authorization=Bearer good"}))[
        0
    ] == 401


@pytest.mark.parametrize("path", ["/", "/v1/overview", "/v1/stream", "/v1/timeline/one?model=m"])
async def test_other_methods_change_nothing(site, path):
    """A form of another site can send a POST. The answers allow no other site to read."""
    site.allowed.update({("scraper", "list", "/"), ("scraper", "list", "one/")})
    await site.cycle()
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        status, headers, _ = await site.get(path, method=method, headers={"Origin": "http://evil.example"})
        assert status == 405
        assert not [name for name in headers if name.lower().startswith("access-control-")]
    status, headers, body = await asyncio.wait_for(site.get(path, method="HEAD"), timeout=10)
    assert (status, body) == (200, "")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8444", 200),
        ("localhost", 200),
        ("[::1]:8444", 200),
        ("LOCALHOST:1", 200),
        ("evil.example:8444", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:8444", 403),
        ("", 403),
    ],
)
async def test_a_console_without_tokens_answers_to_the_names_of_this_machine_alone(host, status):
    """A site whose name leads to 127.0.0.1 cannot read it through a browser."""
    open_site = ConsoleSite(Loopback())
    async with serving(open_site.handler, name="console") as server:
        open_site.url = f"http://127.0.0.1:{server.port}"
        await open_site.cycle()
        assert (await open_site.get("/v1/overview", user="", headers={"Host": host}))[0] == status


async def test_hostile_texts_come_as_data(site):
    """The answer is JSON and is never taken for a page."""
    site.allowed.add(("scraper", "list", "one/"))
    name = "</script><img src=x onerror=alert(1)>"
    await site.cycle(variants=[variant("a", namespace="one", model=name)], replicas=[replica(namespace="one")])
    _, headers, page = await site.get("/v1/overview?namespace=one")
    assert (headers["Content-Type"], headers["X-Content-Type-Options"]) == ("application/json", "nosniff")
    assert page["models"][0]["model"] == name
    status, headers, text = await site.get("/v1/timeline/one?model=%3Cscript%3E")
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert "script" not in text


HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\u2028\x1b[2J'\"`${alert(1)}{{7*7}}"


async def test_hostile_texts_come_as_data_from_every_place(site):
    """Accelerator, limit, message, conditions, pools and quotas: each text arrives as it was, inside of JSON."""
    site.allowed.update({("scraper", "list", "/"), ("scraper", "list", "one/"), ("scraper", "get", "one/a")})
    site.conditions[A] = (Condition(*[HOSTILE] * 5),)
    gpus = Inventory.of([AcceleratorPool(HOSTILE, 8, 2)], [GpuQuota("one", HOSTILE, 4, 1, HOSTILE)])
    await site.cycle(
        variants=[variant("a", namespace="one", model=HOSTILE, accelerator=HOSTILE)],
        replicas=[replica(namespace="one")],
        gpus=gpus,
        change=lambda each: each.noted("limit", HOSTILE, limit=Limit(HOSTILE, 1)),
    )
    _, headers, page = await site.get("/v1/overview")
    assert headers["Content-Type"] == "application/json"
    (model,) = page["models"]
    (shown,) = model["variants"]
    (condition,) = shown["conditions"]
    (pool,), (quota,) = page["gpus"]["pools"], page["gpus"]["quotas"]
    texts = [model["model"], shown["accelerator"], shown["limited_by"], *condition.values(), pool["accelerator"]]
    assert {*texts, quota["name"], quota["resource"]} == {HOSTILE}
    for path in (f"/v1/timeline/one?model={quote(HOSTILE)}", "/v1/explain/one/a?changes=false"):
        _, headers, page = await site.get(path)
        assert headers["Content-Type"] == "application/json"
        assert "onerror" in json.dumps(page)


@pytest.mark.parametrize(
    ("path", "user", "status"),
    [
        ("/", "", 200),
        ("/console.svg", "", 200),
        ("/v1/overview", "good", 200),
        ("/v1/overview", "", 401),
        ("/v1/overview", "stranger", 403),
        ("/v1/timeline/one?model=m", "good", 200),
        ("/v1/timeline/one?model=none", "good", 404),
        ("/v1/explain/one/a?changes=false", "good", 200),
        ("/v1/stream", "good", 200),
    ],
)
async def test_no_answer_is_framed_cached_or_read_by_another_site(site, path, user, status):
    """Nor is it run as a script of another site, or taken for a page."""
    site.allowed.update({("scraper", "list", "/"), ("scraper", "list", "one/"), ("scraper", "get", "one/a")})
    await site.cycle()
    headers = {"Authorization": f"Bearer {user}"} if user else {}
    async with aiohttp.ClientSession() as session, session.get(site.url + path, headers=headers) as response:
        assert response.status == status
        rules = dict(rule.strip().split(" ", 1) for rule in response.headers["Content-Security-Policy"].split(";"))
        assert (rules["default-src"], rules["frame-ancestors"]) == ("'none'", "'none'")
        assert response.headers["X-Frame-Options"] == "DENY"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert not [name for name in response.headers if name.lower().startswith("access-control-")]


WAYS_IN = re.compile(
    r"(inner|outer)HTML|insertAdjacent|createContextualFragment|DOMParser|document\.write|srcdoc|setHTML|eval\("
    r"|new Function|import\(|(setTimeout|setInterval)\([\"'`]|javascript:"
    r"|createElement\([\"'`](script|iframe|object|embed)"
    r"|\b(href|src|action|style|xlink)\b\s*[:=]|on(error|load|mouse\w*|key\w*|focus)\b\s*[:=]|\.cssText|localStorage"
    r"|document\.cookie|window\.open|location\s*=|location\.(assign|replace|href)"
)
"""Where a script could make markup, code or an address of a text."""


def test_the_script_has_no_way_for_a_text_to_become_markup_code_or_an_address():
    """Each text is a text node or the value of an attribute that means nothing to a browser's engine."""
    assets = files("wva.serve").joinpath("assets")
    page = assets.joinpath("console.html").read_text()
    for name in SCRIPTS:
        assert [found.group() for found in WAYS_IN.finditer(assets.joinpath(f"{name}.js").read_text())] == []
    assert re.findall(r"<script[^>]*>[^>]*>", page) == [f'<script src="{name}.js" defer></script>' for name in SCRIPTS]
    assert page.count("<script") == len(SCRIPTS)
    assert {f"{name}.js" for name in SCRIPTS} == {each.name for each in assets.iterdir() if each.name.endswith(".js")}
    assert not re.search(r"\son\w+=|\sstyle=|<style|<iframe|javascript:", page)


@pytest.mark.parametrize(
    "line",
    [
        "node.innerHTML = text",
        "node.insertAdjacentHTML('beforeend', text)",
        "make('a', { href: text })",
        "draw('image', { href: text })",
        "make('div', { style: text })",
        "make('img', { onerror: text })",
        "setTimeout(`x(${text})`)",
        "document.createElement('script')",
        "location = text",
    ],
)
def test_a_way_in_is_found(line):
    """The pattern of the test above finds what it is for."""
    assert WAYS_IN.search(line)


def test_the_first_variant_that_the_empty_page_proposes_can_be_created():
    """The API server takes the manifest of the page. It is a variant in shadow mode, so it changes nothing."""
    script = files("wva.serve").joinpath("assets", "fleet.js").read_text()
    text = re.search(r"kubectl apply -f - <<'EOF'\n(.*?)\nEOF`", script, re.DOTALL)[1]
    for place, name in (("${namespace}", "chat"), ("VARIANT", "a"), ("MODEL", "acme/chat"), ("DEPLOYMENT", "chat-a")):
        text = text.replace(place, name)
    store = ObjectStore(now=lambda: NOW, options=StoreOptions(namespaces=("chat",)))
    store.create("customresourcedefinitions.apiextensions.k8s.io", yaml.safe_load(render()))
    created = store.create("variantautoscalings.llmd.ai", yaml.safe_load(text))
    read = msgspec.convert(created, VariantAutoscaling)
    assert (read.spec.model_id, read.spec.scale_target_ref.name) == ("acme/chat", "chat-a")
    assert created["metadata"]["annotations"] == {MODE_ANNOTATION: "shadow"}
    assert ACCELERATOR_LABEL in created["metadata"]["labels"]


async def test_a_process_without_decisions_says_why(site):
    """It is a standby, or has just started."""
    site.allowed.add(("scraper", "list", "/"))
    assert (await site.get("/v1/overview"))[::2] == (503, "no decisions here: no cycle has run yet\n")
    site.elsewhere = "wva-1_abc leads"
    assert (await site.get("/v1/overview"))[::2] == (503, "no decisions here: wva-1_abc leads\n")


@pytest.mark.parametrize("path", ["/v1/timeline/", "/v1/timeline/one/more", "/index.html", "/v1"])
async def test_other_paths_are_unknown(site, path):
    """They need the right to all paths, as on the page of metrics."""
    assert (await site.get(path, user="stranger"))[0] == 403
    site.allowed.add(("scraper", "get", "/-/unknown"))
    assert (await site.get(path))[0] == 404
