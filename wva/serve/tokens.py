"""What a bearer token says of itself. Nothing of it is checked here: the API server reviews every token."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from wva.api import wire

_JWT_PARTS: Final = 3


class JwtClaims(msgspec.Struct, frozen=True):
    """The claims of a token that matter here. ``exp`` is in seconds since the epoch."""

    exp: float | None = None
    aud: object = None

    def names(self, audience: str) -> bool:
        """Return whether the token says that it is for an audience."""
        return audience in self.aud if isinstance(self.aud, list) else audience == self.aud


_claims: Final = msgspec.json.Decoder(JwtClaims)


def claims(token: str) -> JwtClaims:
    """Return the claims of a token; none if it is no JWT."""
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return JwtClaims()
    try:
        return wire.decode(_claims, base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return JwtClaims()


def own_audience(namespace: str) -> str:
    """Return the audience of tokens for the controller in a namespace, and for nobody else."""
    return f"wva.llmd.ai/{namespace}"
