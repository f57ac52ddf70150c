"""A gateway that recognises its callers, tokens for it, and an issuer whose documents can be changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from http_caller import PATIENCE_S, USUAL, Caller, Json, requested
from isthmus.app.config.access_settings import Access, Auth, Issuer, Rule, Token
from isthmus.app.config.settings import Core, Server, Settings, Upstream
from isthmus.app.gateway import Gateway, running

PEERS = Path(__file__).parent / "peers"
ALICE, BOB, ROOT = "alice's token", "bob's token", "root's token"


def token(name: str, text: str, *groups: str) -> Token:
    return Token(name=name, sha256=hashlib.sha256(text.encode()).hexdigest(), groups=groups)


TOKENS = (token("alice", ALICE), token("bob", BOB), token("root", ROOT, "admin"))


def server(id: str = "a", peer: str = "toolbox.py", **rest: Any) -> Server:
    return Server(id=id, upstream=Upstream(command=(sys.executable, str(PEERS / peer))), **rest)


@asynccontextmanager
async def gateway(*servers: Server, core: Core | None = None, **auth: Any) -> AsyncIterator[Gateway]:
    settings = Settings(
        core=core or Core(port=0, drain_seconds=5.0), auth=Auth(**(auth or {"tokens": TOKENS})), servers=servers
    )
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(settings, listen=True, is_lasting=False) as found:
            yield found


def shown(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def opened(gateway: Gateway, text: str, id: str = "a", **capabilities: Json) -> Caller:
    caller = Caller(f"{gateway.base_url}/mcp/{id}", shown(text))
    await caller.initialize(**capabilities)
    return caller


async def status_of(url: str, method: str = "POST", headers: dict[str, str] | None = None, body: bytes = b"{}") -> int:
    async with requested(url, method, USUAL | (headers or {}), body) as response:
        await response.body()
        return response.status


# --- Roles ----------------------------------------------------------------------------------------------------------

ROLES = (
    Token(name="reader", sha256=hashlib.sha256(b"reader").hexdigest(), scopes=("read",)),
    Token(name="writer", sha256=hashlib.sha256(b"writer").hexdigest(), scopes=("read", "write")),
    Token(name="chief", sha256=hashlib.sha256(b"chief").hexdigest(), scopes=("read",), groups=("chiefs",)),
)
ACCESS = Access(
    scope=("read",),
    tools={"environment": Rule(scope=("write",)), "d*": Rule(groups=("chiefs",))},
)


def modern(method: str, **params: object) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request of revision 2026-07-28."""
    space = "io.modelcontextprotocol/"
    meta = {f"{space}protocolVersion": "2026-07-28", f"{space}clientCapabilities": {}}
    meta[f"{space}clientInfo"] = {"name": "caller", "version": "0"}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if "name" in params:
        headers["mcp-name"] = str(params["name"])
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}
    return headers, json.dumps(request).encode()


# --- Issuers --------------------------------------------------------------------------------------------------------

KEYS: dict[str, Any] = {kid: ec.generate_private_key(ec.SECP256R1()) for kid in ("k1", "k2")}
KEYS["r1"] = rsa.generate_private_key(65537, 2048)
ALGORITHMS = {"k1": "ES256", "k2": "ES256", "r1": "RS256"}


class FakeIssuer:
    """An authorization server whose documents can be changed, held back, and counted."""

    def __init__(self) -> None:
        self.published = ["k1"]
        self.is_up = True
        self.asked: list[str] = []
        self.asked_at: dict[str, list[float]] = {}
        self.url = ""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        task_status.started()
        await listener.serve(self._answer)

    async def _answer(self, stream: anyio.abc.ByteStream) -> None:
        async with stream:
            try:
                path = (await stream.receive()).split(b" ")[1].decode()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return  # a gateway that ends asks no more
            self.asked.append(path)
            self.asked_at.setdefault(path, []).append(time.monotonic())
            document: Json = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            if path == "/keys":
                document = {"keys": [self._public(kid) for kid in self.published]}
            body = json.dumps(document).encode()
            status = b"200 OK" if self.is_up else b"503 Sorry"
            head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body))
            with contextlib.suppress(anyio.BrokenResourceError):
                await stream.send(head + body)

    def _public(self, kid: str) -> Json:
        to_jwk = jwt.get_algorithm_by_name(ALGORITHMS[kid]).to_jwk
        found: Json = json.loads(to_jwk(KEYS[kid].public_key()))
        return found | {"kid": kid, "alg": ALGORITHMS[kid], "use": "sig"}

    def token(
        self,
        audience: str,
        sub: str = "alice",
        kid: str = "k1",
        lasts_s: float = 60,
        headers: Json | None = None,
        **claims: Any,
    ) -> str:
        usual = {"iss": self.url, "sub": sub, "aud": audience, "exp": time.time() + lasts_s}
        return self.sign(usual | claims, kid, headers)

    def sign(self, claims: Json, kid: str, headers: Json | None = None) -> str:
        return jwt.encode(claims, KEYS[kid], ALGORITHMS[kid], {"kid": kid, "typ": "at+jwt"} | (headers or {}))


@asynccontextmanager
async def issuing(
    *servers: Server, core: Core | None = None, **settings: Any
) -> AsyncIterator[tuple[FakeIssuer, Gateway]]:
    issuer = FakeIssuer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(issuer.run)
        async with gateway(*servers, core=core, issuers=(Issuer(url=issuer.url, **settings),)) as found:
            yield issuer, found
        tasks.cancel_scope.cancel()
