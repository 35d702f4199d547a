"""Who may do what: bearer tokens, the review endpoints that ask for it, and the same answer for requests themselves.

By default everybody is authenticated and everything is allowed. A test sets ``tokens`` to require one, and
``authorize`` to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from wva.sim.apiserver.errors import ApiError, bad_request, unauthorized
from wva.sim.apiserver.objects import JsonObject, Object, lookup, text_at
from wva.sim.apiserver.requests import RequestInfo

AUTHENTICATION: Final = "authentication.k8s.io"
AUTHORIZATION: Final = "authorization.k8s.io"
REVIEWS: Final[Mapping[str, tuple[str, str]]] = {
    "tokenreviews": (AUTHENTICATION, "TokenReview"),
    "selfsubjectaccessreviews": (AUTHORIZATION, "SelfSubjectAccessReview"),
    "subjectaccessreviews": (AUTHORIZATION, "SubjectAccessReview"),
}


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)


@dataclass(frozen=True, slots=True)
class Attributes:
    """What somebody wants to do, in the words of RBAC. ``path`` is set instead of a resource for other URLs."""

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

    def __init__(self) -> None:
        """Authenticate everybody, allow everything."""
        self.tokens: dict[str, User] = {}
        self.authorize: Callable[[User, Attributes], bool] = allow_all

    def authenticate(self, token: str) -> User | None:
        """Return whose token this is; without configured tokens any text is one."""
        if self.tokens:
            return self.tokens.get(token)
        return User("embedded") if token else None

    def admit(self, info: RequestInfo, authorization: str) -> User:
        """Return who sent a request. Raises ApiError 401 without a valid token, 403 when the user may not do this."""
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

    def review(self, info: RequestInfo, user: User, body: Object) -> JsonObject:
        """Answer a review request: the object with its status. Raises ApiError 400 for another kind of body."""
        group, kind = REVIEWS[info.resource]
        if body.get("kind") != kind:
            raise bad_request(f"expected a {kind}")
        status: JsonObject
        if kind == "TokenReview":
            status = self._token_status(text_at(body, ("spec", "token")))
        else:
            if kind == "SubjectAccessReview":
                user = User(text_at(body, ("spec", "user")), tuple(body["spec"].get("groups") or ()))
            status = {"allowed": self.authorize(user, _asked(body))}
        return {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, "spec": body.get("spec"), "status": status}

    def _token_status(self, token: str) -> JsonObject:
        user = self.authenticate(token)
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": {"username": user.name, "groups": list(user.groups)}}


def _asked(body: Object) -> Attributes:
    place = ("spec", "resourceAttributes")
    if not isinstance(lookup(body, place), dict):
        place = ("spec", "nonResourceAttributes")
        return Attributes(text_at(body, (*place, "verb")), path=text_at(body, (*place, "path")))
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(text_at(body, (*place, field)) for field in fields))


def _denied(user: User, attributes: Attributes) -> ApiError:
    if attributes.path:
        text = f'forbidden: User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        return ApiError(HTTPStatus.FORBIDDEN, "Forbidden", text)
    resource = "/".join(part for part in (attributes.resource, attributes.subresource) if part)
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    name = f' "{attributes.name}"' if attributes.name else ""
    full = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    text = (
        f'{full}{name} is forbidden: User "{user.name}" cannot {attributes.verb} resource "{resource}" '
        f'in API group "{attributes.group}" {where}'
    )
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return ApiError(
        HTTPStatus.FORBIDDEN, "Forbidden", text, details={key: value for key, value in details.items() if value}
    )
