"""The JSON-RPC envelope: messages are read once and refused in one way, and their contents stay as they came."""

from __future__ import annotations

import itertools
import json

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError
from isthmus.core.jsonrpc import envelope as jsonrpc
from isthmus.core.jsonrpc import splice
from isthmus.core.jsonrpc.envelope import Frame

STRING_IDS = [b'""', b'"a"', b'"\\u0061"', b'"a\\"b\\\\"', b'"\\ud83d\\ude00"', '"😀"'.encode(), b'"\\ud800"', b'"1"']
STRING_IDS += [b'"null"', b'"' + b"x" * 5000 + b'"']
INTEGER_IDS = [b"0", b"-0", b"1", b"-7", b"1.0", b"-12.000", b"9007199254740993", b"9" * 5000, b"-" + b"9" * 5000]
IDS = [*STRING_IDS, *INTEGER_IDS, b"9" * 5000 + b".0"]
NO_IDS = [b"true", b"false", b"{}", b"[]", b"[1]", b"1.5", b"1e3", b"1E0", b"0.10", b"1e400"]

PAYLOADS = [b"{}", b"[]", b'{"a":1,"a":2}', b'[1.0, 1e400 ,"\\ud800"]', b'{ "n" : ' + b"9" * 500 + b"}"]
ANY = [*PAYLOADS, b"null", b"0", b'"text"', b"true"]

ids = (
    st.sampled_from(IDS)
    | st.integers().map(lambda n: b"%d" % n)
    | st.text(max_size=4).map(lambda t: json.dumps(t).encode())
)
methods = st.sampled_from(["tools/call", "notifications/x", "", 'a"b\\', "é😀"]) | st.text(max_size=5)
payloads = st.sampled_from(PAYLOADS) | st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3)).map(
    lambda value: json.dumps(value).encode()
)


