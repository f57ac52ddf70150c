"""Tests of what is repeated of the body of a refusal: its error's message or its text, on one line, and of bounded
length."""

from __future__ import annotations

import pytest
from isthmus.core.base.events import Cause, End
from isthmus.core.wire.http.failure import WORDS_MAX_CHARS, first_words_in, words_in


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ""),
        (b"  Missing\r\n API\x1b[31m key \n", "Missing API [31m key"),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No tenant"}}', "No tenant"),
        (b'{"error":"invalid_key"}', '{"error":"invalid_key"}'),
        (b"<!doctype html><title>404</title>", ""),
        (b"\xff", "\ufffd"),
        (b"x" * (WORDS_MAX_CHARS + 1), "x" * WORDS_MAX_CHARS),
    ],
)
def test_the_words_of_a_refusal_are_one_line_of_bounded_length(body: bytes, words: str) -> None:
    assert words_in(Cause(End.REFUSED, status=400, body=body)) == words


def test_a_connection_that_breaks_says_nothing() -> None:
    assert words_in(Cause(End.BROKEN, "reset", body=b"half")) == ""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ""),
        (b"database down\x1b[31m\nTraceback: ...", "database down [31m"),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No tenant"}}', "No tenant"),
        (b'{"detail":"no disk","trace":"x"}', "no disk"),
        (b'{"error":7,"status":"down"}', ""),
        (b'{"error":', ""),
        (b"<!doctype html><TITLE>Worker\ntimed out</TITLE>", "Worker timed out"),
        (b"<html>", ""),
        (b"x" * (WORDS_MAX_CHARS + 1), "x" * WORDS_MAX_CHARS),
        (b"got Bearer 4711", ""),
        (b'{"message":"api_key=4711 is unknown"}', ""),
        (b"password: 4711", ""),
    ],
)
def test_people_are_told_the_first_words_and_no_credential(body: bytes, words: str) -> None:
    assert first_words_in(Cause(End.REFUSED, status=500, body=body)) == words
