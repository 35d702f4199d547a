"""The two questions an endpoint asks the API server: whose token is this, and what may its owner do.

``TokenReview`` (authentication.k8s.io/v1) and ``SubjectAccessReview`` (authorization.k8s.io/v1) are created and never
stored; the answer is their status. Of what was asked nothing is decoded: the spec holds the token.
"""

from __future__ import annotations

import msgspec

from wva.api.meta import ObjectMeta


class UserInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The identity of a client; ``extra`` has what the authenticator adds, and authorizers may read it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The answer about a token. ``audiences`` are those it is good for."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: tuple[str, ...] = ()


class TokenReview(msgspec.Struct, frozen=True, rename="camel"):
    """The review of a token."""

    metadata: ObjectMeta = ObjectMeta()
    status: TokenReviewStatus = TokenReviewStatus()


class SubjectAccessReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The answer about an action: allowed only with ``allowed`` and without ``denied``."""

    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(msgspec.Struct, frozen=True, rename="camel"):
    """The review of an action."""

    metadata: ObjectMeta = ObjectMeta()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()
