"""Token and access reviews, and tokens for ServiceAccounts.

Nothing of this is stored. The answer to a body is the same object with its status, or the refusal of the real server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from wva.api.meta import Key, format_time
from wva.sim.apiserver.access import API_AUDIENCE, Access, Attributes, User
from wva.sim.apiserver.builtin import SERVICE_ACCOUNTS
from wva.sim.apiserver.errors import bad_request, invalid, not_found
from wva.sim.apiserver.kinds import KindSpec, ValidationProblem
from wva.sim.apiserver.objects import JsonObject, Object, lookup, text_at
from wva.sim.apiserver.requests import RequestInfo
from wva.sim.apiserver.store import ObjectStore

AUTHENTICATION: Final = "authentication.k8s.io"
AUTHORIZATION: Final = "authorization.k8s.io"
REVIEWS: Final[Mapping[str, tuple[str, str]]] = {
    "tokenreviews": (AUTHENTICATION, "TokenReview"),
    "selfsubjectaccessreviews": (AUTHORIZATION, "SelfSubjectAccessReview"),
    "subjectaccessreviews": (AUTHORIZATION, "SubjectAccessReview"),
}
TOKEN: Final = "token"  # noqa: S105 - a subresource
_KINDS: Final = {
    kind: KindSpec(group=group, version="v1", plural=plural, kind=kind, namespaced=False)
    for plural, (group, kind) in REVIEWS.items()
}
_TOKEN_REQUEST: Final = KindSpec(group=AUTHENTICATION, version="v1", plural="tokenrequests", kind="TokenRequest")
_LIFETIME_SECONDS: Final = 3600
_SHORTEST_SECONDS: Final = 600


class ReviewAnswers:
    """Answers reviews with the server's ``Access``."""

    def __init__(self, access: Access, store: ObjectStore) -> None:
        """Ask ``access``; ``store`` holds the ServiceAccounts."""
        self._access = access
        self._store = store
        self._answers: dict[str, Callable[[User, Object], JsonObject]] = {
            "TokenReview": self._token,
            "SelfSubjectAccessReview": self._own_access,
            "SubjectAccessReview": self._access_of_subject,
        }

    def answer(self, info: RequestInfo, user: User, body: Object) -> JsonObject:
        """Return a review with its status. Raises ApiError 400 or 422."""
        group, kind = REVIEWS[info.resource]
        if body.get("kind") != kind:
            raise bad_request(f"expected a {kind}")
        status = self._answers[kind](user, body)
        return {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, "spec": body.get("spec"), "status": status}

    def issue(self, info: RequestInfo, body: Object) -> JsonObject:
        """Return a TokenRequest for a ServiceAccount with the token in its status. Raises ApiError 404 or 422."""
        account = self._store.find(SERVICE_ACCOUNTS, Key(info.namespace, info.name))
        if account is None:
            raise not_found(SERVICE_ACCOUNTS, info.name)
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or _LIFETIME_SECONDS
        if seconds < _SHORTEST_SECONDS:
            text = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            raise invalid(_TOKEN_REQUEST, "", [ValidationProblem("spec.expirationSeconds", "FieldValueInvalid", text)])
        namespace_group = f"system:serviceaccounts:{info.namespace}"
        user = User(
            f"system:serviceaccount:{info.namespace}:{info.name}",
            ("system:serviceaccounts", namespace_group, "system:authenticated"),
            text_at(account, ("metadata", "uid")),
            {"authentication.kubernetes.io/credential-id": ("JTI=embedded",)},
        )
        audiences = tuple(spec.get("audiences") or (API_AUDIENCE,))
        token, expires_at = self._access.issue(user, audiences=audiences, lifetime_seconds=seconds)
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{AUTHENTICATION}/v1",
            "metadata": {"name": info.name, "namespace": info.namespace},
            "spec": {"audiences": list(audiences), "expirationSeconds": seconds, "boundObjectRef": None},
            "status": {"token": token, "expirationTimestamp": format_time(expires_at)},
        }

    def _token(self, _: User, body: Object) -> JsonObject:
        token = text_at(body, ("spec", "token"))
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        requested = lookup(body, ("spec", "audiences"))
        audiences = tuple(requested) if isinstance(requested, list) and requested else (API_AUDIENCE,)
        user = self._access.authenticate(token, audiences)
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        user_info: JsonObject = {"username": user.name, "groups": list(user.groups)}
        if user.uid:
            user_info["uid"] = user.uid
        if user.extra:
            user_info["extra"] = {name: list(values) for name, values in user.extra.items()}
        valid_audiences = self._access.audiences_of(token, audiences)
        return {"authenticated": True, "user": user_info, "audiences": list(valid_audiences)}

    def _own_access(self, user: User, body: Object) -> JsonObject:
        return {"allowed": self._access.authorize(user, _review_subject("SelfSubjectAccessReview", body))}

    def _access_of_subject(self, _: User, body: Object) -> JsonObject:
        kind = "SubjectAccessReview"
        attributes = _review_subject(kind, body)
        spec = body.get("spec") or {}
        name, groups = spec.get("user") or "", tuple(spec.get("groups") or ())
        if not name and not groups:
            text = 'Invalid value: "": at least one of user or group must be specified'
            raise invalid(_KINDS[kind], "", [ValidationProblem("spec.user", "FieldValueInvalid", text)])
        extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
        return {"allowed": self._access.authorize(User(name, groups, spec.get("uid") or "", extra), attributes)}


def _review_subject(kind: str, body: Object) -> Attributes:
    """Return the attributes that a review asks about. Raises ApiError 422 unless it names exactly one kind of them."""
    resource = lookup(body, ("spec", "resourceAttributes"))
    path = lookup(body, ("spec", "nonResourceAttributes"))
    if isinstance(resource, dict) == isinstance(path, dict):
        field, text = "resourceAttributes", "Invalid value: null: exactly one of the attributes must be specified"
        if isinstance(path, dict):
            field, text = "nonResourceAttributes", "Invalid value: cannot be specified in combination with the other"
        raise invalid(_KINDS[kind], "", [ValidationProblem(f"spec.{field}", "FieldValueInvalid", text)])
    if isinstance(path, dict):
        return Attributes(text_at(path, ("verb",)), path=text_at(path, ("path",)))
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(text_at(body, ("spec", "resourceAttributes", field)) for field in fields))
