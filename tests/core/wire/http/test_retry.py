"""Messages that may be sent again: every message kind with every end of its first attempt."""

from __future__ import annotations

import itertools

import pytest
from each_row import each_row
from isthmus.core.base.events import Cause, End
from isthmus.core.wire.http.retry import SAFE_NOTIFICATIONS, may_send_again

SAFE = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
NONSENSE = b"nonsense"
MESSAGES = (SAFE, CALL, HELLO, ANSWER, NOTIFICATION, PROGRESS, NONSENSE)


def test_the_notifications_that_may_be_sent_twice() -> None:
    assert (
        frozenset({"notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed"})
        == SAFE_NOTIFICATIONS
    )


@each_row("message", MESSAGES)
@each_row(("stale", "unsent"), list(itertools.product([False, True], repeat=2)))
@each_row("end", list(End))
@each_row("has_session", [False, True])
def test_the_messages_that_may_be_sent_again(
    message: bytes, stale: bool, unsent: bool, end: End, has_session: bool
) -> None:
    """A stale connection lets undelivered messages be sent again, and those that are safe to repeat. A new connection
    lets only an answer that did not arrive be sent again, since nobody would request it again."""
    if stale and unsent:
        may = True
    elif stale:
        may = message in (SAFE, ANSWER, NOTIFICATION) or (message == HELLO and not has_session)
    else:
        may = message == ANSWER and (unsent or end is End.UNREACHABLE)
    assert may_send_again(Cause(end, stale=stale, unsent=unsent), message, has_session=has_session) is may
    if has_session:
        assert may_send_again(Cause(end, stale=stale, unsent=unsent), message) is may


@pytest.mark.parametrize("method", sorted(SAFE_NOTIFICATIONS))
def test_each_safe_method_may_be_sent_again(method: str) -> None:
    assert may_send_again(Cause(End.BROKEN, stale=True), b'{"jsonrpc":"2.0","method":"%b"}' % method.encode())
    request = b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % method.encode()
    assert not may_send_again(Cause(End.BROKEN, stale=True), request), "as a request it is none of them"
