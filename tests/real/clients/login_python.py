"""A person's client on the official Python SDK, mcp 1.x or 2.x, that logs in. See README.md beside this file.

login_python.py URL PAUSE_S [CLIENT_ID]: with a CLIENT_ID it is registered already.
"""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import mcp
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

try:
    import httpx2 as http
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.auth import AuthorizationCodeResult

    IS_2 = True
except ImportError:
    import httpx as http
    from mcp.client.streamable_http import streamablehttp_client

    IS_2 = False

REDIRECT = "http://127.0.0.1:1/callback"


class Person:
    """The person's browser, and the tokens that the client keeps."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.answer: dict[str, str] = {}
        self.logins = 0

    async def browse(self, url: str) -> None:
        self.logins += 1
        async with http.AsyncClient(trust_env=False) as browser:
            while not url.startswith(REDIRECT):
                response = await browser.get(url)
                url = str(response.next_request.url)
        self.answer = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}

    async def come_back(self) -> Any:
        if IS_2:
            return AuthorizationCodeResult(
                code=self.answer["code"], state=self.answer.get("state"), iss=self.answer.get("iss")
            )
        return self.answer["code"], self.answer.get("state")

    async def get_tokens(self) -> Any:
        return self.kept.get("tokens")

    async def set_tokens(self, tokens: Any) -> None:
        self.kept["tokens"] = tokens

    async def get_client_info(self) -> Any:
        return self.kept.get("client")

    async def set_client_info(self, info: Any) -> None:
        self.kept["client"] = info


@asynccontextmanager
async def opened(url: str, auth: Any) -> Any:
    if IS_2:
        async with http.AsyncClient(auth=auth, trust_env=False, timeout=30) as client:
            async with streamable_http_client(url, http_client=client) as streams:
                async with mcp.ClientSession(*streams[:2]) as session:
                    yield session
    else:
        async with streamablehttp_client(url, auth=auth) as streams, mcp.ClientSession(*streams[:2]) as session:
            yield session


def document(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def visit(session: Any, pause_s: float) -> dict[str, Any]:
    async def call(name: str, **arguments: str) -> Any:
        return document(await session.call_tool(name, arguments))

    helper = (await session.list_tools()).tools[0].name
    offer = (await call(helper))["structuredContent"]
    async with http.AsyncClient(trust_env=False) as browser:
        sent = await browser.post(offer["upload_url"], files={"file": ("one.txt", b"handed in")})
    (handle,) = sent.raise_for_status().json()["upload_handles"]
    first = await call("take_one", file=handle)
    made = (await call("by_argument", output="made.txt", text="made"))["_meta"]["artifact"]["artifact_uri"]
    read = [document(await session.read_resource(made))]
    await anyio.sleep(pause_s)
    second = await call("take_one", file=handle)
    read.append(document(await session.read_resource(made)))
    return {
        "taken": [json.loads(result["content"][0]["text"]) for result in (first, second)],
        "read": [result["contents"][0]["text"] for result in read],
    }


async def main(url: str, pause_s: float, client_id: str = "") -> None:
    person = Person()
    about = {"redirect_uris": [REDIRECT], "grant_types": ["authorization_code", "refresh_token"]}
    wanted = OAuthClientMetadata(client_name="a client", **about)
    if client_id:
        await person.set_client_info(
            OAuthClientInformationFull(client_id=client_id, token_endpoint_auth_method="none", **about)
        )
    auth = OAuthClientProvider(url, wanted, person, person.browse, person.come_back)
    with anyio.fail_after(80):
        async with opened(url, auth) as session:
            await session.initialize()
            print(json.dumps(await visit(session, pause_s)), flush=True)


anyio.run(main, sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
