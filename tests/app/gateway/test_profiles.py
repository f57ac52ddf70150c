"""Tests of profiles: one endpoint of a running gateway that shows several servers."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from http_caller import PATIENCE_S, Caller, fetch, operator
from isthmus.app.config.access_settings import Access, Auth, Token
from isthmus.app.config.profile_settings import Profile, ProfileServer
from isthmus.app.config.settings import Core, Server, Settings, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.core.access.static_tokens import digest_of

pytestmark = pytest.mark.anyio

TOOLBOX = (sys.executable, str(Path(__file__).parents[1] / "peers/toolbox.py"))


@asynccontextmanager
async def gateway(
    *servers: Server,
    auth: Auth = Auth(),  # noqa: B008 - it is frozen
    tools: Literal["all", "search"] = "all",
) -> AsyncIterator[Gateway]:
    shown = tuple(ProfileServer(id=server.id, alias="one" if server.id == "first" else None) for server in servers)
    profile = Profile(id="both", servers=shown, tools=tools)
    settings = Settings(core=Core(port=0, drain_seconds=5.0), auth=auth, servers=servers, profiles=(profile,))
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(settings, listen=True, is_lasting=False) as found:
            yield found


def server(id: str, *command: str, access: Access = Access()) -> Server:  # noqa: B008 - it is frozen
    return Server(id=id, upstream=Upstream(command=command or TOOLBOX), access=access, warm=0)


async def names(caller: Caller) -> list[str]:
    return [tool["name"] for tool in (await caller.request("tools/list"))["result"]["tools"]]


async def test_both_servers_are_used_at_one_endpoint() -> None:
    async with gateway(server("first"), server("second")) as found:
        caller = Caller(f"{found.base_url}/mcp/both")
        await caller.initialize()
        assert len(found.hub.child_pids) == 0, "no server is needed yet"
        shown = await names(caller)
        assert {"one__environment", "second__environment"} <= set(shown)
        assert shown == sorted(shown)
        pids = set()
        for name in ("one__environment", "second__environment"):
            result = (await caller.request("tools/call", {"name": name, "arguments": {}}))["result"]
            pids.add(json.loads(result["content"][0]["text"])["pid"])
        assert pids == set(found.hub.child_pids)
        unnamed = Caller(f"{found.base_url}/mcp")
        await unnamed.initialize()
        assert {name.replace("first__", "one__") for name in await names(unnamed)} == set(shown)
        status, _ = await fetch(f"{found.base_url}/mcp/both/tools", headers=operator(found))
        assert status == 404, "tool pages are of one server"


async def test_a_server_that_cannot_start_is_named() -> None:
    async with gateway(server("first"), server("broken", "/nonexistent")) as found:
        caller = Caller(f"{found.base_url}/mcp/both")
        await caller.initialize()
        result = (await caller.request("tools/list"))["result"]
        assert {tool["name"].partition("__")[0] for tool in result["tools"]} == {"one"}
        assert list(result["_meta"]["dev.isthmus/servers"]) == ["broken"]


async def test_who_may_not_use_a_server_does_not_see_it() -> None:
    tokens = tuple(
        Token(name=name, sha256=digest_of(name).hex(), groups=groups)
        for name, groups in (("alice", ("a",)), ("bob", ()))
    )
    guarded = server("second", access=Access(groups=("a",)))
    async with gateway(server("first"), guarded, auth=Auth(tokens=tokens)) as found:
        for name, expected in (("alice", {"one", "second"}), ("bob", {"one"})):
            caller = Caller(f"{found.base_url}/mcp/both", {"authorization": f"Bearer {name}"})
            await caller.initialize()
            assert {shown.partition("__")[0] for shown in await names(caller)} == expected
            answer = await caller.request("tools/call", {"name": "second__environment", "arguments": {}})
            assert ("result" in answer) == (name == "alice")


async def test_who_searches_finds_and_calls_what_it_may_use() -> None:
    tokens = tuple(
        Token(name=name, sha256=digest_of(name).hex(), groups=groups)
        for name, groups in (("alice", ("a",)), ("bob", ()))
    )
    guarded = server("second", access=Access(groups=("a",)))
    async with gateway(server("first"), guarded, auth=Auth(tokens=tokens), tools="search") as found:
        for name, expected in (("alice", {"one", "second"}), ("bob", {"one"})):
            caller = Caller(f"{found.base_url}/mcp/both", {"authorization": f"Bearer {name}"})
            await caller.initialize()
            assert await names(caller) == ["call_read_only_tool", "call_tool", "search_tools"]

            async def call(tool: str, caller: Caller = caller, **arguments: Any) -> dict[str, Any]:
                answer: dict[str, Any] = await caller.request("tools/call", {"name": tool, "arguments": arguments})
                return answer

            hits = (await call("search_tools", query="environment"))["result"]["structuredContent"]["tools"]
            shown = [tool["name"] for tool in hits if tool["name"].endswith("__environment")]
            assert {one.partition("__")[0] for one in shown} == expected
            pids = set()
            for one in shown:
                result = (await call("call_tool", name=one, arguments={}))["result"]
                direct = (await call(one))["result"]
                for answer in (result, direct):
                    pids.add(json.loads(answer["content"][0]["text"])["pid"])
            assert len(pids) == len(expected)
            answer = await call("call_tool", name="second__environment", arguments={})
            assert ("result" in answer) == (name == "alice")
