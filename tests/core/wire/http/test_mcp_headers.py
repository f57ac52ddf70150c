"""Mirrored headers: a server accepts what a client mirrors, and nothing that disagrees with the body."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from isthmus.core.base.errors import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, RemoteProtocolError
from isthmus.core.base.events import Headers
from isthmus.core.wire.http.mcp_headers import check, decode_value, encode_value, headers_for, read_mirrored
from isthmus.core.wire.http.param_headers import Mirror

REVISION = "2026-07-28"
MIRRORS = (
    Mirror("Region", ("region",), "string"),
    Mirror("Count", ("count",), "integer"),
    Mirror("Dry", ("options", "dry"), "boolean"),
)
TOOL = b'{"name":"deploy","arguments":{"region":"eu","count":3,"options":{"dry":true}}}'


def accepts(
    params: bytes | None,
    headers: Headers,
    mirrors: tuple[Mirror, ...] | None = MIRRORS,
    method: str | None = "tools/call",
    header_revision: str | None = REVISION,
) -> bool:
    try:
        check(method, params, REVISION, headers, mirrors, header_revision=header_revision)
    except RemoteProtocolError as error:
        refusal = error
    else:
        return True
    assert (refusal.rpc_code, refusal.http_status) == (HEADER_MISMATCH, 400)
    return False


# --- Values ---------------------------------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.text(),
    st.text(st.characters(max_codepoint=0x7F)),
    st.text(max_size=5).map(lambda text: f"=?base64?{text}?="),
    st.sampled_from(["=?base64?=", "=?base64??=", "=?BASE64?YQ==?=", "a ", "\ta", "a\tb", "", " ", "x\r\ny: z", "\0"]),
)


@given(text=TEXTS)
def test_an_encoded_value_is_decoded(text: str) -> None:
    """decode(header) == body value for all texts, sentinel-like ones included, and the header is visible ASCII."""
    value = encode_value(text)
    assert value
    assert all(" " <= c <= "~" for c in value)
    assert value == value.strip(" ")
    assert decode_value(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("us west 1", "us west 1"),
        ("=?BASE64?x?=", "=?BASE64?x?="),
    ],
    ids=["plain", "unicode", "padded", "lines", "sentinel", "inner-spaces", "other-case"],
)
def test_values_are_those_of_the_specification(text: str, value: str) -> None:
    """The table, and further values by its rules. Source: 2026-07-28 basic/transports/streamable-http, "Value
    Encoding"."""
    assert encode_value(text) == value
    assert decode_value(value) == text


@pytest.mark.parametrize(
    "value",
    [
        "=?base64?YQ?=",
        "=?base64?YQ=?=",
        "=?base64?YR==?=",
        "=?base64?Y Q==?=",
        "=?base64?YQ==\t?=",
        "=?base64?-_-_?=",
        "=?base64?/w==?=",
        "=?base64?7aCA?=",
        "=?base64?=",
        "a\nb",
        "a\x7f",
        "é",
    ],
    ids=lambda value: value.encode("unicode_escape").decode(),
)
def test_there_is_one_way_to_encode_a_text(value: str) -> None:
    """The sentinel must be canonical Base64 of UTF-8; other values hold no character that needs it."""
    with pytest.raises(RemoteProtocolError) as caught:
        decode_value(value)
    assert (caught.value.rpc_code, caught.value.http_status) == (HEADER_MISMATCH, 400)


@given(payload=st.binary(max_size=8), junk=st.sampled_from(["", "=", "A", " ", "\n"]))
def test_encoded_values_decode_as_an_independent_reader_does(payload: bytes, junk: str) -> None:
    text = base64.b64encode(payload).decode() + junk
    try:
        expected: str | None = payload.decode() if not junk else None
    except UnicodeDecodeError:
        expected = None
    if junk in ("A", "="):  # may happen to be Base64 of something else
        assume(len(text) % 4)
    try:
        assert decode_value(f"=?base64?{text}?=") == expected
    except RemoteProtocolError:
        assert expected is None


