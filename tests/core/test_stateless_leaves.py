"""What a request without a session is refused with, and how a result of our own is written for its client."""

from __future__ import annotations

import pytest
from isthmus.core.stateless import complete, unsupported


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
