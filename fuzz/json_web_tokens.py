"""Any text comes as a token: it is read whole or refused, and accepted only if PyJWT, with strict options, accepts it.

The first byte says how the text is made. 0: the rest is the text. 1: header and claims, separated by a zero byte, are
signed as they are with a real key. 2: the second and the third byte say where a good token is changed, the fourth how.
Accepted outcomes: `Refused`, with a printable reason; or an identity of the token's `sub`.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ed25519
from isthmus.core.access.identity import Identity
from isthmus.core.access.issuer_answers import KeysWanted, Refused, Reply, Waits
from isthmus.core.access.issuer_settings import ALGORITHMS, IssuerSettings
from isthmus.core.access.issuers import Issuers
from isthmus.core.access.json_web_tokens import JsonWebToken, issuer_of, read_token
from isthmus.transports.access.signatures import verify

ISSUER: Final = "https://a.example"
ENDPOINT: Final = "https://b.example/mcp"
NOW: Final = 1_800_000_000.0
FAR: Final = 32_503_680_000  # the year 3000: PyJWT asks the clock
PRIVATE: Final = ed25519.Ed25519PrivateKey.from_private_bytes(b"the key of this target, 32 bytes")
PUBLIC: Final = PRIVATE.public_key()
JWK: Final[dict[str, Any]] = {**jwt.algorithms.OKPAlgorithm.to_jwk(PUBLIC, as_dict=True), "kid": "k", "use": "sig"}
HEADER: Final = b'{"alg":"EdDSA","kid":"k","typ":"at+jwt"}'
CLAIMS: Final = json.dumps({"iss": ISSUER, "aud": ENDPOINT, "sub": "alice", "exp": FAR, "scope": "read"}).encode()


def base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def sign(header: bytes, claims: bytes) -> str:
    message = base64url(header) + b"." + base64url(claims)
    return (message + b"." + base64url(PRIVATE.sign(message))).decode()


def settled() -> Issuers:
    """Returns issuers whose documents were read."""
    issuers = Issuers([IssuerSettings(ISSUER, groups="groups")], verify=verify)
    while (request := next(iter(issuers.due(NOW)), None)) is not None:
        keys = {"keys": [JWK]} if isinstance(request, KeysWanted) else {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
        issuers.fetched(request, Reply(200, (), json.dumps(keys).encode()), NOW)
    return issuers


TOKEN: Final = sign(HEADER, CLAIMS)


def is_accepted_by_pyjwt(text: str) -> bool:
    try:
        jwt.decode(
            text,
            PUBLIC,
            algorithms=list(ALGORITHMS),
            audience=[ENDPOINT, ENDPOINT + "/"],
            issuer=ISSUER,
            options={
                "require": ["exp", "iss", "aud", "sub"],
                "verify_iat": False,
                "verify_nbf": False,
                "verify_exp": False,
            },
        )
    except (jwt.PyJWTError, TypeError, ValueError):
        return False
    return True


def text_of(data: bytes) -> str:
    kind, rest = data[:1], data[1:]
    if kind == b"\1":
        header, _, claims = rest.partition(b"\0")
        return sign(header or HEADER, claims or CLAIMS)
    if kind == b"\2":
        high, low, by = (rest + b"\0\0\0")[:3]
        changed = bytearray(TOKEN.encode())
        changed[(high << 8 | low) % len(changed)] ^= by
        return changed.decode("latin-1")
    return rest.decode("utf-8", "surrogateescape")


def test_one_input(data: bytes) -> None:
    text = text_of(data)
    token = read_token(text)
    issuers = settled()
    answer = issuers.check(text, [ENDPOINT], NOW)
    if isinstance(token, Refused):
        assert isinstance(answer, Refused)
        assert token.reason.isprintable()
    else:
        assert isinstance(token, JsonWebToken)
        assert issuer_of(text) == token.issuer
    if isinstance(answer, Identity):
        assert is_accepted_by_pyjwt(text)
        assert isinstance(token, JsonWebToken)
        assert answer.principal == f"jwt:{ISSUER}|{token.claims['sub']}"
        assert answer.principal.isprintable()
        assert answer == issuers.check(text, [ENDPOINT], NOW)
        assert isinstance(issuers.check(text, ["https://c.example"], NOW), Refused)
    elif isinstance(answer, Refused):
        assert answer.reason.isascii()
        assert answer.reason.isprintable()
        assert len(answer.reason) < 2000
    else:
        assert isinstance(answer, Waits)  # for another key than the one that was read
        assert isinstance(token, JsonWebToken)
        assert token.kid != "k" or text != TOKEN
    assert text != TOKEN or isinstance(answer, Identity)
