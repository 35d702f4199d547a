"""One streamed chat completion, measured as its user sees it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_WORD: Final = "load "
_MAX_LINE_BYTES: Final = 4 * 1024 * 1024
_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one request, in seconds since it was sent. ``failure`` is empty if it was answered."""

    failure: str = ""
    first_token_seconds: float | None = None
    seconds: float = 0.0
    output_tokens: int = 0

    @property
    def inter_token_seconds(self) -> float | None:
        """The mean gap between tokens; None for an answer without a gap."""
        if self.failure or self.first_token_seconds is None or self.output_tokens < 2:  # noqa: PLR2004 - a gap has two ends
            return None
        return (self.seconds - self.first_token_seconds) / (self.output_tokens - 1)


class ChatClient:
    """Sends chat completions to one server."""

    def __init__(self, session: aiohttp.ClientSession, *, url: str, model: str, content_words: int) -> None:
        """``url`` is the API's root, such as ``http://localhost:8000/v1``; the prompt has ``content_words`` words."""
        self._session = session
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": _WORD * content_words}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def send(self, *, max_tokens: int | None, timeout_seconds: float) -> Result:
        """Send one request and read its whole answer. A failure is part of the result."""
        body = {**self._body, **({} if max_tokens is None else {"max_tokens": max_tokens})}
        started = time.monotonic()
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                self._session.post(
                    self._url, data=msgspec.json.encode(body), headers={"Content-Type": "application/json"}
                ) as response,
            ):
                if response.status != 200:  # noqa: PLR2004 - HTTP's OK
                    return Result(f"HTTP {response.status}", seconds=time.monotonic() - started)
                return await self._read(response, started)
        except TimeoutError:
            return Result("timeout", seconds=time.monotonic() - started)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            name = type(error).__name__
            return Result(name[:_SHOWN_CHARACTERS], seconds=time.monotonic() - started)

    @staticmethod
    async def _read(response: aiohttp.ClientResponse, started: float) -> Result:
        first: float | None = None
        pieces = 0
        reported_tokens: int | None = None
        async for line in response.content:
            if not line.startswith(_DATA):
                continue
            text = line[len(_DATA) :].strip()
            if text == _DONE:
                seconds = time.monotonic() - started
                return Result("", first, seconds, pieces if reported_tokens is None else reported_tokens)
            event = msgspec.json.decode(text)
            if event.get("choices"):
                pieces += 1
                first = time.monotonic() - started if first is None else first
            usage = event.get("usage")
            reported_tokens = (
                usage.get("completion_tokens", reported_tokens) if isinstance(usage, dict) else reported_tokens
            )
        return Result("the stream ended early", first, time.monotonic() - started)


def open_session(*, token: str, connections: int) -> aiohttp.ClientSession:
    """Return a session for ``connections`` requests at once; ``token`` is sent as bearer token unless empty."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(limit=connections)
    return aiohttp.ClientSession(
        headers=headers, connector=connector, timeout=aiohttp.ClientTimeout(total=None), read_bufsize=_MAX_LINE_BYTES
    )
