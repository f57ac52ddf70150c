"""Reading a peer's result: arrays, members and texts are found where they are, and nothing is found elsewhere."""

from __future__ import annotations

import pytest
from isthmus.core.jsonrpc.append import readable_elements, readable_members, readable_text
from isthmus.core.jsonrpc.splice import Span


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"[]", []),
        (b'[1, {"a":2} ,"x"]', [b"1", b'{"a":2}', b'"x"']),
        (b"[1,", []),
        (b"[1]]", []),
        (b"[nul]", []),
        (b'{"a":1}', []),
        (b"5", []),
        (b"", []),
        (None, []),
    ],
)
def test_elements_are_those_of_an_array(data: bytes | None, found: list[bytes]) -> None:
    assert readable_elements(data) == found


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"{}", {}),
        (b'{"a":1,"b": [2]}', {"a": Span(5, 6), "b": Span(12, 15)}),
        (b'{"a":1,"a":2}', {}),
        (b'{"a":1', {}),
        (b'["a"]', {}),
        (b'"a"', {}),
        (b"", {}),
        (None, {}),
    ],
)
def test_members_are_those_of_an_object_with_each_once(data: bytes | None, found: dict[str, Span]) -> None:
    assert readable_members(data) == found


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'"a"', "a"),
        (b'""', ""),
        (b'"\\u00e9"', "é"),
        (b'"a\\ud800b"', "a\ufffdb"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"a', None),
        (b'"\\x"', None),
        (b"5", None),
        (b"null", None),
        (b"", None),
        (None, None),
    ],
)
def test_text_is_that_of_a_string(raw: bytes | None, text: str | None) -> None:
    assert readable_text(raw) == text
