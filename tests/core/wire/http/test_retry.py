"""What is sent a second time: enumerated over what is known of the first, and over all kinds of messages."""

from __future__ import annotations

import itertools

import pytest
from isthmus.core.base.effects import Cause, End
from isthmus.core.wire.http.retry import SAFE_NOTICES, may_send_again

SAFE = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
NOTICE = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
NONSENSE = b"nonsense"
MESSAGES = (SAFE, CALL, HELLO, ANSWER, NOTICE, PROGRESS, NONSENSE)


def test_which_notifications_mean_no_more_when_they_are_said_twice() -> None:
    assert (
        frozenset({"notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed"})
        == SAFE_NOTICES
    )


@pytest.mark.parametrize("message", MESSAGES, ids=["safe", "call", "hello", "answer", "notice", "progress", "nonsense"])
@pytest.mark.parametrize(("stale", "unsent"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("has_session", [False, True])
def test_what_may_be_sent_again(message: bytes, stale: bool, unsent: bool, end: End, has_session: bool) -> None:
    """On a connection that was idle: whatever did not arrive, and what means no more twice. On a new one, an answer
    that did not arrive, which nobody would ask for again."""
    if stale and unsent:
        may = True
    elif stale:
        may = message in (SAFE, ANSWER, NOTICE) or (message == HELLO and not has_session)
    else:
        may = message == ANSWER and (unsent or end is End.UNREACHABLE)
    assert may_send_again(Cause(end, stale=stale, unsent=unsent), message, has_session=has_session) is may
    if has_session:
        assert may_send_again(Cause(end, stale=stale, unsent=unsent), message) is may


@pytest.mark.parametrize("method", sorted(SAFE_NOTICES))
def test_each_of_them_may(method: str) -> None:
    assert may_send_again(Cause(End.BROKEN, stale=True), b'{"jsonrpc":"2.0","method":"%b"}' % method.encode())
    request = b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % method.encode()
    assert not may_send_again(Cause(End.BROKEN, stale=True), request), "as a request it is none of them"
