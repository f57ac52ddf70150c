"""Tests of requests without a session: which of them are refused, and how a result of our own is written."""

from __future__ import annotations

import pytest
from isthmus.core.bridge import input_requests
from isthmus.core.endpoints.revisions import unsupported
from isthmus.core.endpoints.stateless import REMOVED, complete
from isthmus.core.oracle.methods import METHODS, V4, V5, senders
from stateless_driving import served
from wire_scenes import CLIENT


@pytest.mark.parametrize("revision", ["1999-01-01", "x" * 64, "x" * 65, "x" * 1000])
def test_an_unknown_revision_is_refused_with_those_that_are_known(revision: str) -> None:
    """The error names the requested revision too, up to a length. Source: 2026-07-28 basic/versioning."""
    fault = unsupported(revision)
    assert (fault.rpc_code, fault.http_status, fault.message) == (-32022, 400, "Unsupported protocol version")
    assert fault.data == {"supported": ["2026-07-28"], "requested": revision[:64]}


@pytest.mark.parametrize(
    ("result", "written"),
    [
        (b'{"a":1}', b'{"resultType":"complete","a":1}'),
        (b' \n{"a":{}}', b'{"resultType":"complete","a":{}}'),
    ],
)
def test_a_result_of_our_own_is_complete(result: bytes, written: bytes) -> None:
    assert complete(result) == written


def test_the_removed_methods_are_those_of_the_changelog() -> None:
    """The removed methods are those that a client could send in a session and cannot send without one."""
    before = {name for name, use in METHODS.items() if use.is_request and CLIENT in senders(name, V4)}
    after = {name for name, use in METHODS.items() if use.is_request and CLIENT in senders(name, V5)}
    assert before - after == REMOVED
    listed = {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
    assert listed | {"tasks/list", "tasks/result"} == REMOVED
    assert {"inputResponses", "requestState"} == input_requests.RETRIED


@pytest.mark.parametrize("method", sorted(REMOVED))
def test_a_removed_method_is_refused(method: str) -> None:
    """The error says that the revision lacks the method, and nothing reaches the server."""
    world, client, _ = served()
    channel = client.request(method, uri="x:", level="info", taskId="a")
    error = client.answered(channel, client.last_id)["error"]
    assert error["code"] == -32601
    assert error["message"] == f"Method not found: {method} is not in 2026-07-28"
    assert not world.unread
