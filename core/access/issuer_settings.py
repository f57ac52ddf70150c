"""The settings of an authorization server whose tokens are accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

ALGORITHMS: Final[Mapping[str, tuple[str, str]]] = {
    "RS256": ("RSA", ""),
    "RS384": ("RSA", ""),
    "RS512": ("RSA", ""),
    "PS256": ("RSA", ""),
    "PS384": ("RSA", ""),
    "PS512": ("RSA", ""),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The algorithms of signatures, each with the type and the curve of its keys (RFC 7518, 3.1; RFC 8037). The ones that a
shared secret verifies are not among them: a public key must never be taken for a secret (RFC 8725, 3.1)."""


class IntrospectionSettings(msgspec.Struct, frozen=True):
    """Says that the issuer is asked about each token (RFC 7662).

    Attributes:
        client_id, client_secret: the credentials of this proxy at the issuer.
        url: the introspection endpoint; "": the one that the issuer's metadata names.
    """

    client_id: str
    client_secret: str
    url: str = ""

    def __repr__(self) -> str:
        return f"IntrospectionSettings(client_id={self.client_id!r}, client_secret=..., url={self.url!r})"


class IssuerSettings(msgspec.Struct, frozen=True):
    """An authorization server, and how its tokens are read.

    Attributes:
        url: its identifier, character by character as in the `iss` of its tokens and in its metadata.
        audience: values of `aud` that are accepted besides the URLs of the endpoint.
        algorithms: names from `ALGORITHMS`.
        principal: the claim that names the caller.
        groups: the claim with the caller's groups; "": none.
        implies: scopes that a scope contains.
        jwks_url: the address of its key set; "": the one that its metadata names.
        introspection: how it is asked about tokens; None: tokens are JWTs that its keys verify.
    """

    url: str
    audience: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = tuple(ALGORITHMS)
    principal: str = "sub"
    groups: str = ""
    implies: Mapping[str, tuple[str, ...]] = {}
    jwks_url: str = ""
    introspection: IntrospectionSettings | None = None