def refused(message: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        jsonrpc.decode(message)
    return caught.value


def envelope(*members: tuple[str, bytes], space: bytes = b"") -> bytes:
    parts = [json.dumps(key).encode() + space + b":" + space + value for key, value in members]
    return space + b"{" + space + (space + b"," + space).join(parts) + space + b"}" + space


# --- Reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw, number",
    [
        (b"7", 7),
        (b"7.0", 7),
        (b'"7"', 7),
        (b'"\\u0037"', 7),
        (b"-7", -7),
        (b"7.5", None),
        (b'"seven"', None),
        (b'""', None),
        ('"٧"'.encode(), None),
        (b'"' + b"7" * 5000 + b'"', None),
        (b"7" * 5000, None),
        (b"null", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_our_own_ids_are_recognized(raw: bytes, number: int | None) -> None:
    assert jsonrpc.number_of(raw) == number


@pytest.mark.parametrize("space", [b"", b" \t\r\n"])
def test_every_kind_in_every_order(space: bytes) -> None:
    """The members decide whether a message is a request, a notification, a result or an error, in any order."""
    version, params = ("jsonrpc", b'"2.0"' if space else b'"2\\u002e0"'), b'{"a": [1]}'
    kinds: list[tuple[list[tuple[str, bytes]], Frame]] = [
        ([("id", b"1"), ("method", b'"m"'), ("params", params)], Frame(b"1", "m", params)),
        ([("id", b"1"), ("method", b'"m"')], Frame(b"1", "m")),
        ([("method", b'"m"'), ("params", params)], Frame(None, "m", params)),
        ([("method", b'"m"')], Frame(None, "m")),
        ([("id", b"1"), ("result", params)], Frame(b"1", result=params)),
        ([("id", b"1"), ("error", params)], Frame(b"1", error=params)),
        ([("id", b"null"), ("error", params)], Frame(None, error=params)),
        ([("error", params)], Frame(None, error=params)),
    ]
    for members, frame in kinds:
        for order in itertools.permutations([version, ("other", b'{"id":2}'), *members]):
            read = jsonrpc.decode(envelope(*order, space=space))
            assert read == frame
            assert read.is_request == (frame.method is not None and frame.id_raw is not None)
            assert read.is_notification == (frame.method is not None and frame.id_raw is None)


@pytest.mark.parametrize("id_raw", IDS, ids=range(len(IDS)))
def test_an_id_comes_back_byte_for_byte(id_raw: bytes) -> None:
    """Ids of any size and spelling are kept, on every kind of message that has one."""
    assert jsonrpc.decode(jsonrpc.encode_request(id_raw, "m", None)).id_raw == id_raw
    assert jsonrpc.decode(jsonrpc.encode_result(id_raw, b"{}")).id_raw == id_raw
    assert jsonrpc.decode(jsonrpc.encode_error(id_raw, -1, "no")).id_raw == id_raw


def test_ids_are_equal_by_value() -> None:
    """The spelling makes no difference, the type does; an id that no value can represent equals itself only."""
    for one, two in itertools.product(IDS, repeat=2):
        same = id_value(one) == id_value(two)
        assert (jsonrpc.id_key(one) == jsonrpc.id_key(two)) == same, (one[:40], two[:40])


def id_value(id_raw: bytes) -> object:
    if id_raw.startswith(b'"'):
        return json.loads(id_raw)
    digits = id_raw.split(b".")[0]
    return ("number", b"0" if digits == b"-0" else digits)


@given(one=ids, two=ids)
def test_any_two_ids_are_equal_by_value(one: bytes, two: bytes) -> None:
    assert (jsonrpc.id_key(one) == jsonrpc.id_key(two)) == (id_value(one) == id_value(two))


@pytest.mark.parametrize("raw", [*NO_IDS, b"null"])
def test_a_value_that_is_no_id_has_no_key(raw: bytes) -> None:
    assert jsonrpc.id_key(raw) is None


# --- Refusals -------------------------------------------------------------------------------------------------------

VERSION = b'"jsonrpc":"2.0"'


@pytest.mark.parametrize("id_raw", NO_IDS)
def test_an_id_of_another_kind_is_refused(id_raw: bytes) -> None:
    """Fractions and structures are no ids, and cannot be answered."""
    for rest in (b'"method":"m"', b'"result":{}', b'"error":{}'):
        error = refused(b"{" + VERSION + b',"id":' + id_raw + b"," + rest + b"}")
        assert (error.rpc_code, error.id_raw) == (INVALID_REQUEST, None)


@each_row(
    ("message", "rpc_code", "id_raw"),
    [
        (b"", PARSE_ERROR, None),
        (b"{", PARSE_ERROR, None),
        (b"\xef\xbb\xbf{" + VERSION + b',"method":"m"}', PARSE_ERROR, None),
        (b"{" + VERSION + b',"id":1,"method":"\xff"}', PARSE_ERROR, b"1"),
        (b"{" + VERSION + b',"id":1,"params":"\xff"}', PARSE_ERROR, b"1"),
        (b"{" + VERSION + b',"id":01,"method":"m"}', PARSE_ERROR, None),
        (b"[]", INVALID_REQUEST, None),
        (b"1", INVALID_REQUEST, None),
        (b'"text"', INVALID_REQUEST, None),
        (b"{}", INVALID_REQUEST, None),
        (b'{"id":1,"method":"m"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":"1.0","id":"x","method":"m"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":2.0,"id":1,"method":"m"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":null,"id":1.0,"method":"m"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}', INVALID_REQUEST, None),
        (b"{" + VERSION + b',"id":1,"\\u0069d":2,"method":"m"}', INVALID_REQUEST, None),
        (b"{" + VERSION + b',"id":1,"method":"m","method":"n"}', INVALID_REQUEST, None),
        (b"{" + VERSION + b',"id":null,"method":"m"}', INVALID_REQUEST, None),
        (b"{" + VERSION + b',"id":1,"method":7}', INVALID_REQUEST, b"1"),
        (b"{" + VERSION + b',"id":1,"method":null}', INVALID_REQUEST, b"1"),
        (b"{" + VERSION + b',"id":1,"method":"\\ud800"}', INVALID_REQUEST, b"1"),
        (b"{" + VERSION + b',"id":1,"method":"m","params":"x"}', INVALID_REQUEST, b"1"),
        (b"{" + VERSION + b',"method":"m","params":1}', INVALID_REQUEST, None),
        (b"{" + VERSION + b',"id":1}', INVALID_REQUEST, b"1"),
        (b"{" + VERSION + b"}", INVALID_REQUEST, None),
        (b"{" + VERSION + b',"id":1,"result":{},"error":{}}', INVALID_REQUEST, b"1"),
        (b"{" + VERSION + b',"result":{}}', INVALID_REQUEST, None),
        (b"{" + VERSION + b',"id":null,"result":{}}', INVALID_REQUEST, None),
    ],
)
def test_envelope_errors(message: bytes, rpc_code: int, id_raw: bytes | None) -> None:
    """Each error names the message's id where that is known, and its reply is a readable message."""
    error = refused(message)
    assert (error.rpc_code, error.id_raw, error.http_status) == (rpc_code, id_raw, 400)
    reply = jsonrpc.decode(jsonrpc.parse_failure(error))
    assert reply.id_raw == (None if error.shape == "reply" else id_raw), "an answer is not answered under its id"
    assert json.loads(reply.error or b"") == {"code": rpc_code, "message": error.message}


def test_errors_quote_little() -> None:
    """An error holds at most a line of the peer's message, however much was sent."""
    huge = b"[" + b"1," * 100_000 + b"1]"
    for members in (
        b'"id":' + huge,
        b'"id":1,"method":' + huge,
        b'"id":1,"method":"m","params":"' + b"x" * 10**5 + b'"',
    ):
        assert len(refused(b"{" + VERSION + b"," + members + b"}").message) < 200
    assert len(refused(b'{"jsonrpc":' + huge + b"}").message) < 200


@given(data=st.binary(max_size=30) | st.text(alphabet='{}[]":,\\u019idmethod ', max_size=30).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Any bytes give a frame or a refusal, and a refusal can be answered."""
    try:
        jsonrpc.decode(data)
    except RemoteProtocolError as error:
        jsonrpc.decode(jsonrpc.parse_failure(error))


# --- Round trips ----------------------------------------------------------------------------------------------------


@given(id_raw=ids, method=methods, params=st.none() | payloads)
def test_an_encoded_request_is_decoded(id_raw: bytes, method: str, params: bytes | None) -> None:
    request = jsonrpc.encode_request(id_raw, method, params)
    assert jsonrpc.decode(request) == Frame(id_raw, method, params)
    notification = jsonrpc.encode_notification(method, params)
    assert jsonrpc.decode(notification) == Frame(None, method, params)


@given(id_raw=ids, payload=st.sampled_from(ANY) | payloads)
def test_an_encoded_response_is_decoded(id_raw: bytes, payload: bytes) -> None:
    assert jsonrpc.decode(jsonrpc.encode_result(id_raw, payload)) == Frame(id_raw, result=payload)
    assert jsonrpc.decode(jsonrpc.encode_error_raw(id_raw, payload)) == Frame(id_raw, error=payload)
    assert jsonrpc.decode(jsonrpc.encode_error_raw(None, payload)) == Frame(None, error=payload)


@given(
    code=st.integers(-(2**31), 2**31), text=st.text(max_size=9), more=st.none() | st.dictionaries(st.text(), st.text())
)
def test_an_encoded_error_holds_its_members(code: int, text: str, more: dict[str, str] | None) -> None:
    frame = jsonrpc.decode(jsonrpc.encode_error(b"1", code, text, more))
    assert frame.error is not None
    expected: dict[str, object] = {"code": code, "message": text}
    assert json.loads(frame.error) == (expected if more is None else {**expected, "data": more})
    assert jsonrpc.usable_error(frame.error) == frame.error


# --- Errors of servers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        b'{"code":-32000,"message":"no"}',
        b'{ "message":"\\ud800", "code":0,"data":{"a":1,"a":2} }',
        b'{"code":-0,"message":""}',
    ],
)
def test_a_readable_error_is_not_changed(error: bytes) -> None:
    assert jsonrpc.usable_error(error) == error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (b"null", ""),
        (b'"boom"', ""),
        (b"[1]", ""),
        (b"{}", ""),
        (b'{"message":"boom"}', "boom"),
        (b'{"code":1.5,"message":"boom"}', "boom"),
        (b'{"code":"E1","message":"boom"}', "boom"),
        (b'{"code":' + b"9" * 400 + b',"message":"boom"}', "boom"),
        (b'{"code":1,"message":null}', ""),
        (b'{"code":1,"message":{"text":"boom"}}', ""),
        (b'{"code":1,"code":2,"message":"boom"}', ""),
    ],
)
def test_an_unreadable_error_is_wrapped_and_not_lost(error: bytes, message: str) -> None:
    """An error that clients could not read becomes one they can, with the original inside, byte for byte."""
    usable = jsonrpc.usable_error(error)
    assert jsonrpc.usable_error(usable) == usable
    assert b'"dev.isthmus/original":' + error + b"}" in usable
    read = json.loads(usable)
    assert (read["code"], read["message"]) == (INTERNAL_ERROR, message)


@pytest.mark.parametrize("error", [b'{"code":1,"message":"caf\xe9"}', b'{"code":1,"caf\xe9":2}', b'"caf\xe9"'])
def test_an_error_that_is_not_utf8_is_made_readable(error: bytes) -> None:
    """An error page in another encoding does not reach the client as undecodable text."""
    usable = jsonrpc.usable_error(error)
    assert "caf\ufffd" in usable.decode()
    assert jsonrpc.decode(jsonrpc.encode_error_raw(b"1", usable)).error == usable


# --- Progress tokens ------------------------------------------------------------------------------------------------


@each_row("name", [b'"progressToken"', b'"progress\\u0054oken"'])
@each_row("token", IDS)
def test_a_progress_token_is_found_and_replaced_alone(token: bytes, name: bytes) -> None:
    """The token is found however its key is spelled, and all bytes around it stay."""
    before = b'{ "a" : {' + name + b':0,"x":1.0}, "_meta" : { ' + name + b" : "
    after = b' ,"k":[1e400]},"z":"\\ud800"}'
    params = before + token + after
    assert jsonrpc.progress_token(params) == token
    assert jsonrpc.replace_progress_token(params, b"42") == before + b"42" + after
    assert jsonrpc.progress_token(jsonrpc.replace_progress_token(params, b"42")) == b"42"


@pytest.mark.parametrize(
    "params",
    [
        None,
        b"{}",
        b'["progressToken"]',
        b'{"progressToken":1}',
        b'{"arguments":{"_meta":{"progressToken":1}}}',
        b'{"_meta":"progressToken"}',
        b'{"_meta":{"other":"progressToken"}}',
        b'{"_meta":{"other":{"progressToken":1}}}',
        b'{"_meta":{"progressToken":null}}',
    ],
)
def test_no_progress_token(params: bytes | None) -> None:
    assert jsonrpc.progress_token(params) is None


@pytest.mark.parametrize("raw", [raw for raw in NO_IDS if raw != b"null"])
def test_a_malformed_progress_token_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        jsonrpc.progress_token(b'{"_meta":{"progressToken":' + raw + b"}}")
    assert caught.value.rpc_code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        (b"{" + VERSION + b',"id":1.5,"method":"m"}', "call"),
        (b"{" + VERSION + b',"method":"m","params":7}', "call"),
        (b"{" + VERSION + b',"method":"m","params":"\xff"}', "call"),
        (b'{"id":1,"method":"m","result":{}}', ""),
        (b'{"id":1,"result":{}}', ""),
        (b"{" + VERSION + b',"id":1,"result":{},"error":{}}', "reply"),
        (b"{" + VERSION + b',"id":1,"result":"\xff"}', "reply"),
        (b"{" + VERSION + b',"id":1}', ""),
        (b"{" + VERSION + b',"id":1,"x":"\xff"}', ""),
        (b"{", ""),
        (b"\xff", ""),
    ],
)
def test_the_shape_of_a_broken_message_is_recognized(message: bytes, shape: str) -> None:
    assert refused(message).shape == shape


def test_null_counts_as_absence() -> None:
    """Some peers write every member that their types have."""
    call = jsonrpc.decode(b"{" + VERSION + b',"id":1,"method":"m","params":null}')
    assert (call.method, call.params) == ("m", None)
    reply = jsonrpc.decode(b"{" + VERSION + b',"id":1,"result":{"a":1},"error":null}')
    assert (reply.result, reply.error) == (b'{"a":1}', None)
    reply = jsonrpc.decode(b"{" + VERSION + b',"id":1,"result":null,"error":{"code":1}}')
    assert (reply.result, reply.error) == (None, b'{"code":1}')
    assert jsonrpc.decode(b"{" + VERSION + b',"id":1,"result":null}').result == b"null"


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"[":', b"}]")])
def test_a_decoded_message_can_be_read_again_on_a_deeper_stack(opening: bytes, closing: bytes) -> None:
    """Nesting of any depth is refused at once, or can be read again later."""

    def read_again(message: bytes, frames: int) -> None:
        if frames:
            read_again(message, frames - 1)
        else:
            splice.members(message)

    refusals: list[tuple[int, str]] = []
    for levels in [10, 200, *range(300, 1000, 7), 100_000]:
        message = b"{" + VERSION + b',"id":1,"result":%b1%b}' % (opening * levels, closing * levels)
        try:
            jsonrpc.decode(message)
        except RemoteProtocolError as error:
            refusals.append((levels, error.message))
        else:
            read_again(message, 50)
            half = b'"\\ud800"'  # which the decoder stops at
            jsonrpc.decode(broken := message.replace(b'"2.0"', b'"2.0","half":' + half))
            read_again(broken, 50)
    assert refusals
    for levels, message_text in refusals:
        assert levels > 200
        assert "nested too deeply" in message_text


@pytest.mark.parametrize(
    "params",
    [b'{"_meta":{"progressToken":1},"_meta":{}}', b'{"_meta":{"progressToken":1,"progress\\u0054oken":2}}'],
)
def test_an_ambiguous_progress_token_is_refused(params: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="twice"):
        jsonrpc.progress_token(params)


# --- Members and text -----------------------------------------------------------------------------------------------


def test_one_member_of_an_object() -> None:
    assert jsonrpc.member_of(b'{"a": 1.0 ,"b":{"a":2}}', "a") == b"1.0"
    for params in (None, b"[]", b'{"b":1}', b'"a"'):
        assert jsonrpc.member_of(params, "a") is None


@given(text=st.text())
def test_text_is_read_escaped_or_not(text: str) -> None:
    assert jsonrpc.text_of(json.dumps(text).encode()) == text
    assert jsonrpc.text_of(json.dumps(text, ensure_ascii=False).encode()) == text


@pytest.mark.parametrize("raw", [None, b"1", b"null", b"{}", b'"\\ud800"'])
def test_a_value_that_is_no_text(raw: bytes | None) -> None:
    assert jsonrpc.text_of(raw) is None


# --- Batches --------------------------------------------------------------------------------------------------------


@given(messages=st.lists(st.sampled_from([jsonrpc.encode_result(i, p) for i in IDS[:6] for p in ANY] + [b"1", b"{}"])))
@pytest.mark.parametrize("space", [b"", b"\r\n\t "])
def test_a_batch_is_split_into_its_messages(messages: list[bytes], space: bytes) -> None:
    """Each message keeps its bytes; a single message is no batch."""
    batch = space + b"[" + space + (space + b"," + space).join(messages) + space + b"]" + space
    assert jsonrpc.is_batch(batch)
    assert jsonrpc.split_batch(batch) == messages
    assert not any(jsonrpc.is_batch(space + message) for message in messages)


@pytest.mark.parametrize("batch", [b"[", b"[1,]", b"[1]]", b"{}", b'["\xff"]', b"[" * 5000])
def test_a_malformed_batch_is_refused(batch: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        jsonrpc.split_batch(batch)


_MEMBERS = st.sampled_from(
    [b'"jsonrpc":"2.0"', b'"jsonrpc":"1.0"', b'"jsonrpc":"2\\u002e0"', b'"x":1', b'"\\u0069d":7']
    + [b'"id":' + raw for raw in (b"1", b"0", b'"a"', b'"\\u0061"', b'"\xc3\xa9"', b"null", b"1.0", b"-1", b"true")]
    + [b'"method":' + raw for raw in (b'"ping"', b'""', b'"p\\u0069ng"', b'"\xc3\xa9"', b"null", b"1")]
    + [b'"params":' + raw for raw in (b"{}", b"[1]", b"null", b"7", b'{"a":"\\ud800"}')]
    + [b'"result":' + raw for raw in (b"{}", b"null", b"0", b'"\xff"')]
    + [b'"error":' + raw for raw in (b"{}", b"null", b"0")]
)


@given(first=st.sampled_from([b'"jsonrpc":"2.0"', b'"id":1']), rest=st.lists(_MEMBERS, max_size=4))
@settings(max_examples=300)
def test_a_message_without_spaces_means_the_same_as_one_with_them(first: bytes, rest: list[bytes]) -> None:
    """The compact form is read in a shorter way. No member is missed, or read twice."""
    message = b"{" + b",".join([first, *rest]) + b"}"

    def outcome(text: bytes) -> object:
        try:
            return jsonrpc.decode(text)
        except RemoteProtocolError as error:
            return error.message.replace(f"offset {len(text)}", ""), error.rpc_code, error.id_raw, error.shape

    spaced = outcome(message + b" ")
    plain = outcome(message)
    assert plain == spaced or (isinstance(plain, tuple) and isinstance(spaced, tuple) and plain[1:] == spaced[1:])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (b'{"code":-32602,"message":"no"}', -32602),
        (b'{"message":"no","code": 0}', 0),
        (b'{"code":1e400}', None),
        (b'{"code":1.5}', None),
        (b'{"code":"1"}', None),
        (b'{"code":null}', None),
        (b'{"code":1,"code":2}', None),
        (b'{"message":"no"}', None),
        (b'{"code":1', None),
        (b"[1]", None),
        (b"5", None),
    ],
)
def test_the_code_of_an_error_is_a_whole_number_or_none(error: bytes, code: int | None) -> None:
    assert jsonrpc.error_code(error) == code


@pytest.mark.parametrize(
    ("error", "is_usable"),
    [
        (b'{"code":-1,"message":""}', True),
        (b'{"code":123456789012345,"message":"m","data":{}}', True),
        (b'{"code":1234567890123456,"message":"m"}', False),
        (b'{"code":1.0,"message":"m"}', False),
        (b'{"code":1,"message":5}', False),
        (b'{"code":1}', False),
        (b'{"message":"m"}', False),
        (b'{"code":1,"code":1,"message":"m"}', False),
        (b'"no"', False),
    ],
)
def test_a_wrapped_error_keeps_its_message(error: bytes, is_usable: bool) -> None:
    """The message of the original is kept, where it is text."""
    usable = jsonrpc.usable_error(error)
    if is_usable:
        assert usable == error
        return
    wrapped = json.loads(usable)
    message = "m" if b'"message":"m"' in error and error.count(b'"code"') < 2 else ""
    assert wrapped == {"code": -32603, "message": message, "data": {"dev.isthmus/original": json.loads(error)}}
