"""A server of the official SDK (`mcp` 1.x) that takes tokens of one issuer for itself: over HTTP+SSE or on a WebSocket.

`guarded_python1.py ISSUER sse|ws` prints its URL. The SDK guards HTTP+SSE itself. Its WebSocket has no guard, so the
same check stands in front of it, and refuses the handshake.
"""

from __future__ import annotations

import socket
import sys
import warnings
from typing import Any

import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.fastmcp import FastMCP
from mcp.server.websocket import websocket_server
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

warnings.simplefilter("ignore")  # the SDK deprecates one of these transports
ISSUER, KIND = sys.argv[1:]
listener = socket.create_server(("127.0.0.1", 0))
BASE = f"http://127.0.0.1:{listener.getsockname()[1]}"
RESOURCE = f"{BASE}/{KIND}"
SCOPE = "mcp:read"


class Verifier(TokenVerifier):
    """Takes tokens of the issuer for this server."""

    def __init__(self) -> None:
        self.keys = jwt.PyJWKClient(f"{ISSUER}/jwks")

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            key = self.keys.get_signing_key_from_jwt(token).key
            claims = jwt.decode(token, key, algorithms=["RS256"], audience=RESOURCE, issuer=ISSUER)
        except jwt.PyJWTError:
            return None
        subject = claims.get("sub") or claims["client_id"]
        scopes = claims.get("scope", "").split()
        return AccessToken(token=token, client_id=subject, scopes=scopes, expires_at=claims["exp"])


verifier = Verifier()
auth = AuthSettings(issuer_url=AnyHttpUrl(ISSUER), resource_server_url=AnyHttpUrl(RESOURCE), required_scopes=[SCOPE])
server = FastMCP("guarded", auth=auth, token_verifier=verifier)
subjects: list[str] = []


@server.tool()
def who() -> str:
    """Says whose token came."""
    token = get_access_token()
    return token.client_id if token is not None else subjects[-1]


metadata = Starlette(
    routes=create_protected_resource_routes(
        resource_url=AnyHttpUrl(RESOURCE), authorization_servers=[AnyHttpUrl(ISSUER)], scopes_supported=[SCOPE]
    )
)
CHALLENGE = f'Bearer resource_metadata="{BASE}/.well-known/oauth-protected-resource/{KIND}"'.encode()


async def guarded_socket(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await metadata(scope, receive, send)
        return
    assert scope["type"] == "websocket"
    value = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    token = await verifier.verify_token(value.removeprefix("Bearer "))
    if token is None:
        await receive()
        start = {"type": "websocket.http.response.start", "status": 401, "headers": [(b"www-authenticate", CHALLENGE)]}
        await send(start)
        await send({"type": "websocket.http.response.body", "body": b""})
        return
    subjects.append(token.client_id)
    async with websocket_server(scope, receive, send) as (reading, writing):
        lower = server._mcp_server
        await lower.run(reading, writing, lower.create_initialization_options())


app, shown = (server.sse_app(), f"sse+{RESOURCE}") if KIND == "sse" else (guarded_socket, f"ws{RESOURCE[4:]}")
print(f"listening on {shown}", flush=True)
uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning")).run(sockets=[listener])
