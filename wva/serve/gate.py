"""The gate in front of the pages: only clients that the API server knows and allows get past it.

The gate answers before a page is chosen, so that a client without the right does not learn which pages exist: 401
without a good token, 403 without the right, 500 when the API server cannot be asked.
"""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from wva.serve.authn import Authenticator, bearer_token
from wva.serve.authz import Authorizer, verb_of
from wva.serve.reviews import ReviewFailed


def plain(status: HTTPStatus, text: str, **headers: str) -> web.Response:
    """Return a short answer in plain text."""
    return web.Response(
        status=status, text=text + "\n", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


class Gate:
    """Authentication, then authorization."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        """Ask both, in this order."""
        self._authenticator = authenticator
        self._authorizer = authorizer

    async def refusal(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer for a request that may not pass, None for one that may."""
        token = bearer_token(request.headers.getall("Authorization", []))
        if token is None:
            return _unauthorized()
        try:
            identity = await self._authenticator.identify(token)
            if identity is None:
                return _unauthorized()
            if await self._authorizer.allows(identity, path=request.path, method=request.method):
                return None
        except ReviewFailed:
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the API server could not be asked about this client")
        verb = verb_of(request.method)
        text = f"forbidden: {identity.username} lacks the verb {verb} on this path (nonResourceURLs of a ClusterRole)"
        return plain(HTTPStatus.FORBIDDEN, text)


def _unauthorized() -> web.Response:
    return plain(HTTPStatus.UNAUTHORIZED, "unauthorized: a valid bearer token is needed", WWW_Authenticate="Bearer")
