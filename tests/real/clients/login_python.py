"""The official Python SDK, mcp 1.x or 2.x, as a person's client that logs in at a server.

`login_python.py URL PAUSE_S TOOL [TOOL]`: calls each tool in one session, with a pause between them, and prints the
texts of the results, one a line of JSON. The person agrees to everything: pages are followed through redirects.
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
from mcp.shared.auth import OAuthClientMetadata

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


async def main(url: str, pause_s: float, tools: list[str]) -> None:
    person = Person()
    grants = ["authorization_code", "refresh_token"]
    wanted = OAuthClientMetadata(client_name="a client", redirect_uris=[REDIRECT], grant_types=grants)
    auth = OAuthClientProvider(url, wanted, person, person.browse, person.come_back)
    with anyio.fail_after(60):
        async with opened(url, auth) as session:
            await session.initialize()
            for number, tool in enumerate(tools):
                if number:
                    await anyio.sleep(pause_s)
                result = await session.call_tool(tool, {})
                print(json.dumps({"tool": tool, "text": result.content[0].text}), flush=True)
    print(json.dumps({"logins": person.logins}), flush=True)


anyio.run(main, sys.argv[1], float(sys.argv[2]), sys.argv[3:])
