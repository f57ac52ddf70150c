"""Tests of rate limits of a running gateway: what callers are told, and what operators see."""

from __future__ import annotations

import json

import pytest
from access_scenes import ALICE, BOB, ROOT, TOKENS, gateway, opened, server, shown
from http_caller import USUAL, requested
from isthmus.app.config.governance_settings import RateLimit

pytestmark = pytest.mark.anyio


async def test_operators_see_who_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    """A call of a script over plain HTTP counts with those of MCP clients, and is refused with a status of its own."""
    limit = RateLimit(calls=2, per_seconds=3600, tools=("ec*",))
    async with gateway(server(rate_limits=(limit,)), tokens=TOKENS) as found:
        alice, bob = await opened(found, ALICE), await opened(found, BOB)
        for caller in (alice, bob, alice):
            assert "did not run" not in await caller.call("echo")
        url, body = f"{found.base_url}/mcp/a/tools/call", json.dumps({"name": "echo"}).encode()
        text = "echo of a did not run: the limit is 2 calls per 3600 s for ec*. Try again in 1800 s"
        async with requested(url, "POST", USUAL | shown(ALICE), body) as response:
            assert response.status == 429
            assert 1700 < int(response.headers["retry-after"]) <= 1800
            content = (await response.json())["content"][0]["text"]
            assert content[:-7] == text[:-7]
        assert (await alice.call("echo"))[:-7] == text[:-7]
        async with requested(f"{found.base_url}/metrics", "GET", shown(ROOT)) as response:
            assert b'isthmus_calls_limited_total{server="a",tool="echo"} 2.0' in await response.body()
    lines = [record.getMessage() for record in caplog.records if record.name == "isthmus.audit"]
    assert lines == ["a: limited: echo for principal token:alice: the limit is 2 calls per 3600 s for ec*"]
