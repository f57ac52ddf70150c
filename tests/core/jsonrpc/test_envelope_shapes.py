"""The words of refusals of malformed messages, and the bounds of reading."""

from __future__ import annotations

import json
import sys

import pytest
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RemoteProtocolError
from isthmus.core.jsonrpc import envelope, splice
from isthmus.core.jsonrpc.envelope import Frame

KINDS = {
    b'"text"': "a string",
    b"[1]": "an array",
    b'{"a":1}': "an object",
    b"true": "true",
    b"false": "false",
    b"null": "null",
    b"7": "a number",
    b"-7.0": "a number",
    b"7.5": "a number that is no integer",
    b"7e3": "a number that is no integer",
}


def refused(message: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        envelope.decode(message)
    return caught.value


@pytest.mark.parametrize("raw", KINDS)
def test_a_value_of_another_kind_is_named(raw: bytes) -> None:
    """The refusal names the kind of the value and shows nothing of it, except for numbers, which help to find the
    fault."""
    kind = KINDS[raw]
    if not raw.startswith(b'"'):
        error = refused(b'{"jsonrpc":"2.0","id":1,"method":%b}' % raw) if raw != b"null" else None
        assert error is None or error.message == f"got a method that is {kind}, expected a string"
    if raw[:1] not in b"{[" and raw != b"null":
        error = refused(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % raw)
        assert error.message == f"got params that are {kind}, expected an object"
        assert (error.id_raw, error.shape, error.rpc_code) == (b"1", "call", INVALID_REQUEST)
    if envelope.id_key(raw) is None and raw != b"null":
        with pytest.raises(RemoteProtocolError, match=f"^got a progressToken that is {kind}, expected") as caught:
            envelope.progress_token(b'{"_meta":{"progressToken":%b}}' % raw)
        assert caught.value.rpc_code == INVALID_PARAMS
    seen = raw.decode() if raw[:1] in b"-7" else kind
    assert (
        refused(b'{"jsonrpc":%b,"id":1,"method":"m"}' % raw).message == f'got jsonrpc {seen}, expected "jsonrpc":"2.0"'
    )
    if envelope.id_key(raw) is None and raw != b"null":
        message = refused(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % raw).message
        assert message == f"got the id {seen}, expected a string or an integer"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'"2.1"', '"2.1"'),
        (b"1.0", "1.0"),
        (b"-1.5E+20", "-1.5E+20"),
        (b"1" * 20, "1" * 20),
        (b"1" * 21, "a number"),
        (b'"' + b"1" * 20 + b'"', '"' + "1" * 20 + '"'),
        (b'"' + b"1" * 21 + b'"', "a string"),
        (b'"1 0"', "a string"),
        (b'""', "a string"),
    ],
)
def test_a_version_is_shown_as_it_is(raw: bytes, message: str) -> None:
    """A version is shown if it is short and holds only digits and signs."""
    assert envelope.described(raw) == message


def test_a_missing_member_is_named() -> None:
    rest = b'"jsonrpc":"2.0","id":1'
    assert refused(b"{%b}" % rest).message == "got neither method, result nor error, expected exactly one"
    both = refused(b'{%b,"result":1,"error":{}}' % rest)
    assert both.message == "got both result and error, expected exactly one"
    assert refused(b'{"id":1,"method":"m"}').message == 'got no member jsonrpc, expected "jsonrpc":"2.0"'


# --- Batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [b"", b" ", b"\t", b"\r", b"\n", b" \t\r\n" * 9])
def test_a_batch_is_recognized_by_its_first_character_after_white_space(space: bytes) -> None:
    assert envelope.is_batch(space + b"[]")
    for other in (b"{}", b"", b'"["', b"\x0b[]", b"\xef\xbb\xbf[]"):
        assert not envelope.is_batch(space + other)


