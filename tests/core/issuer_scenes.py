"""Issuers for tests of access: keys, tokens that PyJWT signs, and the documents that an issuer publishes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from isthmus.core.access.identity import Identity
from isthmus.core.access.issuer_answers import IntrospectionWanted, MetadataWanted, Refused, Reply, Unavailable, Waits
from isthmus.core.access.issuer_settings import IssuerSettings
from isthmus.core.access.issuers import CHECK_ROUNDS_MAX, Issuers
from isthmus.transports.access.signatures import verify
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

NOW: Final = 1_800_000_000.0
ISSUER: Final = "https://idp.example.com/realms/a"
ENDPOINT: Final = "https://gateway.example.com/mcp/files"
AUDIENCES: Final = ("https://gateway.example.com/mcp", ENDPOINT)

Answer = Identity | Refused | Unavailable


@cache
def private_key(kind: str) -> Any:
    """Returns the private key of a name that begins with its type: "RSA", "P-256", "P-384", "P-521" or "Ed25519"."""
    curves: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    kind = kind.partition(" ")[0]
    if kind == "RSA":
        return rsa.generate_private_key(65537, 2048)
    return ed25519.Ed25519PrivateKey.generate() if kind == "Ed25519" else ec.generate_private_key(curves[kind])


def jwk(kind: str, **members: object) -> dict[str, object]:
    """Returns the public key of a name as an issuer publishes it, with the name as its `kid`."""
    public = private_key(kind).public_key()
    by_kind = {"RSA": RSAAlgorithm.to_jwk, "Ed25519": OKPAlgorithm.to_jwk}
    written = by_kind.get(kind.partition(" ")[0], ECAlgorithm.to_jwk)(public, as_dict=True)
    written.pop("key_ops", None)
    return {**written, "kid": kind, "use": "sig", **members}


KINDS: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
}


def claims(**changes: object) -> dict[str, object]:
    """Returns the claims of a good token. A change to None takes a claim out."""
    usual: dict[str, object] = {
        "iss": ISSUER,
        "sub": "alice",
        "aud": ENDPOINT,
        "exp": int(NOW) + 3600,
        "iat": int(NOW),
        "jti": "one",
        "client_id": "desktop",
        "scope": "mcp:read",
    }
    return {name: value for name, value in (usual | changes).items() if value is not None}


def sign(
    content: Mapping[str, object] | bytes | None = None,
    *,
    algorithm: str = "RS256",
    key: str = "",
    header: Mapping[str, object] | None = None,
) -> str:
    """Returns a signed token. Its header names the algorithm and the key, and has the type of an access token, unless
    `header` says otherwise; a member of `header` that is None is left out."""
    name = key or KINDS[algorithm]
    members = {"alg": algorithm, "typ": "at+jwt", "kid": name, **(header or {})}
    written = json.dumps({member: value for member, value in members.items() if value is not None}).encode()
    payload = content if isinstance(content, bytes) else json.dumps(claims() if content is None else content).encode()
    message = b".".join((base64url(written), base64url(payload)))
    signature = jwt.algorithms.get_default_algorithms()[algorithm].sign(message, private_key(name))
    return b".".join((message, base64url(signature))).decode()


def base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def issuers(*settings: IssuerSettings) -> Issuers:
    return Issuers(settings or [IssuerSettings(ISSUER)], verify=verify)


class IssuerServer:
    """An issuer that answers at once.

    Attributes:
        keys: the kinds of the keys that it publishes, or the keys.
        tokens: the answers about tokens.
        sent: the requests that came, in order.
        is_up: False: nothing answers.
    """

    def __init__(self, url: str = ISSUER, **metadata: object) -> None:
        self.url = url
        self.metadata = {"issuer": url, "jwks_uri": f"{url}/keys", "introspection_endpoint": f"{url}/ask", **metadata}
        self.metadata_at = f"{url}/.well-known/openid-configuration"
        self.keys: list[dict[str, object]] = [jwk("RSA")]
        self.keys_headers: tuple[tuple[bytes, bytes], ...] = ()
        self.tokens: dict[str, object] = {}
        self.sent: list[Any] = []
        self.is_up = True

    def reply(self, request: Any) -> Reply | None:
        self.sent.append(request)
        if not self.is_up:
            return None
        if isinstance(request, IntrospectionWanted):
            return Reply(200, (), json.dumps(self.tokens.get(request.token, {"active": False})).encode())
        if isinstance(request, MetadataWanted):
            if request.url != self.metadata_at:
                return Reply(404)
            return Reply(200, (), json.dumps(self.metadata).encode())
        assert request.url == self.metadata["jwks_uri"]
        return Reply(200, self.keys_headers, json.dumps({"keys": self.keys}).encode())

    def count(self, kind: type) -> int:
        """The number of requests of a kind that came."""
        return sum(isinstance(request, kind) for request in self.sent)


class Driver:
    """Asks as a driver does, alone: it waits for the end of pauses by setting its clock.

    Attributes:
        now: Unix seconds.
    """

    def __init__(self, checks: Issuers, *servers: IssuerServer) -> None:
        self.checks = checks
        self.servers = {server.url: server for server in servers}
        self.now = NOW

    def check(self, token: str, audiences: Collection[str] = AUDIENCES) -> Answer:
        for _ in range(CHECK_ROUNDS_MAX):
            answer = self.checks.check(token, audiences, self.now)
            if not isinstance(answer, Waits):
                return answer
            self.fetch(answer.request)
        raise AssertionError(f"no answer after {CHECK_ROUNDS_MAX} rounds")

    def fetch(self, request: Any) -> None:
        self.now = max(self.now, request.not_before)
        reply = self.servers[request.issuer].reply(request)
        if reply is None:
            self.checks.failed(request, self.now, "connection refused")
        else:
            self.checks.fetched(request, reply, self.now)


def settled(settings: IssuerSettings | None = None, change: Callable[[IssuerServer], object] | None = None) -> Driver:
    """Returns a driver of one issuer, `ISSUER`."""
    server = IssuerServer()
    if change is not None:
        change(server)
    return Driver(issuers(settings or IssuerSettings(ISSUER)), server)


def reason_of(answer: Answer) -> str:
    """Returns why a token is refused."""
    assert isinstance(answer, Refused), answer
    return answer.reason
