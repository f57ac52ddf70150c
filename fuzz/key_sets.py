"""Any bytes come as an issuer's document: what is kept of it is within its bounds, and the rest changes nothing.

The first byte says which document the rest is: a key set, metadata, or the answer about a token. Accepted outcomes: the
document counts as not read; or its keys can be used by PyJWT as far as they are numbers at all, its addresses are
HTTPS, and its answer names a caller for this endpoint.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec
from isthmus.core.access.claims import Accepted, ClaimRules
from isthmus.core.access.introspection import read_introspection
from isthmus.core.access.issuer_answers import KeysWanted, Refused, Reply, Waits
from isthmus.core.access.issuer_documents import IssuerDocuments
from isthmus.core.access.issuer_settings import ALGORITHMS, IntrospectionSettings, IssuerSettings
from isthmus.core.access.public_keys import DOCUMENT_MAX_BYTES, KEYS_MAX, read_key_set
from isthmus.transports.access.signatures import verify

ISSUER: Final = "https://a.example"
NOW: Final = 1_800_000_000.0
METADATA: Final = json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode()
RULES: Final = ClaimRules(
    IssuerSettings(ISSUER, groups="groups", introspection=IntrospectionSettings("a", "b")), "auth.issuers[0]"
)


def check_keys(data: bytes) -> None:
    keys = read_key_set(data)
    if isinstance(keys, str):
        assert keys.isprintable()
        return
    assert len(data) <= DOCUMENT_MAX_BYTES
    assert len(keys) <= KEYS_MAX
    listed = json.loads(data)["keys"]
    for key in keys:
        assert any(key.fits(algorithm) for algorithm in ALGORITHMS)
        assert any(isinstance(one, dict) and one.get("kid", "") == key.kid for one in listed)
        algorithm = next(name for name in ALGORITHMS if key.fits(name))
        assert not verify(key, algorithm, b"a message", b"no signature")
        members = msgspec.structs.asdict(key)
        assert set(members) == {"kid", "kty", "alg", "crv", "n", "e", "x", "y"}


def check_documents(data: bytes) -> None:
    """Reads the bytes as the first document of an attempt, with good ones after it."""
    documents = IssuerDocuments(ISSUER, "auth.issuers[0]")
    documents.receive(documents.want(NOW), Reply(200, (), data), NOW)
    request = documents.want(NOW)
    if isinstance(request, KeysWanted):
        assert json.loads(data)["issuer"] == ISSUER
        assert request.url.startswith("https://")
    else:
        assert documents.receive(request, Reply(200, (), METADATA), NOW) is False
        request = documents.want(NOW)
        assert request.url == f"{ISSUER}/keys"
    ended = documents.receive(request, Reply(200, (), data), NOW)
    assert ended
    assert documents.is_read == (not isinstance(read_key_set(data), str))
    assert (documents.ask(NOW) is None) == documents.is_read
    later = documents.ask(NOW + 24 * 3600)
    assert isinstance(later, Waits)


def check_answer(data: bytes) -> None:
    answer = read_introspection(Reply(200, (), data), ISSUER, RULES, NOW)
    if isinstance(answer, Accepted):
        said = json.loads(data)
        assert said["active"] is True
        assert said.get("iss", ISSUER) == ISSUER
        assert answer.audiences
        assert answer.identity.principal == f"jwt:{ISSUER}|{said['sub']}"
        assert answer.identity.expires_at is None or answer.identity.expires_at > NOW
    else:
        text = answer.reason if isinstance(answer, Refused) else answer
        assert text.isascii()
        assert text.isprintable()


CHECKS: Final = (check_keys, check_documents, check_answer)


def test_one_input(data: bytes) -> None:
    CHECKS[(data[0] if data else 0) % len(CHECKS)](data[1:])
