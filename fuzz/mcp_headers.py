"""Any headers and body arrive: they are accepted only if they agree; and the headers that we send are accepted.

The input is lines: the method; the value of `Mcp-Name`; that of `Mcp-Param-A`; the input schema of the tool; and, to
the end, the params. An empty value stands for no such header. Accepted outcomes: `RemoteProtocolError`, with
HEADER_MISMATCH if the headers are at fault; or acceptance, if an independent reader finds the values of the headers in
the body.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

from isthmus.core.base.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    RemoteProtocolError,
)
from isthmus.core.wire.http.mcp_headers import check, decode_value, encode_value, headers_for, read_mirrored
from isthmus.core.wire.http.param_headers import Mirror, mirrors_of

REVISION = "2026-07-28"

T = TypeVar("T")


class Number(str):
    """A number as it was written."""


def outcome(call: Callable[[], T], *codes: int) -> T | None:
    """Returns the result of the call; None if it raises RemoteProtocolError, whose code must be one of `codes`."""
    try:
        return call()
    except RemoteProtocolError as error:
        refusal = error
    assert refusal.rpc_code in codes
    return None


def accepted(method: str, params: bytes, headers: tuple[tuple[str, str], ...], mirrors: tuple[Mirror, ...]) -> bool:
    def call() -> bool:
        check(method, params, REVISION, headers, mirrors, header_revision=REVISION)
        return True

    return bool(outcome(call, HEADER_MISMATCH, INVALID_PARAMS, PARSE_ERROR))


def value_at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def test_one_input(data: bytes) -> None:
    parts = [*data.split(b"\n", 4), b"", b"", b"", b"", b""]
    method, schema, params = parts[0].decode("latin-1"), parts[3], parts[4]
    lines = [(name, value) for name, value in ((b"mcp-name", parts[1]), (b"mcp-param-a", parts[2])) if value]
    mirrors = outcome(lambda: mirrors_of(schema), INVALID_PARAMS, PARSE_ERROR) or (Mirror("A", ("a",), "string"),)
    headers = read_mirrored([(b"mcp-method", parts[0]), *lines])
    if accepted(method, params, headers, mirrors):
        check_agreement(method, params, dict(headers), mirrors)
    sent = outcome(lambda: headers_for(method, params, mirrors), INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR)
    if sent is None:
        return
    assert accepted(method, params, sent, mirrors)
    for name, value in sent[1:]:
        assert encode_value(decode_value(value)) == value
        assert not accepted(method, params, tuple(line for line in sent if line[0] != name), mirrors)


def check_agreement(method: str, params: bytes, headers: dict[str, str], mirrors: tuple[Mirror, ...]) -> None:
    try:
        body = json.loads(params, parse_int=Number, parse_float=Number)
    except (ValueError, RecursionError):
        return  # the body was not decoded
    for mirror in mirrors if method == "tools/call" else ():
        value = value_at(body, ("arguments", *mirror.path))
        sent = headers.get("mcp-param-" + mirror.name.lower())
        if isinstance(value, Number):
            assert sent is not None
            assert decode_value(sent) == value or Decimal(decode_value(sent)) == Decimal(value)
        elif isinstance(value, bool):
            assert sent is not None
            assert decode_value(sent) == str(value).lower()
        elif isinstance(value, str):
            assert sent is not None
            assert decode_value(sent) == value
        else:
            assert sent is None
    if method == "tools/call" and type(value_at(body, ("name",))) is str:
        assert decode_value(headers["mcp-name"]) == body["name"]
