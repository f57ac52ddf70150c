"""Workers share the visits of browsers to `/connect`: whichever accepts the connection goes on with one."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from access_scenes import modern
from http_caller import USUAL, requested
from login_provider import provider
from record_servers import free_port
from worker_runs import running

pytestmark = pytest.mark.anyio

VISITS = 8
"""Visits, each of which meets the same worker all the time once in four times."""
CARLA = {"x-forwarded-user": "carla"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_visit_goes_on_at_any_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    with provider() as idp:
        guarded = {"id": "a", "upstream": {"url": idp.mcp, "auth": {"type": "oauth", "login_for": "caller"}}}
        config = {
            "core": {"port": port, "drain_seconds": 1, "public_base_url": base_url},
            "auth": {"proxy": {"peers": ["127.0.0.1"]}},
            "storage": {"root": str(tmp_path / "data")},
            "servers": [guarded],
        }
        path = tmp_path / "isthmus.json"
        path.write_text(json.dumps(config))
        with running(path):
            with anyio.fail_after(60):
                link = (await call(base_url)).rpartition("open ")[2]
                for _ in range(VISITS):
                    async with requested(link, headers=CARLA) as begun:
                        assert begun.status == 303
                        cookie, page = begun.headers["set-cookie"].partition(";")[0], begun.headers["location"]
                    async with requested(page) as asked:
                        back = f"{base_url}/connect?{urlsplit(asked.headers['location']).query}"
                    async with requested(back, headers=CARLA | {"cookie": cookie}) as ended:
                        assert ended.status == 200, await ended.body()
                assert await call(base_url) == "called"


async def call(base_url: str) -> str:
    """Calls a tool. Returns its text, else that of the error."""
    headers, body = modern("tools/call", name="echo", arguments={})
    async with requested(f"{base_url}/mcp/a", "POST", USUAL | CARLA | headers, body) as response:
        async for message in response.messages():
            if "error" in message:
                return str(message["error"]["message"])
            if message.get("id") == 1:
                text: str = message["result"]["content"][0]["text"]
                return text
    raise AssertionError("no answer")
