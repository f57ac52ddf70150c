"""Key sets as issuers publish them: usable keys are found, and nothing else becomes one."""

from __future__ import annotations

import json
from typing import Any

import jwt
import msgspec
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from issuer_scenes import KINDS, base64url, jwk, private_key
from isthmus.core.access.issuer_settings import ALGORITHMS
from isthmus.core.access.public_keys import DOCUMENT_MAX_BYTES, KEYS_MAX, Key, read_key_set

KEYS = sorted(set(KINDS.values()))


def read(*keys: object) -> tuple[Key, ...]:
    found = read_key_set(json.dumps({"keys": keys}).encode())
    assert isinstance(found, tuple)
    return found


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_keeps_its_public_members(kind: str) -> None:
    published = jwk(kind, alg="", x5c=["AAAA"], x5t="a", key_ops=["verify"])
    (key,) = read(published)
    members = {name: value for name, value in msgspec.structs.asdict(key).items() if value}
    assert members == {name: published[name] for name in ("kid", "kty", "crv", "n", "e", "x", "y") if name in published}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_fits_its_algorithms_only(kind: str) -> None:
    (key,) = read(jwk(kind))
    assert {name for name in (*ALGORITHMS, "none", "HS256") if key.fits(name)} == {
        name for name, used in KINDS.items() if used == kind
    }
    for algorithm in ALGORITHMS:
        kept = read(jwk(kind, alg=algorithm))
        assert [key.fits(algorithm) for key in kept] == ([True] if KINDS[algorithm] == kind else [])


RSA, EC, ED = jwk("RSA"), jwk("P-256"), jwk("Ed25519")

UNUSABLE: dict[str, object] = {
    "for encryption": {**RSA, "use": "enc"},
    "for no use that is known": {**RSA, "use": 7},
    "for other operations": {**RSA, "key_ops": ["sign", "encrypt"]},
    "for operations that are no list": {**RSA, "key_ops": "verify"},
    "a secret": {"kty": "oct", "k": base64url(b"k" * 32).decode(), "kid": "k"},
    "no type": {**RSA, "kty": None},
    "another type": {**RSA, "kty": "rsa"},
    "another curve": {**EC, "crv": "secp256k1"},
    "the curve of another size": {**EC, "crv": "P-384"},
    "the curve of another type": {**EC, "crv": "Ed25519"},
    "Ed448": {**ED, "crv": "Ed448"},
    "X25519": {**ED, "crv": "X25519"},
    "no modulus": {**RSA, "n": None},
    "a modulus that is too short": {**RSA, "n": base64url(b"\xff" * 128).decode()},
    "a modulus that is too long": {**RSA, "n": base64url(b"\xff" * 1025).decode()},
    "an exponent that is too long": {**RSA, "e": base64url(b"\xff" * 9).decode()},
    "an empty exponent": {**RSA, "e": ""},
    "a modulus that is no base64url": {**RSA, "n": "é" * 400},
    "no y": {key: value for key, value in EC.items() if key != "y"},
    "a short x": {**EC, "x": str(EC["x"])[:-4]},
    "a name that is no text": {**RSA, "kid": 7},
    "a name that is too long": {**RSA, "kid": "k" * 257},
    "an algorithm that is no text": {**RSA, "alg": ["RS256"]},
    "a secret's algorithm": {**RSA, "alg": "HS256"},
    "an algorithm for encryption": {**RSA, "alg": "RSA-OAEP"},
    "a text": "RSA",
    "null": None,
}


@each_row("case", UNUSABLE)
def test_an_unusable_key_is_left_out(case: str) -> None:
    """RFC 7517, 5: keys that are not understood or out of range "SHOULD be ignored"."""
    assert [key.kid for key in read(UNUSABLE[case], RSA)] == ["RSA"]


@pytest.mark.parametrize("exponent", ["Aw", "AQAB", "_" * 10 + "8"])
@pytest.mark.parametrize("size", [256, 1024])
def test_sizes_of_rsa_keys_in_use_are_accepted(exponent: str, size: int) -> None:
    assert len(read({**RSA, "n": base64url(b"\xff" * size).decode(), "e": exponent})) == 1


def test_private_members_are_not_kept() -> None:
    numbers = private_key("RSA").private_numbers()
    secret = base64url(numbers.d.to_bytes(256)).decode()
    (key,) = read({**RSA, "d": secret})
    assert secret not in repr(key)


def test_a_key_set_is_bounded_in_keys() -> None:
    assert len(read(*[RSA] * KEYS_MAX)) == KEYS_MAX
    assert read_key_set(json.dumps({"keys": [RSA] * (KEYS_MAX + 1)}).encode()) == "has 65 keys, expected 64 at most"


def test_a_key_set_is_bounded_in_bytes() -> None:
    written = json.dumps({"keys": [RSA]}).encode()
    assert isinstance(read_key_set(written.ljust(DOCUMENT_MAX_BYTES)), tuple)
    assert read_key_set(written.ljust(DOCUMENT_MAX_BYTES + 1)) == "has more than 65536 bytes"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"{}", b'{"keys":null}', b'{"keys":{}}', b"\xff", b"[" * 9999]
)
def test_a_document_that_is_no_key_set_is_refused(data: bytes) -> None:
    assert isinstance(read_key_set(data), str)


VALUES = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.lists(st.text(max_size=3), max_size=2))


@given(
    base=st.sampled_from([RSA, EC, ED]), changes=st.dictionaries(st.sampled_from([*RSA, *EC, "alg", "key_ops"]), VALUES)
)
def test_a_key_that_is_kept_can_be_used(base: dict[str, Any], changes: dict[str, Any]) -> None:
    """PyJWT reads each key that is kept; one that was changed may still be no point on its curve."""
    for key in read(base | changes):
        members = {name: value for name, value in msgspec.structs.asdict(key).items() if value}
        algorithm = next(name for name in ALGORITHMS if key.fits(name))
        if not changes.keys() & {"x", "y", "n", "e"}:
            assert jwt.PyJWK.from_dict(members, algorithm).key is not None
