"""Any JSON arrives: its spans are those of an independent reader, and an edit keeps the bytes of all other members.

The input is a key, a newline, and an object or array. Accepted outcomes: `RemoteProtocolError`, if the standard
library's json decodes no such value, or the top level has a key twice, or it is nested deeply; or the spans of the
values that json decodes. Inserting a member and removing it again gives the original bytes.
"""

from __future__ import annotations

import json
import re

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.jsonrpc.bounds import check_depth
from isthmus.core.jsonrpc.splice import (
    Span,
    elements,
    extend_array,
    insert_members,
    members,
    remove_member,
    remove_members,
    set_member,
)

DEPTH_SURE = 200
"""A number of brackets that can be decoded on any stack."""


class Pairs(list[tuple[str, object]]):
    """An object with all its members, duplicates included."""


class Number(str):
    """A number as it was written."""


def refuse(text: str) -> object:
    raise ValueError(text)


def parse(data: bytes) -> object:
    """Returns the decoded value.

    Raises:
        ValueError, RecursionError: it cannot be decoded.
    """
    return json.loads(
        data.decode(), object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=refuse
    )


def whole(key: str) -> str:
    """Returns the key with each half of a surrogate pair, which is no character, replaced."""
    return re.sub("[\ud800-\udfff]", "\ufffd", key)


def spans_of(data: bytes) -> dict[str, Span] | list[Span] | None:
    """Returns the spans of the members or elements; None if they are refused."""
    try:
        return elements(data) if data.lstrip(b" \t\r\n").startswith(b"[") else members(data)
    except RemoteProtocolError:
        return None


def test_one_input(data: bytes) -> None:
    name, _, text = data.partition(b"\n")
    key = name.decode(errors="replace")
    spans = spans_of(text)
    is_sure = text.count(b"[") + text.count(b"{") < DEPTH_SURE
    try:
        value = parse(text)
    except RecursionError:
        return  # either reader may give up first
    except ValueError:
        # Values are not decoded here: they may hold bytes that are not UTF-8, which the code that decodes them refuses.
        assert spans is None or not text.isascii()
        return
    if isinstance(value, Pairs):
        keys = [whole(one) for one, _ in value]
        if spans is None:
            assert len(set(keys)) < len(keys) or not is_sure
            return
        assert isinstance(spans, dict)
        assert list(spans) == keys
        assert [parse(text[span.start : span.stop]) for span in spans.values()] == [below for _, below in value]
        check_members(text, spans, key)
    elif isinstance(value, list):
        assert isinstance(spans, list) or not is_sure
        if isinstance(spans, list):
            assert [parse(text[span.start : span.stop]) for span in spans] == value
            for at_front in (False, True):
                longer = extend_array(text, [b"0", b"{}"], at_front=at_front)
                added: list[object] = [Number("0"), Pairs()]
                assert parse(longer) == (added + value if at_front else value + added)
    else:
        assert spans is None
    if is_sure:
        check_depth(text)


def check_members(text: bytes, spans: dict[str, Span], key: str) -> None:
    others = {name: text[span.start : span.stop] for name, span in spans.items() if name != key}
    after = set_member(text, key, b"[1]")
    assert raws(after) == {**others, key: b"[1]"}
    assert raws(remove_member(after, key)) == others
    assert raws(remove_members(after, {key})) == others
    if key not in spans:
        assert remove_member(text, key) == text
        for added in ({key: b"1"}, {key: b"1", key + "x" * 99: b"2"}):
            grown = insert_members(text, added)
            assert raws(grown) == {**others, **added}
            assert remove_members(grown, added) == text


def raws(text: bytes) -> dict[str, bytes]:
    return {name: text[span.start : span.stop] for name, span in members(text).items()}
