"""The console of a controller on the real control plane: the API server says who may see what, in a real browser."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from e2e import manifests
from e2e.browser import BrowserPage, browser
from e2e.controlplane.ports import free_port
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import Scene
from e2e.test_console import click, serious, sign_in, text
from e2e.test_explain import reading

CHAT = ManifestedVariant(name="chat")
VIEWER, STRANGER = "viewer", "stranger"
_PROBLEM = "document.getElementById('problem').textContent"
_SHOWN = "document.querySelectorAll('#models tbody').length === 1"


class Watched:
    """A scene whose controller has a console."""

    def __init__(self, scene: Scene) -> None:
        """Start the controller and wait for its first number."""
        self.scene = scene
        self.address = f"127.0.0.1:{free_port()}"
        metrics = scene.fixed_metrics()
        scene.deploy(CHAT)
        scene.declare(CHAT)
        for account in (VIEWER, STRANGER):
            scene.api.apply(manifests.service_account(account, namespace=scene.namespace))
        for item in reading(VIEWER, namespace=scene.namespace):
            scene.api.apply(item)
        metrics.set("chat", PodReport(0.6))
        scene.start_controller(f"--console-bind-address={self.address}")
        scene.wait_measured(CHAT)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"https://{self.address}/"

    def token(self, account: str) -> str:
        """Return a token of an account of the scene."""
        return self.scene.plane.service_account_token(self.scene.namespace, account)


@pytest.fixture
def watched(scene: Scene) -> Watched:
    """Return a controller with a console."""
    return Watched(scene)


@pytest.fixture
async def page(tmp_path: Path) -> AsyncGenerator[BrowserPage]:
    """Start a browser."""
    async with browser(tmp_path / "profile") as opened:
        yield opened


async def test_a_token_opens_what_its_account_may_read(watched: Watched, page: BrowserPage) -> None:
    """Who may read the namespace sees its variant, its conditions and why it has its number; others are refused."""
    namespace = watched.scene.namespace
    await page.open(watched.url, width=1280, height=1200)
    await page.until("!document.getElementById('login').hidden")
    await sign_in(page, "no-token-of-this-cluster", namespace)
    await page.until(f"{_PROBLEM}.includes('a valid bearer token is needed')")
    await sign_in(page, watched.token(STRANGER), namespace)
    await page.until(f"{_PROBLEM}.includes('lacks the verb list')")
    await sign_in(page, watched.token(VIEWER), "")
    await page.until(f"{_PROBLEM}.includes('lacks the verb list')")
    assert await page.evaluate("document.getElementById('console').hidden") is True

    await sign_in(page, watched.token(VIEWER), namespace)
    await page.until(_SHOWN)
    assert "chat" in await text(page, "models")
    before = await text(page, "state")
    await page.until(f"document.getElementById('state').textContent !== {before!r}")
    assert "TargetResolved" in await text(page, "conditions")
    await click(page, "#decisions button")
    await page.until("document.querySelectorAll('#why .steps li').length > 0")
    await page.until("!document.getElementById('why').textContent.includes('Deciding again')")
    assert "kv_usage" in await text(page, "why")
    assert await serious(page) == []
    assert [url for url in page.requests if not url.startswith(watched.url)] == []


async def test_the_token_is_in_no_log(watched: Watched, page: BrowserPage) -> None:
    """It is in no address either. The metrics count the answers."""
    namespace, token = watched.scene.namespace, watched.token(VIEWER)
    await page.open(watched.url, width=1280, height=1200)
    await page.until("!document.getElementById('login').hidden")
    await sign_in(page, token, namespace)
    await page.until(_SHOWN)
    (controller,) = watched.scene.controllers
    log = controller.log(100_000)
    assert "controller_started" in log
    assert token not in log
    assert token not in " ".join(page.requests)
    answers = {
        code: controller.metrics().value("wva_endpoint_requests_total", server="console", code=code)
        for code in ("200", "401")
    }
    assert answers["200"]
    assert answers["401"]