# --- Client and server ----------------------------------------------------------------------------------------------

NUMBERS = st.sampled_from(
    ["0", "-0", "42", "42.0", "4.2e1", "1e3", "-7", "0.5", "1e400", "9007199254740991", "9007199254740992", "1e-7"]
)
STRINGS = st.one_of(TEXTS.map(json.dumps), st.just('"\\ud800"'), st.just('"\\ud83d\\ude00"'))
RAW = st.one_of(STRINGS, NUMBERS, st.sampled_from(["true", "false", "null", "[1]", "{}", '{"dry":1,"dry":2}']))


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    """Draws params of `tools/call`, for tools that have mirrored arguments, and with values that no schema allows."""
    parts = [
        f'"region":{draw(RAW)}',
        f'"count":{draw(RAW)}',
        f'"options":{{"dry":{draw(RAW)}}}',
        f'"options":{draw(RAW)}',
    ]
    kept = draw(st.lists(st.sampled_from(parts), unique=True))
    return f'{{"name":{draw(STRINGS)},"arguments":{{{",".join(kept)}}},"_meta":{{}}}}'.encode()


def mirrored(params: bytes) -> Headers | None:
    try:
        return headers_for("tools/call", params, MIRRORS)
    except RemoteProtocolError as error:
        refusal = error
    assert refusal.rpc_code == INVALID_PARAMS
    return None


@given(params=calls())
def test_mirrored_headers_are_accepted(params: bytes) -> None:
    """A validating server accepts the mirrored headers for any arguments, or the call is refused here."""
    headers = mirrored(params)
    if headers is None:
        return
    assert accepts(params, headers)
    assert accepts(params, headers, None)
    sent = [(name.encode(), value.encode()) for name, value in headers]
    assert read_mirrored([(b"accept", b"*/*"), *sent, (b"mcp-session-id", b"x")]) == headers


@given(params=calls(), data=st.data())
def test_any_single_disagreement_is_refused(params: bytes, data: st.DataObject) -> None:
    """A header is left out, changed, doubled, or about an argument that is not in the body."""
    headers = mirrored(params)
    if headers is None:
        return
    at = data.draw(st.integers(0, len(headers) - 1))
    name, value = headers[at]
    assert not accepts(params, headers[:at] + headers[at + 1 :])
    assert not accepts(params, (*headers, (name, value)))
    other = data.draw(TEXTS)
    if other != decode_value(value):
        assert not accepts(params, (*headers[:at], (name, encode_value(other)), *headers[at + 1 :]))
    absent = {"mcp-param-region", "mcp-param-count", "mcp-param-dry"} - {name for name, _ in headers}
    for name in absent:
        assert not accepts(params, (*headers, (name, "x")))
    assert not accepts(params, headers, header_revision="2026-07-27")
    assert not accepts(params, headers, header_revision=None)
    assert not accepts(params, headers, method="tools/Call")


