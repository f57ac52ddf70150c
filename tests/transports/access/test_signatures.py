"""Signatures: those that keys have made are right, and no others."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.access.issuer_settings import ALGORITHMS
from isthmus.core.access.public_keys import Key, read_key_set
from isthmus.transports.access.signatures import MISSING, verify

CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
MESSAGE = b"header.content"


def made(kty: str, curve: str) -> Any:
    if kty == "RSA":
        return rsa.generate_private_key(65537, 2048)
    return ed25519.Ed25519PrivateKey.generate() if kty == "OKP" else ec.generate_private_key(CURVES[curve])


PRIVATE = {(kty, curve): made(kty, curve) for kty, curve in set(ALGORITHMS.values())}


def published(algorithm: str) -> Key:
    """Returns the key of an algorithm, as an issuer publishes it."""
    written = jwt.algorithms.get_default_algorithms()[algorithm].to_jwk(PRIVATE[ALGORITHMS[algorithm]].public_key())
    found = read_key_set(b'{"keys":[' + written.encode() + b"]}")
    assert isinstance(found, tuple)
    return found[0]


def signed(algorithm: str) -> bytes:
    signature = jwt.algorithms.get_default_algorithms()[algorithm].sign(MESSAGE, PRIVATE[ALGORITHMS[algorithm]])
    assert isinstance(signature, bytes)
    return signature


KEYS = {algorithm: published(algorithm) for algorithm in ALGORITHMS}
SIGNATURES = {algorithm: signed(algorithm) for algorithm in ALGORITHMS}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signature_is_of_its_key_its_message_and_its_algorithm(algorithm: str) -> None:
    signature = SIGNATURES[algorithm]
    assert verify(KEYS[algorithm], algorithm, MESSAGE, signature)
    assert not verify(KEYS[algorithm], algorithm, MESSAGE + b"\n", signature)
    for other in ALGORITHMS:
        if KEYS[other].fits(other) and other != algorithm:
            assert not verify(KEYS[other], other, MESSAGE, signature)


@given(
    algorithm=st.sampled_from(sorted(ALGORITHMS)), at=st.integers(0, 600), bits=st.integers(1, 255), cut=st.booleans()
)
def test_a_changed_signature_is_wrong(algorithm: str, at: int, bits: int, cut: bool) -> None:
    signature = bytearray(SIGNATURES[algorithm])
    if cut:
        del signature[at % len(signature) :]
    else:
        signature[at % len(signature)] ^= bits
    assert not verify(KEYS[algorithm], algorithm, MESSAGE, bytes(signature))


@given(algorithm=st.sampled_from(sorted(ALGORITHMS)), signature=st.binary(max_size=600))
def test_any_bytes_are_no_signature(algorithm: str, signature: bytes) -> None:
    assert not verify(KEYS[algorithm], algorithm, MESSAGE, signature)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (Key("k", "EC", crv="P-256", x="A" * 43, y="A" * 43), "ES256"),  # no point on the curve
        (Key("k", "RSA", n="_" * 342, e="AQ"), "RS256"),
        (Key("k", "RSA", n="A" * 342, e="AQAB"), "RS256"),
        (Key("k", "OKP", crv="Ed25519", x="_" * 42 + "8"), "EdDSA"),
        (Key("k", "oct"), "RS256"),
        (Key("k", "RSA", n="", e=""), "PS512"),
    ],
)
def test_a_key_that_is_none_has_signed_nothing(key: Key, algorithm: str) -> None:
    assert not verify(key, algorithm, MESSAGE, SIGNATURES[algorithm])


@pytest.mark.parametrize("package", ["jwt", "cryptography"])
def test_a_missing_package_is_named_with_its_extra(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None\nimport isthmus.transports.access.signatures"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(f"ImportError: {MISSING}")
    assert "isthmus[auth]" in MISSING
