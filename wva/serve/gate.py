"""The gate in front of the pages: only clients that the API server knows and allows get past it.

The gate answers before a page is chosen, so that a client without the right does not learn which pages exist: 401
without a good token, 403 without the right, 429 when a client causes too many reviews, 500 when the API server cannot
be asked. A caller can ask for any path, so all paths without a page count as one.
"""

from __future__ import annotations

import math
from collections.abc import Container
from http import HTTPStatus
from typing import Final

from aiohttp import web

from wva import log
from wva.serve.authn import Authenticator, bearer_token
from wva.serve.authz import VERB, Authorizer
from wva.serve.reviews import ReviewFailed
from wva.serve.throttle import Refusals, Throttled

UNKNOWN_PATH: Final = "/-/unknown"
"""What is asked for when there is no page: only a right to all paths has it, so no other client learns of a 404."""
_MAX_LOGGED_CHARACTERS: Final = 100


def plain(status: HTTPStatus, text: str, **headers: str) -> web.Response:
    """Return a short answer in plain text."""
    return web.Response(
        status=status, text=text + "\n", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


class Gate:
    """Authentication, then authorization."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer, *, refusals: Refusals) -> None:
        """Ask both, in this order; ``refusals`` tells when to log a refused request."""
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._refusals = refusals
        self._logger = log.get("serve.gate")

    async def refusal(self, request: web.BaseRequest, *, pages: Container[str]) -> web.Response | None:
        """Return the answer for a request that may not pass, None for one that may. ``pages`` are those there are."""
        address = request.remote or ""
        token = bearer_token(request.headers.getall("Authorization", []))
        if token is None:
            return _unauthorized()
        try:
            identity = await self._authenticator.identify(token, address=address)
            if identity is None:
                return _unauthorized()
            path = request.path if request.path in pages else UNKNOWN_PATH
            if await self._authorizer.allows(identity, path=path):
                self._authenticator.trust(token, address=address)
                return None
        except Throttled as throttled:
            self._tell("client_throttled", address, address=address)
            return plain(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many requests with credentials that the API server has to review",
                Retry_After=str(math.ceil(throttled.retry_after_seconds)),
            )
        except ReviewFailed:
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the API server could not be asked about this client")
        user = identity.username
        self._tell("client_forbidden", user, user=_shortened(user), path=_shortened(request.path), verb=VERB)
        text = f"forbidden: {user} lacks the verb {VERB} on this path (nonResourceURLs of a ClusterRole)"
        return plain(HTTPStatus.FORBIDDEN, text)

    def _tell(self, event: str, caller: str, **values: str) -> None:
        """Log a refused request, for each caller once a minute at most; ``requests`` are those since the last line."""
        requests = self._refusals.count(f"{event} {caller}")
        if requests:
            self._logger.warning(event, **values, requests=requests)


def _shortened(text: str) -> str:
    """Return a caller's text for the log: printable ASCII, and not much of it."""
    escaped = ascii(text[:_MAX_LOGGED_CHARACTERS])[1:-1][:_MAX_LOGGED_CHARACTERS]
    return escaped if len(text) <= _MAX_LOGGED_CHARACTERS and len(escaped) < _MAX_LOGGED_CHARACTERS else f"{escaped}..."


def _unauthorized() -> web.Response:
    return plain(HTTPStatus.UNAUTHORIZED, "unauthorized: a valid bearer token is needed", WWW_Authenticate="Bearer")