def test_the_headers_of_a_call() -> None:
    assert headers_for("tools/call", TOOL, MIRRORS) == (
        ("mcp-method", "tools/call"),
        ("mcp-name", "deploy"),
        ("mcp-param-region", "eu"),
        ("mcp-param-count", "3"),
        ("mcp-param-dry", "true"),
    )


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("prompts/get", b'{"name":"greet"}', "greet"),
        ("resources/read", b'{"uri":"file:///a b","name":"x"}', "file:///a b"),
        ("tasks/get", b'{"taskId":"t-1"}', "t-1"),
        ("tasks/update", b'{"taskId":"t-1"}', "t-1"),
        ("tasks/cancel", b'{"taskId":"t-1"}', "t-1"),
        ("tools/list", b'{"name":"x"}', None),
        ("server/discover", None, None),
        ("tools/call", b'{"name":7}', None),
        ("tools/call", b"[]", None),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" in value else "",
)
def test_the_name_header_of_a_request(method: str, params: bytes | None, name: str | None) -> None:
    """Mcp-Name is params.name, or uri, or taskId; other requests have none. Those about tasks may lack it."""
    headers = headers_for(method, params, MIRRORS)
    assert headers == (("mcp-method", method), *([] if name is None else [("mcp-name", name)]))
    assert accepts(params, headers, method=method)
    if name is not None:
        assert accepts(params, headers[:1], method=method) == method.startswith("tasks/")
        assert not accepts(params, (headers[0], ("mcp-name", "else")), method=method)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"42.0", "42"),
        (b"1e3", "1000"),
        (b"-0", "0"),
        (b"-7", "-7"),
        (b"9007199254740991", "9007199254740991"),
        (b"true", "true"),
        (b'"3"', "3"),
        (b"null", None),
        (b"[3]", None),
        (b"{}", None),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else None,
)
def test_the_header_of_an_argument(raw: bytes, value: str | None) -> None:
    """Integers are plain decimals, booleans are true and false; null and values without a text are left out."""
    headers = headers_for("tools/call", b'{"arguments":{"count":%b}}' % raw, MIRRORS)
    assert dict(headers).get("mcp-param-count") == value


@pytest.mark.parametrize(
    "params",
    [
        b'{"arguments":{"count":9007199254740992}}',
        b'{"arguments":{"count":0.5}}',
        b'{"arguments":{"region":4.0}}',
        b'{"arguments":{"options":{"dry":1e0}}}',
        b'{"arguments":{"count":1,"count":1}}',
        b'{"arguments":{"options":{"dry":true,"dry":true}}}',
        b'{"arguments":{"region":"\\udc00"}}',
        b'{"arguments":{},"arguments":{}}',
        b'{"name":"a","name":"a"}',
        b'{"name":"\\ud800"}',
    ],
    ids=lambda params: params.decode(),
)
def test_ambiguous_arguments_are_not_mirrored(params: bytes) -> None:
    """Doubles and half surrogate pairs at a mirrored place, and numbers that differ between readers, are refused."""
    with pytest.raises(RemoteProtocolError) as caught:
        headers_for("tools/call", params, MIRRORS)
    assert caught.value.rpc_code == INVALID_PARAMS


@pytest.mark.parametrize("method", ["", " a", "a\r\nx: y", "é", "\ud800"], ids=ascii)
def test_a_method_is_never_encoded(method: str) -> None:
    """Only names and arguments may be encoded, so that a method which no header can carry is refused."""
    with pytest.raises(RemoteProtocolError) as caught:
        headers_for(method, None)
    assert caught.value.rpc_code == INVALID_REQUEST


# --- The server -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "sent", "is_accepted"),
    [
        (b"42", "42.0", True),
        (b"42.0", "42", True),
        (b"42", "042", False),
        (b"42", "+42", False),
        (b"42", "0x2a", False),
        (b"42", "4.2e1", False),
        (b"42", "42 ", False),
        (b"42", "=?base64?NDI=?=", True),
        (b"9007199254740993", "9007199254740993", True),
        (b"9007199254740993", "9007199254740992", False),
        (b"0.5", "0.50", True),
        (b"1e-7", "1e-07", True),
        (b"0.5", "0.4", False),
        (b'"42"', "42.0", False),
        (b"true", "true", True),
        (b"true", "True", False),
        (b"true", "1", False),
        (b"1", "9" * 5000, False),
    ],
    ids=lambda value: (value.decode() if isinstance(value, bytes) else str(value))[:20],
)
def test_numbers_are_compared_as_numbers(raw: bytes, sent: str, is_accepted: bool) -> None:
    """42.0 and 42 are equal, exactly and at any size; other values are compared as text."""
    params = b'{"name":"a","arguments":{"count":%b}}' % raw
    headers = (("mcp-method", "tools/call"), ("mcp-name", "a"), ("mcp-param-count", sent))
    assert accepts(params, headers) == is_accepted


