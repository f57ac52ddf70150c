"""Tests of credentials that a server repeats in its refusal: they are not told on."""

from __future__ import annotations

import pytest
from isthmus.core.base.effects import Post
from isthmus.core.base.events import Cause, End
from isthmus.core.wire.http.request import RequestForms
from isthmus.core.wire.http.withheld import withhold

TOKEN = b"access-token-of-the-proxy"
HEADERS = [(b"authorization", b"Bearer " + TOKEN), (b"x-api-key", b"key-of-the-proxy"), (b"x-short", b"error")]


def test_the_values_of_own_headers_are_withheld_in_body_and_challenge() -> None:
    body = b'{"error":"got Bearer ' + TOKEN + b' and key-of-the-proxy, " + TOKEN + ""}'
    cause = Cause(End.REFUSED, "got HTTP status 401", 401, body, challenge=f'Bearer error="{TOKEN.decode()}"')
    found = withhold(cause, HEADERS)
    assert TOKEN not in found.body
    assert found.body.startswith(b'{"error":"got Bearer [withheld] and [withheld], ')
    assert found.challenge == 'Bearer error="[withheld]"'
    assert (found.detail, found.status) == (cause.detail, cause.status)


def test_of_values_that_contain_each_other_nothing_is_left() -> None:
    cause = Cause(End.REFUSED, "", 400, b"got token-and-more-of-it")
    headers = [(b"a", b"token-and"), (b"b", b"token-and-more-of-it")]
    assert withhold(cause, headers).body == b"got [withheld]"


@pytest.mark.parametrize("end", [each for each in End if each is not End.REFUSED])
def test_other_ends_stay_as_they_are(end: End) -> None:
    cause = Cause(end, TOKEN.decode(), body=TOKEN)
    assert withhold(cause, HEADERS) is cause


def test_a_refusal_that_repeats_nothing_stays_as_it_is() -> None:
    cause = Cause(End.REFUSED, "", 400, b'{"error":"no such tool"}')
    assert RequestForms(HEADERS).withhold(cause) is cause
    assert RequestForms().withhold(cause) is cause


def test_headers_of_the_client_itself_are_told() -> None:
    """The client that sent them gets the refusal."""
    forms = RequestForms(HEADERS)
    forms.fill(Post(server="", message=b"{}", headers=(("authorization", "Bearer of-the-client-itself"),)))
    cause = Cause(End.REFUSED, "", 400, b"got of-the-client-itself")
    assert forms.withhold(cause) is cause
