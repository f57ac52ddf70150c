"""Tests of the lasting session ids: one id is equal in every run, and different wherever server, principal,
fingerprint, headers or key differ."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from isthmus.core.downstream.session_ids import derived_sid
from isthmus.core.state.session import Affinities

KEY = b"0123456789abcdef"
WHOSE = Affinities("s", "ann", "f", 0, (("x", "1"),))


def test_a_lasting_id_is_derived_as_it_always_was() -> None:
    """Clients keep handles that contain the id: 32 lower-case hexadecimal digits, the first half of a keyed hash of
    whose the session is."""
    hashed = b"isthmus session 1\n" + json.dumps(["s", "ann", "f", [["x", "1"]]], separators=(",", ":")).encode()
    assert derived_sid(KEY, WHOSE) == hmac.new(KEY, hashed, hashlib.sha256).hexdigest()[:32]
    assert derived_sid(KEY, WHOSE) == derived_sid(KEY, WHOSE._replace(group=7, is_for_one=True))


@pytest.mark.parametrize(
    "other",
    [
        WHOSE._replace(server="t"),
        WHOSE._replace(principal="bob"),
        WHOSE._replace(fingerprint="g"),
        WHOSE._replace(headers=()),
        WHOSE._replace(headers=(("x", "2"),)),
        WHOSE._replace(server="sann", principal=""),
    ],
)
def test_any_difference_makes_another_id(other: Affinities) -> None:
    assert derived_sid(KEY, other) != derived_sid(KEY, WHOSE)
    assert derived_sid(b"another key 1234", WHOSE) != derived_sid(KEY, WHOSE)
