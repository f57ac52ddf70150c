"""What a request without a session is refused with, and how a result of our own is written for its client."""

from __future__ import annotations

import pytest
from isthmus.core.endpoints.stateless import REMOVED, RETRIED, complete, unsupported
from isthmus.core.oracle.methods import METHODS, V4, V5, senders
from stateless_driving import served
from wire_scenes import CLIENT


@pytest.mark.parametrize("revision", ["1999-01-01", "x" * 64, "x" * 65, "x" * 1000])
def test_an_unknown_revision_is_refused_with_those_that_are_known(revision: str) -> None:
    """And with what was asked for, up to a length (2026-07-28 basic/versioning)."""
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


def test_requests_that_were_taken_away_are_those_of_the_changelog() -> None:
    """All that a client could ask in a session and cannot ask without one."""
    before = {name for name, use in METHODS.items() if use.is_request and CLIENT in senders(name, V4)}
    after = {name for name, use in METHODS.items() if use.is_request and CLIENT in senders(name, V5)}
    assert before - after == REMOVED
    listed = {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
    assert listed | {"tasks/list", "tasks/result"} == REMOVED
    assert {"inputResponses", "requestState"} == RETRIED


@pytest.mark.parametrize("method", sorted(REMOVED))
def test_what_was_taken_away_is_said_to_be(method: str) -> None:
    """Whatever it asks, it does not reach the server."""
    world, client, _ = served()
    channel = client.request(method, uri="x:", level="info", taskId="a")
    error = client.answered(channel, client.last_id)["error"]
    assert error["code"] == -32601
    assert error["message"] == f"Method not found: {method} is not in 2026-07-28"
    assert not world.heard
