"""A headless Chromium, driven over the DevTools protocol, that opens a page and reports its errors and warnings.

It is started with a profile of its own, talks to 127.0.0.1 only, and ends with the block. Debian's package is called
chromium; where no such program is installed, ``NotBuiltError`` says so.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from e2e.controlplane.build import NotBuiltError

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-port=0",
)
_START_SECONDS: Final = 180
_ANSWER_SECONDS: Final = 180
_LISTENING: Final = "DevTools listening on "


class BrowserPage:
    """A page in the browser. ``complaints`` are the errors, warnings and uncaught exceptions of its console."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Talk to the page over a socket."""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result. AssertionError when the browser refuses."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(_ANSWER_SECONDS):
            found = await answer
        assert "error" not in found, f"{method}: {found['error']}"
        return found["result"]

    async def open(self, page: Path | str, *, width: int, height: int, scheme: str = "light") -> None:
        """Open a file or a URL in a window of this size, in this color scheme, and wait until it is there.

        The certificate of a server is not checked.
        """
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await self.call("Security.setIgnoreCertificateErrors", ignore=True)
        self._loaded.clear()
        await self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        async with asyncio.timeout(_ANSWER_SECONDS):
            await self._loaded.wait()

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression. AssertionError when it throws."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def press(self, key: str) -> None:
        """Press and release a key by its name, such as ``Tab`` or ``Enter``."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowDown": 40}[key]
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **pressed, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def drag(self, selector: str, *, begin: float, end: float) -> None:
        """Drag the mouse over an element, from one share of its width to another one."""
        await self.point(selector, share=begin, press=True)
        await self.point(selector, share=(begin + end) / 2)
        await self.point(selector, share=end, release=True)

    async def point(self, selector: str, *, share: float, press: bool = False, release: bool = False) -> None:
        """Move the mouse to a share of the width of an element, and press or release its button there."""
        box = await self.evaluate(
            f"(() => {{ const node = document.querySelector({selector!r}); node.scrollIntoView({{block: 'center'}});"
            " const {left, top, width, height} = node.getBoundingClientRect(); return {left, top, width, height}; })()"
        )
        place = {"x": box["left"] + box["width"] * share, "y": box["top"] + box["height"] / 2}
        kinds = ["mouseMoved", *(["mousePressed"] if press else []), *(["mouseReleased"] if release else [])]
        for kind in kinds:
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            await self.call("Input.dispatchMouseEvent", type=kind, **place, **button)

    async def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true. TimeoutError."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            while not await self.evaluate(expression):  # noqa: ASYNC110 - the event would be the page's
                await asyncio.sleep(0.1)

    async def screenshot(self, path: Path) -> None:
        """Write a picture of the window to a PNG file."""
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))  # noqa: ASYNC240 - nothing else runs meanwhile

    async def listen(self) -> None:
        """Receive messages of the browser, until it closes the socket."""
        async for message in self._socket:
            found = message.json()
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            else:
                self._note(found["method"], found["params"])

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.complaints.append(str(details.get("exception", {}).get("description", details["text"])))
            case "Runtime.consoleAPICalled" if parameters["type"] in {"error", "warning", "assert"}:
                self.complaints.append(" ".join(str(part.get("value", "")) for part in parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[BrowserPage]:
    """Start a browser with an empty folder as its profile, and give its page."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        raise NotBuiltError("chromium is not installed")
    process = await asyncio.create_subprocess_exec(
        program,
        *_FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_START_SECONDS):
            address = await _address(process)
        reading = asyncio.create_task(_drain(process))
        async with aiohttp.ClientSession() as session:
            port = address.rpartition(":")[2].partition("/")[0]
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                targets = await answer.json()
            url = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
            async with session.ws_connect(url, max_msg_size=0) as socket:
                page = BrowserPage(socket)
                listening = asyncio.create_task(page.listen())
                yield page
                listening.cancel()
        reading.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Return the address that the browser writes at its start. AssertionError when it ends before that."""
    assert process.stderr is not None
    said = []
    async for line in process.stderr:
        text = line.decode(errors="replace").strip()
        if text.startswith(_LISTENING):
            return text.removeprefix(_LISTENING)
        said.append(text)
    raise AssertionError("\n".join(["the browser ended", *said]))


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    async for _ in process.stderr:
        pass
