"""The id of an oversize message, found in its first bytes or not at all."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.wire.oversize import answer_for, refusal_of

SIZE, LIMIT = 70_000_000, 64_000_000
plain_ids = st.one_of(
    st.integers(-(10**18), 10**18),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters='"\\'), max_size=40),
)
spacings = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")])


def head_of(members: list[tuple[str, object]], spacing: tuple[str, str] = (",", ":"), size: int = 4096) -> bytes:
    comma, colon = spacing
    return ("{" + comma.join(f"{json.dumps(k)}{colon}{json.dumps(v)}" for k, v in members) + "}").encode()[:size]


@given(
    id=plain_ids,
    order=st.permutations(["jsonrpc", "id"]),
    payload=st.sampled_from(["result", "error"]),
    spacing=spacings,
)
def test_a_response_is_recognized_by_the_members_before_its_payload(
    id: int | str, order: list[str], payload: str, spacing: tuple[str, str]
) -> None:
    values: dict[str, object] = {"jsonrpc": "2.0", "id": id}
    head = head_of([(k, values[k]) for k in order] + [(payload, {"text": "x" * 5000})], spacing)
    answer = answer_for(head, SIZE, LIMIT)
    assert answer is not None
    decoded = json.loads(answer)
    assert decoded["id"] == id
    assert type(decoded["id"]) is type(id)
    assert decoded["jsonrpc"] == "2.0"
    assert decoded["error"]["code"] == -31007
    assert str(SIZE) in decoded["error"]["message"]
    assert str(LIMIT) in decoded["error"]["message"]
    assert answer_for(head, SIZE, LIMIT, is_request=True) is None


@pytest.mark.parametrize("order", list(itertools.permutations(["jsonrpc", "id", "method"])))
def test_a_request_is_refused_and_never_taken_for_a_response(order: tuple[str, ...]) -> None:
    values: dict[str, object] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    head = head_of([(k, values[k]) for k in order] + [("params", {"text": "x" * 5000})])
    assert answer_for(head, SIZE, LIMIT) is None
    answer = answer_for(head, SIZE, LIMIT, is_request=True)
    assert answer is not None
    assert json.loads(answer)["id"] == 7


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"x" * 4096,
        b'[{"jsonrpc":"2.0","id":1,"result":{}}]',
        b'{"result":{"content":[',  # the id comes last, out of sight
        b'{"jsonrpc":"2.0","result":{"id":1,"result":',
        b'{"jsonrpc":"2.0","id":null,"result":{',
        b'{"jsonrpc":"2.0","id":true,"result":{',
        b'{"jsonrpc":"2.0","id":1.0,"result":{',
        b'{"jsonrpc":"2.0","id":01,"result":{',
        b'{"jsonrpc":"2.0","id":"\\u0041","result":{',
        b'{"jsonrpc":"2.0","id":"\xff","result":{',
        b'{"jsonrpc":"2.0","id":1,"id":2,"result":{',
        b'{"jsonrpc":"1.0","id":1,"result":{',
        b'{"id":1,"result":{',
        b'{"jsonrpc":"2.0","id":1',
        b'{"jsonrpc":"2.0","id":1,"resu',
        b'{"jsonrpc":"2.0","id":1,"x":{"result":',
        b'x{"jsonrpc":"2.0","id":1,"result":{',
    ],
)
def test_a_head_that_does_not_match_exactly_has_no_id(head: bytes) -> None:
    assert answer_for(head, SIZE, LIMIT) is None
    assert answer_for(head, SIZE, LIMIT, is_request=True) is None


def test_a_byte_order_mark_is_no_part_of_a_message() -> None:
    assert answer_for(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{', SIZE, LIMIT) is not None


def test_a_request_is_no_response() -> None:
    assert answer_for(b'{"jsonrpc":"2.0","id":1,"method":"x","result":{', SIZE, LIMIT) is None


@given(head=st.binary(max_size=200), is_request=st.booleans())
@example(head=b'{"jsonrpc":"2.0","id":"' + b"a" * 5000, is_request=False)
def test_any_bytes_give_an_error_message_or_none(head: bytes, is_request: bool) -> None:
    answer = answer_for(head, SIZE, LIMIT, is_request=is_request)
    assert answer is None or set(json.loads(answer)) == {"jsonrpc", "id", "error"}


@pytest.mark.parametrize("behind", [["jsonrpc", "id"], ["id", "jsonrpc"]])
@pytest.mark.parametrize("has_version_first", [False, True])
@given(id=plain_ids, first=st.sampled_from(["result", "error", "method", "params"]), is_request=st.booleans())
def test_a_message_with_its_id_last_is_recognized_by_its_end(
    id: int | str, first: str, is_request: bool, behind: list[str], has_version_first: bool
) -> None:
    """Peers that write the payload first put the id behind it, with `jsonrpc` there or at the start; a similar text
    inside a payload is no id."""
    payload: object = "tools/call" if first == "method" else {"text": "x" * 5000, "jsonrpc": "2.0", "id": 4}
    members: dict[str, object] = {"jsonrpc": "2.0"} if has_version_first else {}
    members |= {first: payload}
    members |= {"params": "x" * 5000} if first == "method" else {}
    members |= {key: {"jsonrpc": "2.0", "id": id}[key] for key in behind if key not in members}
    text = json.dumps(members, separators=(",", ":")).encode()
    answer = answer_for(text[:4096], SIZE, LIMIT, is_request=is_request, tail=text[-320:])
    if is_request == (first in ("method", "params")):
        assert answer is not None
        assert json.loads(answer)["id"] == id
    else:
        assert answer is None
    assert answer_for(text[:4096], SIZE, LIMIT, is_request=is_request, tail=text[-320:-1]) is None
    assert answer_for(text[:4096], SIZE, LIMIT, is_request=is_request, tail=text[-320:-1] + b"}}") is None


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ('"result":{', '},"id":1}'),  # no version
        ('"jsonrpc":"2.0","result":{', '},"jsonrpc":"2.0","id":1}'),  # one too many
        ('"result":{', '},"jsonrpc":"2.0","id":1,"jsonrpc":"2.0"}'),
        ('"jsonrpc":"1.0","result":{', '},"id":1}'),
        ('"jsonrpc":"2.0","id":2,"result":{', '},"id":1}'),  # an id before it, which is then the one that counts
        ('"jsonrpc":"2.0","result":{', '"},"id":1'),
        ('"jsonrpc":"2.0","result":{', '}},"x":{"id":1}'),
        ('"jsonrpc":"2.0","result":{', '}},"x\\",\\"id":1}'),
        ('"jsonrpc":"2.0","x":{', '},"id":1}'),
    ],
)
def test_an_end_that_does_not_match_exactly_has_no_id(first: str, last: str) -> None:
    answer = answer_for(b"{" + first.encode(), SIZE, LIMIT, tail=last.encode())
    assert answer is None or json.loads(answer)["id"] == 2


@pytest.mark.parametrize(
    ("head", "is_response"),
    [
        (b'{"jsonrpc":"2.0","result":{', True),
        (b'{"error":{', True),
        (b'{"id":null,"result":{', False),
        (b'{"jsonrpc":"2.0","method":"x","params":{', False),
        (b'{"jsonrpc":"2.0","method":"x","result":{', False),
        (b'{"params":{', False),
        (b'[{"jsonrpc":"2.0","result":{', False),
        (b"", False),
    ],
)
def test_the_only_possible_response_needs_no_id(head: bytes, is_response: bool) -> None:
    """A head that may be another kind of message is not taken for it."""
    answer = answer_for(head, SIZE, LIMIT, is_addressed=True)
    assert (answer is not None) == is_response
    if answer is not None:
        assert json.loads(answer)["id"] is None
    known = answer_for(b'{"jsonrpc":"2.0","id":7,"result":{', SIZE, LIMIT, is_addressed=True)
    assert known is not None and json.loads(known)["id"] == 7


def test_the_error_names_the_sizes() -> None:
    """The error has the id, the size as far as it is known, and the limit."""
    found = {
        refusal_of(b'"a"', size_bytes, 10, is_request=is_request): (size_bytes, is_request)
        for size_bytes in (None, 11)
        for is_request in (False, True)
    }
    error = b'{"jsonrpc":"2.0","id":"a","error":{"code":%d,"message":"%b"}}'
    assert found == {
        error % (OVERLOADED, b"the server's answer is over the limit of 10 bytes"): (None, False),
        error % (OVERLOADED, b"the request is over the limit of 10 bytes"): (None, True),
        error % (OVERLOADED, b"the server's answer has 11 bytes, over the limit of 10 bytes"): (11, False),
        error % (OVERLOADED, b"the request has 11 bytes, over the limit of 10 bytes"): (11, True),
    }
