"""Tests of outlines: what is asked of a large object has the same answer as if it were small."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.bridge import input_requests, request_meta, tasks
from isthmus.core.jsonrpc import envelope
from isthmus.core.jsonrpc.outline import SHORT_BYTES, outline_of, outlined
from isthmus.core.jsonrpc.splice import Outlined, members

LONG = "x" * 10 * SHORT_BYTES
META_KEY = "io.modelcontextprotocol/protocolVersion"
NAMES = ("task", "_meta", "progressToken", "requestState", "resultType", META_KEY, "ä", 'a "b" \\')
VALUES = st.sampled_from(("task", "input_required", 7, None, "x" * SHORT_BYTES, ["progressToken"], {"task": {}}))


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Objects whose names may be spelled with escapes, beside a long value."""
    inner = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)
    outer = draw(st.dictionaries(st.sampled_from(NAMES), VALUES | inner, max_size=4))
    pad: dict[str, Any] = {"pad": LONG} if draw(st.booleans()) else {"_meta": {**draw(inner), "pad": LONG}}
    text = json.dumps({**outer, **pad}, ensure_ascii=draw(st.booleans()))
    for name in draw(st.sets(st.sampled_from(NAMES[:5]))):
        text = text.replace(f'"{name}"', f'"\\u{ord(name[0]):04x}{name[1:]}"')
    return text.encode()


@given(data=objects())
def test_questions_have_the_same_answers(data: bytes) -> None:
    large = outlined(data)
    assert isinstance(large, Outlined)
    assert large == data
    assert members(large) == members(data)
    for question in (envelope.progress_token, request_meta.strip, input_requests.is_input_required, tasks.is_task):
        assert _answer(question, large) == _answer(question, data)


def _answer(question: Callable[[bytes], object], data: bytes) -> object:
    try:
        return question(data)
    except RemoteProtocolError as error:
        return error.message


@given(data=objects())
def test_every_name_is_in_the_outline(data: bytes) -> None:
    shown = json.loads(outline_of(outlined(data)))
    meant = json.loads(data)
    assert shown.keys() == meant.keys()
    if isinstance(meant.get("_meta"), dict) and isinstance(shown["_meta"], dict):
        assert shown["_meta"].keys() == meant["_meta"].keys()


@pytest.mark.parametrize("data", [b"[1]", b'{"a":1,"a":2}', b'{"_meta":{"a":%b,"a":1}}' % (b"1" * 300)])
def test_what_cannot_be_read_stays_as_it_is(data: bytes) -> None:
    assert outlined(data) is data
    assert outline_of(data) is data


def test_the_objects_of_large_messages_are_outlined() -> None:
    large = b"x" * envelope.LARGE_BYTES
    frame = envelope.decode(envelope.encode_request(b"1", "x", b'{"a":"%b"}' % large))
    assert isinstance(frame.params, Outlined)
    frame = envelope.decode(b' {"jsonrpc":"2.0","id":1,"result":{"a":"\\ud800%b"}}' % large)
    assert isinstance(frame.result, Outlined)
    frame = envelope.decode(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{}}')
    assert type(frame.params) is bytes