@pytest.mark.parametrize(
    "change",
    [
        {"mcp-method": "Tools/call"},
        {"mcp-method": "=?base64?dG9vbHMvY2FsbA==?="},
        {"mcp-name": "Deploy"},
        {"mcp-name": "=?base64?ZGVwbG95?"},
        {"mcp-param-region": "EU"},
        {"mcp-param-region": "=?base64?ZX==?="},
    ],
    ids=lambda change: "=".join(*change.items()),
)
def test_values_are_compared_with_their_case_and_once_decoded(change: dict[str, str]) -> None:
    headers = dict(headers_for("tools/call", TOOL, MIRRORS))
    assert accepts(TOOL, tuple(headers.items()))
    assert not accepts(TOOL, tuple((headers | change).items()))


def test_names_may_be_encoded_without_need() -> None:
    """Servers decode before comparing, so an encoded plain name is that name."""
    headers = dict(headers_for("tools/call", TOOL, MIRRORS)) | {"mcp-name": "=?base64?ZGVwbG95?="}
    assert accepts(TOOL, tuple(headers.items()))


def test_headers_that_no_schema_names_are_left_alone() -> None:
    """An unknown Mcp-Param header is passed on; without a schema all are unknown."""
    headers = headers_for("tools/call", TOOL, MIRRORS)
    assert accepts(TOOL, (*headers, ("mcp-param-other", "é")))
    assert accepts(TOOL, (*headers[:2], ("mcp-param-region", "elsewhere")), None)
    assert accepts(TOOL, (*headers[:2], ("mcp-param-region", "elsewhere")), ())
    assert not accepts(TOOL, (*headers, ("mcp-param-other", "1"), ("mcp-param-other", "1")))


@pytest.mark.parametrize("method", ["notifications/cancelled", None], ids=["notification", "neither"])
def test_notifications_need_no_headers_and_may_have_no_wrong_ones(method: str | None) -> None:
    assert accepts(None, (), method=method, header_revision=None)
    assert accepts(None, (), method=method)
    assert not accepts(None, (), method=method, header_revision="2026-07-27")
    assert not accepts(None, (("mcp-method", "tools/call"),), method=method)


@pytest.mark.parametrize(
    "params",
    [b'{"name":"a","name":"a","arguments":{}}', b'{"name":"a","arguments":{"count":1,"count":1}}'],
    ids=["name", "argument"],
)
def test_a_double_in_the_body_is_the_bodys_fault(params: bytes) -> None:
    headers = (("mcp-method", "tools/call"), ("mcp-name", "a"), ("mcp-param-count", "1"))
    with pytest.raises(RemoteProtocolError) as caught:
        check("tools/call", params, REVISION, headers, MIRRORS, header_revision=REVISION)
    assert caught.value.rpc_code == INVALID_PARAMS


def test_refusals_repeat_no_value() -> None:
    """A refusal names the header; its value, or the body's, may be private."""
    headers: dict[str, Any] = dict(headers_for("tools/call", TOOL, MIRRORS)) | {"mcp-param-region": "secret-place"}
    with pytest.raises(RemoteProtocolError, match="Mcp-Param-Region") as caught:
        check("tools/call", TOOL, REVISION, tuple(headers.items()), MIRRORS, header_revision=REVISION)
    assert "secret" not in caught.value.message
    assert "eu" not in caught.value.message.split()


def test_lines_are_read_in_order() -> None:
    """Order and doubles are kept, and blanks around a value are not part of it."""
    raw = [(b"mcp-name", b"a"), (b"x-mcp-name", b"c"), (b"mcp-param-x", b" \xe9\t"), (b"mcp-name", b"b")]
    assert read_mirrored(raw) == (("mcp-name", "a"), ("mcp-param-x", "é"), ("mcp-name", "b"))


@pytest.mark.parametrize("text", ["\ud800", "a\udc00b"], ids=ascii)
def test_half_a_surrogate_pair_cannot_be_encoded(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="half a surrogate pair") as caught:
        encode_value(text)
    assert caught.value.rpc_code == INVALID_PARAMS
