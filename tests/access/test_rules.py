"""The corner cases of rules and metadata: scopes and groups, the documents that anybody may read, and configurations
that are refused.

How the list is divided among the files is said in `test_tokens.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from access_scenes import ACCESS, ROLES, gateway, issuing, modern, opened, server, shown, status_of
from command import told
from http_caller import USUAL, Json, requested

pytestmark = pytest.mark.anyio

KNOWN = "/.well-known/oauth-protected-resource"
PAGE = {"origin": "https://page.example"}


async def test_case_3_a_missing_scope_is_forbidden_and_all_scopes_of_the_operation_are_named() -> None:
    """2026-07-28 basic/authorization, "Scope Challenge Handling": 403 with `insufficient_scope`, and in one challenge
    all scopes that the operation needs, so that one more login is enough."""
    async with gateway(server(access=ACCESS), tokens=ROLES) as found:
        reader = await opened(found, "reader")
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "environment"}}
        for headers, body in (
            ({"mcp-session-id": str(reader.session)}, json.dumps(call).encode()),
            modern("tools/call", name="environment", arguments={}),
        ):
            async with requested(reader.url, "POST", reader.headers | headers, body) as response:
                [message] = [each async for each in response.messages()]
                assert response.status == 403
                challenge = response.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in challenge
            assert 'scope="read write"' in challenge
            assert message["error"]["code"] == -31009
            assert message["error"]["message"] == "environment wants the scope read write; the token has read"
            assert message["error"]["data"]["scope"] == "read write"
        writer = await opened(found, "writer")
        assert "pid" in await writer.call("environment")


async def test_case_4_a_scope_that_contains_others_is_enough() -> None:
    """2026-07-28 basic/authorization, "Scope Challenge Handling": where scopes have a hierarchy, a broader one does.
    The issuer's entry says which contains which, also by way of others."""
    contains = {"admin": ("write",), "write": ("read",)}
    async with issuing(server(access=ACCESS), implies=contains) as (issuer, found):
        audience = f"{found.base_url}/mcp/a"
        alice = await opened(found, issuer.token(audience, scope="admin"))
        assert "pid" in await alice.call("environment")
        bob = await opened(found, issuer.token(audience, "bob", scope="read"))
        answer = await bob.request("tools/call", {"name": "environment", "arguments": {}})
        assert answer["error"]["data"]["scope"] == "read write", "the narrower one contains nothing"


async def test_case_15_the_metadata_of_each_endpoint_name_the_very_url_that_was_asked_about() -> None:
    """RFC 9728, 3.3: `resource` "MUST be identical" to the URL that the client asked about. It has no slash at its end,
    and a token may have one in its audience."""
    async with issuing(server(), server("b")) as (issuer, found):
        base = found.base_url
        for path in ("/mcp/a", "/sse/b", "/ws/a", "/mcp/all", "/mcp", "/sse", "/ws", "/a/mcp", "/b/sse", "/all/ws", ""):
            for slash in ("", "/"):
                async with requested(f"{base}{KNOWN}{path}{slash}") as response:
                    assert response.status == 200
                    document = await response.json()
                assert document["resource"] == base + path
                assert document["authorization_servers"] == [issuer.url]
        for path in ("/mcp/zz", "/messages/a", "/messages", "/zz/mcp", "/a/messages"):
            assert await status_of(f"{base}{KNOWN}{path}", "GET", body=b"") == 404
        for path, resource in (
            *(("/mcp/a/", "/mcp/a"), ("/mcp", "/mcp"), ("/messages/b", "/sse/b"), ("/servers", "")),
            *(("/a/mcp/", "/a/mcp"), ("/b/messages", "/b/sse"), ("/zz/mcp", ""), ("/messages", "/sse")),
        ):
            async with requested(base + path, "POST", USUAL, b"{}") as response:
                assert response.status == 401
                challenge = response.headers["www-authenticate"]
            assert challenge == f'Bearer realm="isthmus", resource_metadata="{base}{KNOWN}{resource}"'
        for audience in (f"{base}/mcp/a/", f"{base}/mcp/a", f"{base}/a/mcp", f"{base}/", base):
            await opened(found, issuer.token(audience))
    async with issuing(server()) as (_, found), requested(f"{found.base_url}{KNOWN}/mcp") as response:
        assert (await response.json())["resource"] == f"{found.base_url}/mcp", "there is one server"


