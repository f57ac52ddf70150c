"""Tests of the bounds of members, elements and lone surrogates."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import PARSE_ERROR, RemoteProtocolError
from isthmus.core.jsonrpc import envelope
from isthmus.core.jsonrpc.bounds import ELEMENTS_MAX, LONE_SURROGATES_MAX, MEMBERS_MAX, replace_lone_surrogates
from isthmus.core.jsonrpc.splice import compact_members, elements, members

PARTS = (b"\\\\", b"\\ud83d", b"\\uDE00", b"\\u00e9", b'\\"', b"ud83d", b"a", "ü".encode())


def _object(count: int, colon: bytes) -> bytes:
    return b"{" + b",".join(b'"key %d"%b1' % (number, colon) for number in range(count)) + b"}"


@pytest.mark.parametrize("colon", [b":", b" : "], ids=["compact", "spaced"])
def test_an_object_of_too_many_members_is_refused(colon: bytes) -> None:
    assert len(members(_object(MEMBERS_MAX, colon))) == MEMBERS_MAX
    data = _object(MEMBERS_MAX + 1, colon)
    assert compact_members(data) is None
    with pytest.raises(RemoteProtocolError, match=f"more than {MEMBERS_MAX} members"):
        members(data)


def test_members_below_the_level_that_is_read_do_not_count() -> None:
    inner = _object(MEMBERS_MAX + 1, b":")
    assert list(members(b'{"a":%b,"b":[%b]}' % (inner, inner))) == ["a", "b"]


def test_too_many_members_behind_a_lone_surrogate_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match=f"more than {MEMBERS_MAX} members"):
        members(b'{"\\ud800":0,' + _object(MEMBERS_MAX, b":")[1:])


def test_an_array_of_too_many_elements_is_refused() -> None:
    assert len(elements(b"[" + b"[1000],".join([b""] * ELEMENTS_MAX) + b"{}]")) == ELEMENTS_MAX
    with pytest.raises(RemoteProtocolError, match=f"more than {ELEMENTS_MAX} elements"):
        elements(b"[" + b"[1000]," * ELEMENTS_MAX + b"{}]")
    with pytest.raises(RemoteProtocolError, match="not JSON"):
        elements(b"[" + b"[1000]," * ELEMENTS_MAX)
    assert len(elements(b'["' + b"[1000]," * ELEMENTS_MAX + b'"]')) == 1


@given(parts=st.lists(st.sampled_from(PARTS), max_size=12))
def test_lone_surrogates_and_nothing_else_are_replaced(parts: list[bytes]) -> None:
    """Python's reader keeps lone surrogates, so it shows what each text means before and after."""
    text = b'"' + b"".join(parts) + b'"'
    replaced = replace_lone_surrogates(text)
    assert len(replaced) == len(text)
    meant = json.loads(text)
    assert json.loads(replaced) == "".join("\ufffd" if "\ud800" <= one <= "\udfff" else one for one in meant)


def test_too_many_lone_surrogates_are_refused() -> None:
    lone, replaced = b"\\ud800" * LONE_SURROGATES_MAX, b"\\ufffd" * LONE_SURROGATES_MAX
    assert replace_lone_surrogates(b'"%b"' % lone) == b'"%b"' % replaced
    with pytest.raises(RemoteProtocolError, match=f"more than {LONE_SURROGATES_MAX} lone surrogates") as caught:
        replace_lone_surrogates(b'"' + b"\\ud800" * (LONE_SURROGATES_MAX + 1) + b'"')
    assert caught.value.rpc_code == PARSE_ERROR


def test_lone_surrogates_are_replaced_in_large_messages_only() -> None:
    head = b'{"jsonrpc":"2.0","id":1,"method":"x","params":'
    assert envelope.decode(head + b'["\\ud800"]}').params == b'["\\ud800"]'
    filler = b"a" * envelope.LARGE_BYTES
    assert envelope.decode(head + b'["%b\\ud800"]}' % filler).params == b'["%b\\ufffd"]' % filler