# --- Ids and numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [3999, 4000, 4001, 5000])
def test_numbers_of_up_to_four_thousand_digits_are_numbers(digits: int) -> None:
    """A longer number is an id, too: equal to itself and to nothing else, and none of ours."""
    bare = b"7" * digits
    number = int(bare.decode()) if digits <= 4000 else None
    for raw, value in (
        (bare, number),
        (bare + b".0", number),
        (b'"' + bare + b'"', number),
        (b"-" + b"7" * (digits - 1), -int("7" * (digits - 1)) if digits <= 4000 else None),
    ):
        assert envelope.number_of(raw) == value
        frame = envelope.decode(envelope.encode_request(raw, "m", None))
        assert frame == Frame(raw, "m")
        key = envelope.id_key(raw)
        assert key is not None
        assert key == envelope.id_key(raw)
    if number is not None:
        assert envelope.id_key(bare) == ("n", number)
    assert envelope.id_key(bare) == envelope.id_key(bare + b".00")
    assert envelope.id_key(bare) != envelope.id_key(b'"' + bare + b'"')
    assert sys.get_int_max_str_digits() >= 4000


@pytest.mark.parametrize("raw", [b'"1.0"', b'"-1"', b'"1 "', b'" 1"', b'"\xc2\xb2"', b'"+1"', b'"0x1"', b"true"])
def test_a_text_other_than_digits_is_no_id_of_ours(raw: bytes) -> None:
    """Our ids have digits only."""
    assert envelope.number_of(raw) is None


# --- Building -------------------------------------------------------------------------------------------------------


def test_every_kind_of_message_is_built_member_by_member() -> None:
    assert envelope.encode_request(b"1", "m", None) == b'{"jsonrpc":"2.0","id":1,"method":"m"}'
    assert envelope.encode_request(b"1", "m", b"{}") == b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}'
    assert envelope.encode_notification("m", None) == b'{"jsonrpc":"2.0","method":"m"}'
    assert envelope.encode_notification("m", b"[]") == b'{"jsonrpc":"2.0","method":"m","params":[]}'
    assert envelope.encode_result(b'"a"', b"7") == b'{"jsonrpc":"2.0","id":"a","result":7}'
    assert envelope.begin_result(b'"a"') + b"7}" == envelope.encode_result(b'"a"', b"7")
    assert envelope.encode_error_raw(None, b"{}") == b'{"jsonrpc":"2.0","id":null,"error":{}}'
    no_data = b'{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"m"}}'
    assert envelope.encode_error(b"0", 1, "m") == no_data
    assert envelope.encode_error(b"0", 1, "m", 0) == no_data.replace(b'"m"', b'"m","data":0')
    assert envelope.error_object(1, "m") == b'{"code":1,"message":"m"}'


@pytest.mark.parametrize(
    ("error", "usable"),
    [
        (b'{"code":-1,"message":"m"}', None),
        (b'{"code":1.0,"message":"m"}', b'"m"'),
        (b'{"code":"1","message":7}', b'""'),
        (b'{"code":1,"message":["m"]}', b'""'),
        (b'{"message":"m"}', b'"m"'),
        (b"[", b'""'),
    ],
)
def test_an_error_is_wrapped_in_one_that_can_be_read(error: bytes, usable: bytes | None) -> None:
    """The wrapper keeps the message, if that is text, and holds the whole original as its data."""
    if usable is None:
        assert envelope.usable_error(error) == error
    else:
        wrapped = b'{"code":%d,"message":%b,"data":{"dev.isthmus/original":%b}}' % (INTERNAL_ERROR, usable, error)
        assert envelope.usable_error(error) == wrapped


@pytest.mark.parametrize("shape", ["", "call", "reply"])
def test_a_message_that_could_not_be_read_is_answered_under_its_senders_id(shape: str) -> None:
    """A response is answered without an id; a fault without a code is an invalid request."""
    for code in (0, -32700):
        fault = RemoteProtocolError("no", rpc_code=code, id_raw=b"7", shape=shape)  # type: ignore[arg-type]
        assert json.loads(envelope.parse_failure(fault)) == {
            "jsonrpc": "2.0",
            "id": None if shape == "reply" else 7,
            "error": {"code": code or INVALID_REQUEST, "message": "no"},
        }


