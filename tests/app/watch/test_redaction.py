"""Tests of the redaction: secrets go, and all other bytes stay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.watch.redaction import REDACTED, Redactor

SECRET = "hunter2-s3cret"
names = st.sampled_from(["password", "API_KEY", "api-key", "client_secret", "accessToken", "Authorization"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.booleans())
def test_what_holds_no_secret_stays_as_it_is(value: object, escapes: bool) -> None:
    body = json.dumps({"params": value}, ensure_ascii=escapes).encode(errors="surrogatepass")
    if not any(part in body.lower() for part in (b"token", b"sig=", b"state", b"code")):
        assert Redactor().redact(body).body == body


@given(names, values, values, st.sampled_from([None, 1, " "]), st.booleans())
def test_the_value_of_a_secret_goes_wherever_it_stands(
    name: str, before: object, after: object, indent: object, escaped: bool
) -> None:
    inner = {"x": before, name: {"deep": [SECRET, {"}": '"'}]}, "y": after}
    text = json.dumps({"a": [inner]}, indent=indent)  # type: ignore[arg-type]
    if escaped:
        text = text.replace(f'"{name}"', '"' + "".join(f"\\u{ord(char):04x}" for char in name) + '"')
    found = Redactor().redact(text.encode())
    assert SECRET.encode() not in found.body
    shown = json.loads(found.body)["a"][0]
    assert shown[name] == REDACTED and shown["x"] == json.loads(json.dumps(before))
    assert found.members == (name,)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"t":"Authorization: Bearer abcdefghijklmnopqrst."}', b'{"t":"Authorization: Bearer [redacted]"}'),
        (b'{"u":"http://h/a?exp=1&sig=deadbeef&x=1"}', b'{"u":"http://h/a?exp=1&sig=[redacted]&x=1"}'),
        (b'{"progressToken":5,"maxTokens":10}', b'{"progressToken":5,"maxTokens":10}'),
        (b'{"password":"cut off in the mid', b'{"password":"[redacted]"'),
        (b'{"password": [1, {"a"', b'{"password": "[redacted]"'),
        (b'{"password":null,"secret":""}', b'{"password":null,"secret":""}'),
        (b"not json, password: x", b"not json, password: x"),
        (b'{"iban":"DE00","text":"bearer of news"}', b'{"iban":"[redacted]","text":"bearer of news"}'),
    ],
)
def test_what_is_shown(body: bytes, shown: bytes) -> None:
    assert Redactor(["IBAN"]).redact(body).body == shown


def test_headers_are_shown_by_a_list() -> None:
    given = [("Mcp-Session-Id", "abc"), ("X-Any", "1"), ("Accept", "a"), ("Authorization", "Bearer x"), ("Cookie", "c")]
    tag = Redactor().headers(given)[0][1]
    assert tag != "abc" and len(tag) == 8
    assert [value for _, value in Redactor().headers(given)[1:]] == [REDACTED, "a", REDACTED, REDACTED]
