"""A public name that lasts is the same from one run to the next, and another wherever anything else is."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from isthmus.core.downstream.session_ids import lasting_sid
from isthmus.core.state.session import Affinities

KEY = b"0123456789abcdef"
WHOSE = Affinities("s", "ann", "f", 0, (("x", "1"),))


def test_a_lasting_name_is_made_as_it_always_was() -> None:
    """Clients keep handles in which it stands: half of a keyed hash of whose the session is, as lower-case digits."""
    said = b"isthmus session 1\n" + json.dumps(["s", "ann", "f", [["x", "1"]]], separators=(",", ":")).encode()
    assert lasting_sid(KEY, WHOSE) == hmac.new(KEY, said, hashlib.sha256).hexdigest()[:32]
    assert lasting_sid(KEY, WHOSE) == lasting_sid(KEY, WHOSE._replace(group=7, is_for_one=True))


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
def test_who_is_another_has_another_name(other: Affinities) -> None:
    assert lasting_sid(KEY, other) != lasting_sid(KEY, WHOSE)
    assert lasting_sid(b"another key 1234", WHOSE) != lasting_sid(KEY, WHOSE)