# --- Long and short messages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 200, 255, 256, 257, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 100_000])
def test_a_message_of_any_length_reads_the_same(size: int) -> None:
    """Sizes on both sides of the bound between two ways of reading give the same frame."""
    head = len(b'{"jsonrpc":"2.0","id":1,"result":""}')
    payload = b'"%b"' % (b"x" * max(0, size - head))
    assert envelope.decode(envelope.encode_result(b"1", payload)) == Frame(b"1", result=payload)
    assert envelope.decode(envelope.encode_error_raw(b"1", payload)) == Frame(b"1", error=payload)
    listed = b"[%b]" % payload
    assert envelope.decode(envelope.encode_request(b"1", "m", listed)) == Frame(b"1", "m", listed)
    assert envelope.decode(envelope.encode_notification("m", listed)) == Frame(None, "m", listed)
    deep = b"[" * 2000 + payload + b"]" * 2000
    assert "nested too deeply" in refused(envelope.encode_result(b"1", deep)).message


def read_again(message: bytes, frames: int) -> None:
    """Reads the message again with so many more frames on the stack."""
    if frames:
        read_again(message, frames - 1)
    else:
        splice.members(message)


@pytest.mark.parametrize("space", [b"", b" "])
@pytest.mark.parametrize("pad", [0, 64 * 1024])
def test_a_decoded_message_of_any_length_can_be_read_again(space: bytes, pad: int) -> None:
    """A message or a batch of any depth that was read can be read on a deeper stack."""
    outcomes = set()
    for levels in (200, *range(300, 1000, 23), 2000):
        result = b'["%b",%b1%b]' % (b"x" * pad, b"[" * levels, b"]" * levels)
        message = b'{"jsonrpc":"2.0",%b"id":1,"result":%b}' % (space, result)
        for read in (envelope.decode, lambda text: envelope.split_batch(b"[%b]" % text)):
            try:
                read(message)
            except RemoteProtocolError as error:
                outcomes.add(error.message.partition(",")[0])
            else:
                read_again(message, 50)
                outcomes.add("read")
    assert len(outcomes) == 2
    assert all(each == "read" or "nested too deeply" in each for each in outcomes)


# --- Absent members and ids -----------------------------------------------------------------------------------------


def test_a_member_that_is_null_beside_another_is_absent() -> None:
    """A null method on a response counts as absent, too."""
    head = b'"jsonrpc":"2.0","id":1,"method":null'
    assert envelope.decode(b'{%b,"result":{}}' % head) == Frame(b"1", result=b"{}")
    assert envelope.decode(b'{%b,"error":{}}' % head) == Frame(b"1", error=b"{}")
    assert envelope.decode(b'{%b,"result":null,"error":{}}' % head) == Frame(b"1", error=b"{}")
    assert envelope.decode(b'{%b,"result":{},"error":null}' % head) == Frame(b"1", result=b"{}")


@pytest.mark.parametrize(
    ("rest", "shape", "is_answerable"),
    [
        (b'"id":1,"method":"m","params":{"a":"\xff"}', "call", True),
        (b'"id":1,"method":"m","params":"\xff"', "call", True),
        (b'"method":"m","params":{"a":"\xff"}', "call", False),
        (b'"id":1,"result":{"a":"\xff"}', "reply", True),
        (b'"id":1,"error":{"a":"\xff"}', "reply", True),
        (b'"id":null,"method":"m"', "call", False),
        (b'"id":1,"method":7', "call", True),
        (b'"id":1,"method":"\\ud800"', "call", True),
        (b'"id":1,"method":"m","params":7', "call", True),
        (b'"id":1.5,"method":"m"', "call", False),
        (b'"id":null,"result":1', "reply", False),
        (b'"id":1.5,"error":{}', "reply", False),
        (b'"id":1', "", True),
    ],
)
def test_the_id_of_a_broken_message_is_found(rest: bytes, shape: str, is_answerable: bool) -> None:
    """A request can be refused under its id, and a response ends the request that it answers."""
    for space in (b"", b" "):
        error = refused(b'{"jsonrpc":"2.0",%b%b}' % (space, rest))
        assert (error.shape, error.id_raw) == (shape, b"1" if is_answerable else None)


def test_the_byte_order_mark_is_that_of_the_standard() -> None:
    """Source: RFC 3629, section 6."""
    assert "\ufeff".encode() == envelope.MARK
