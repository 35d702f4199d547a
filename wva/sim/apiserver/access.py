"""Bearer tokens, and the permissions of their owners. ``reviews`` answers the same questions about other users.

By default every client is authenticated and everything is allowed. A test sets ``tokens`` to require a token, and
``authorize`` to refuse requests. Tokens of ServiceAccounts are issued on request and are valid for their audiences
until they expire.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

from wva.sim.apiserver.errors import ServedError, unauthorized
from wva.sim.apiserver.requests import RequestInfo

API_AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """An issued token; ``expires_at`` is in seconds since the epoch."""

    user: User
    audiences: tuple[str, ...]
    expires_at: float


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a request, as RBAC names them. Other URLs have ``path`` instead of a resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


def allow_all(user: User, attributes: Attributes) -> bool:
    """Allow everything."""
    del user, attributes
    return True


class Access:
    """The authentication and authorization of one server."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Authenticate every client, allow everything; ``now`` returns seconds since the epoch."""
        self.tokens: dict[str, User] = {}
        self.authorize: Callable[[User, Attributes], bool] = allow_all
        self._now = now
        self._issued: dict[str, IssuedToken] = {}

    def issue(self, user: User, *, audiences: tuple[str, ...], lifetime_seconds: float) -> tuple[str, float]:
        """Return a new token for ``user`` and its expiry time. It has the form of a JWT, but no signature to check."""
        expires_at = self._now() + lifetime_seconds
        audiences = audiences or (API_AUDIENCE,)
        claims = {"aud": audiences, "exp": int(expires_at), "sub": user.name}
        parts = [_part({"alg": "none", "typ": "JWT"}), _part(claims), secrets.token_urlsafe(24)]
        token = ".".join(parts)
        self._issued[token] = IssuedToken(user, audiences, expires_at)
        return token, expires_at

    def authenticate(self, token: str, audiences: tuple[str, ...] = (API_AUDIENCE,)) -> User | None:
        """Return the user of a token that is valid for one of the audiences, else None; see ``audiences_of``."""
        if not self.audiences_of(token, audiences):
            return None
        issued = self._issued.get(token)
        if issued is not None:
            return issued.user
        return self.tokens.get(token) if self.tokens else User("embedded")

    def audiences_of(self, token: str, audiences: tuple[str, ...]) -> tuple[str, ...]:
        """Return the audiences for which a token is valid; without configured tokens any text is a token.

        A token that was not issued here is valid for the API server only.
        """
        issued = self._issued.get(token)
        valid_audiences: tuple[str, ...] = ()
        if issued is not None:
            valid_audiences = issued.audiences if self._now() < issued.expires_at else ()
        elif token in self.tokens or (token and not self.tokens):
            valid_audiences = (API_AUDIENCE,)
        return tuple(audience for audience in audiences if audience in valid_audiences)

    def admit(self, info: RequestInfo, authorization: str) -> User:
        """Return the sender of a request. Raises ApiError 401 without a valid token, 403 when access is denied."""
        token = authorization.removeprefix("Bearer ").strip()
        user = self.authenticate(token) or (None if self.tokens else ANONYMOUS)
        if user is None:
            raise unauthorized()
        attributes = Attributes(info.verb, path=info.path)
        if info.resource:
            attributes = Attributes(info.verb, info.group, info.resource, info.subresource, info.namespace, info.name)
        if not self.authorize(user, attributes):
            raise _denied(user, attributes)
        return user


def _denied(user: User, attributes: Attributes) -> ServedError:
    if attributes.path:
        text = f'forbidden: User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        return ServedError(HTTPStatus.FORBIDDEN, "Forbidden", text)
    resource = "/".join(part for part in (attributes.resource, attributes.subresource) if part)
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    name = f' "{attributes.name}"' if attributes.name else ""
    full_resource = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    text = (
        f'{full_resource}{name} is forbidden: User "{user.name}" cannot {attributes.verb} resource "{resource}" '
        f'in API group "{attributes.group}" {scope}'
    )
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return ServedError(
        HTTPStatus.FORBIDDEN, "Forbidden", text, details={key: value for key, value in details.items() if value}
    )


def _part(document: Mapping[str, object]) -> str:
    """Return a part of a JWT."""
    return base64.urlsafe_b64encode(msgspec.json.encode(document)).decode("ascii").rstrip("=")