async def test_case_16_any_web_page_may_read_the_metadata_and_none_but_the_allowed_may_call() -> None:
    """RFC 9728, 3.1 with the Fetch standard: a client in a browser reads the metadata across origins. 2025-11-25
    basic/transports, "Security Warning": an `Origin` that is not allowed is refused with 403, here before anybody asks
    for a token."""
    async with issuing(server()) as (issuer, found):
        async with requested(f"{found.base_url}{KNOWN}/mcp/a", headers=PAGE) as response:
            assert response.status == 200
            assert response.headers["access-control-allow-origin"] == "*"
        asks = PAGE | {"access-control-request-method": "GET", "access-control-request-headers": "mcp-protocol-version"}
        async with requested(f"{found.base_url}{KNOWN}/mcp/a", "OPTIONS", asks) as response:
            assert response.status == 204
            assert response.headers["access-control-allow-origin"] == "*"
            assert "mcp-protocol-version" in response.headers["access-control-allow-headers"].lower()
        url = f"{found.base_url}/mcp/a"
        for headers in ({}, shown("none"), shown(issuer.token(url))):
            async with requested(url, "POST", USUAL | PAGE | headers, b"{}") as response:
                assert response.status == 403
                assert "www-authenticate" not in response.headers


async def test_case_19_a_tool_for_a_group_is_not_listed_and_answered_like_one_that_does_not_exist() -> None:
    """2026-07-28 server/tools, "Listing Tools": the list may differ by what the caller is allowed. 2026-07-28
    server/utilities/caching: such a list is private."""
    async with gateway(server(access=ACCESS), tokens=ROLES) as found:
        reader, chief = await opened(found, "reader"), await opened(found, "chief")

        async def listed(token: str) -> Json:
            headers, body = modern("tools/list")
            async with requested(reader.url, "POST", USUAL | shown(token) | headers, body) as response:
                [message] = [each async for each in response.messages()]
            result: Json = message["result"]
            return result

        assert "die" not in {tool["name"] for tool in (await listed("reader"))["tools"]}
        assert "die" in {tool["name"] for tool in (await listed("chief"))["tools"]}
        assert (await listed("reader"))["cacheScope"] == "private"

        async def called(name: str) -> bytes:
            headers = reader.headers | {"mcp-session-id": str(reader.session)}
            call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": {}}}
            async with requested(reader.url, "POST", headers, json.dumps(call).encode()) as response:
                assert response.status == 200
                return await response.body()

        hidden, unknown = await called("die"), await called("dxe")
        assert b'"code":-32602' in hidden
        assert hidden.replace(b"die", b"dxe") == unknown
        answer = await chief.request("tools/call", {"name": "die"})
        assert "fell down the stairs" in json.dumps(answer), "it ran"


# --- Configurations ---------------------------------------------------------------------------------------------------


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Runs a command to its end. Returns its code and output."""
    return told(*arguments, cwd=folder, env={"XDG_STATE_HOME": str(folder / "state")})


@pytest.mark.parametrize("command", ["serve", "check"])
@pytest.mark.parametrize(
    "auth", [{"tokens": [{"name": "ci", "sha256": "ab" * 32}]}, {"issuers": [{"url": "https://i"}]}]
)
def test_case_20_a_token_for_this_gateway_is_handed_on_to_no_server(command: str, auth: Json, tmp_path: Path) -> None:
    """2026-07-28 basic/authorization, "Token Handling": a server passes no token on that it got from a client. Such a
    configuration does not start."""
    upstream = {"url": "http://127.0.0.1:9/mcp", "pass_headers": ["Authorization"]}
    settings = {"core": {"port": 0}, "auth": auth, "servers": [{"id": "a", "upstream": upstream}]}
    (tmp_path / "isthmus.json").write_text(json.dumps(settings), encoding="utf-8")
    code, said = run(tmp_path, command, "isthmus.json")
    assert code == 2
    assert "servers[0].upstream.pass_headers: got a list of 1, expected another header than Authorization" in said
    assert "Traceback" not in said
