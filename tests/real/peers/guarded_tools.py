"""A FastMCP server that takes tokens of one issuer for itself. `guarded_tools.py ISSUER`: prints its URL."""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token


def main(issuer: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    verifier = JWTVerifier(
        jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{base_url}/mcp", required_scopes=["mcp:read"]
    )
    auth = RemoteAuthProvider(verifier, [issuer], base_url, scopes_supported=["mcp:read"])
    server = FastMCP("guarded", auth=auth)

    @server.tool
    def who() -> str:
        """Says whose token came, and what it allows."""
        token = get_access_token()
        assert token is not None
        return f"{token.claims.get('sub') or token.claims.get('client_id')} {' '.join(sorted(token.scopes))}"

    print(f"listening on {base_url}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(server.http_app(), log_level="warning")).run(sockets=[listener])


main(sys.argv[1])
