"""The subjects that are measured: the product with either driver, the floors, byte proxies and peers.

Each entry of `STARTERS` is started as its users would start it, in front of the stub.
"""

from __future__ import annotations

import json
import resource
import secrets
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from issuer import AUDIENCE, NEW_TOKENS, issuer
from peers import PEERS, is_there
from programs import HERE

MODULE: Final = "isthmus.app.main"
ISTHMUS: Final = [sys.executable, "-m", MODULE, "--log-level", "warning"]


@dataclass(frozen=True)
class Route:
    """The peers on both sides: transports `http`, `stdio`, for clients also `sse`, `ws`; eras `legacy`, `modern`."""

    server: str
    client: str
    server_era: str = "legacy"
    client_era: str = "legacy"


@dataclass(frozen=True)
class Start:
    """The start of a proxy.

    Attributes:
        command: starts a process that listens on the port it was given, or serves its stdin.
        path: the path of its endpoint.
        tokens: a file of tokens that its clients show, one a line; None: they show none.
        tool: the name that it gives to the stub's tool.
        health: a path, and what it has to say before clients come; None: they may come once it listens.
    """

    command: list[str]
    path: str = "/mcp"
    env: tuple[tuple[str, str], ...] = ()
    tokens: Path | None = None
    tool: str = "echo"
    health: tuple[str, str] | None = None


Starter = Callable[[Route, int, str | list[str], Path], Start | None]
"""Returns the start of a subject for a route, the port to listen on, the stub's URL or command, and a folder for files;
None if the subject cannot serve that route."""


def _isthmus(driver: str, *options: str) -> Starter:
    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start:
        listen = "stdio" if route.client == "stdio" else f"127.0.0.1:{port}"
        era = ["--era", "stateless"] if route.server_era == "modern" else ["--era", "handshake"]
        target = [upstream] if isinstance(upstream, str) else ["--", *upstream]
        return Start(
            [*ISTHMUS, "wrap", *options, "--listen", listen, *era, *target],
            _endpoint(route),
            (("ISTHMUS_DRIVER", driver),),
        )

    return start


def _relay(driver: str) -> Starter:
    """Starts the product in front of a transparent server, whose messages it does not read."""

    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start:
        assert isinstance(upstream, str)
        command = [*ISTHMUS, "wrap", "--no-inspect", "--listen", f"127.0.0.1:{port}", upstream]
        return Start(command, env=(("ISTHMUS_DRIVER", driver),))

    return start


def _endpoint(route: Route) -> str:
    return {"sse": "/sse", "ws": "/ws"}.get(route.client, "/mcp")


Servers = Callable[[str | list[str]], dict[str, str]]
"""Returns the URLs of several servers by id, all of them of the stub at the URL given."""
CALLED: Final = "stub3"
"""The server that calls go to."""


def _five(upstream: str | list[str]) -> dict[str, str]:
    assert isinstance(upstream, str)
    return {f"stub{number}": upstream for number in range(1, 6)}


def _twelve(upstream: str | list[str]) -> dict[str, str]:
    """Returns twelve servers with seventeen tools each."""
    assert isinstance(upstream, str)
    return {f"stub{number}": f"{upstream}/17" for number in range(1, 13)}


def _isthmus_shared(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start:
    """Starts the product with one server process shared by all clients, which needs a configuration file."""
    assert isinstance(upstream, list)
    path = scratch / f"{port}.json"
    settings = {
        "core": {"port": port},
        "storage": {"root": str(scratch / f"{port}.data")},
        "servers": [{"id": "stub", "upstream": {"command": upstream, "era": "handshake"}, "share": "concurrent"}],
    }
    path.write_text(json.dumps(settings))
    return Start([*ISTHMUS, "serve", str(path)])


def _isthmus_sqlite(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    """Starts the product with an event store on disk, for events that do not fit in memory."""
    if isinstance(upstream, list):
        return None
    path = scratch / f"{port}.json"
    settings = {
        "core": {"port": port},
        "storage": {"root": str(scratch / f"{port}.data")},
        "sessions": {"event_store": "sqlite"},
        "servers": [{"id": "stub", "upstream": {"url": upstream, "era": "handshake"}}],
    }
    path.write_text(json.dumps(settings))
    return Start([*ISTHMUS, "serve", str(path)])


def _isthmus_served(tokens: int) -> Starter:
    """Starts the product with a configuration file, which authentication needs, and clients with so many tokens.
    0: there is no authentication."""

    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start:
        assert isinstance(upstream, str)
        path, file = scratch / f"{port}.json", scratch / f"{port}.tokens"
        settings: dict[str, object] = {
            "core": {"port": port},
            "storage": {"root": str(scratch / f"{port}.data")},
            "servers": [{"id": "stub", "upstream": {"url": upstream, "era": "handshake"}}],
        }
        if tokens:
            issuer().write_tokens(file, tokens)
            keys = {"url": issuer().url, "jwks_url": f"{issuer().url}/keys", "audience": [AUDIENCE]}
            settings["auth"] = {"issuers": [keys]}
        path.write_text(json.dumps(settings))
        return Start([*ISTHMUS, "serve", str(path)], tokens=file if tokens else None)

    return start


def _isthmus_profile(servers: int) -> Starter:
    """Starts the product with a profile of so many servers. The stub keeps its names; the others are never needed."""

    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start:
        assert isinstance(upstream, str)
        path = scratch / f"{port}.json"
        others = [f"other-{number}" for number in range(1, servers)]
        settings = {
            "core": {"port": port},
            "storage": {"root": str(scratch / f"{port}.data")},
            "servers": [
                {"id": "stub", "upstream": {"url": upstream, "era": "handshake"}},
                *({"id": id, "upstream": {"command": ["/nonexistent"]}} for id in others),
            ],
            "profiles": [{"id": "all", "servers": [{"id": "stub", "alias": ""}, *others]}],
        }
        path.write_text(json.dumps(settings))
        return Start([*ISTHMUS, "serve", "--quiet-start", str(path)], f"{_endpoint(route)}/all")

    return start


def _isthmus_several(servers: Servers) -> Starter:
    """Starts the product with the profile of all servers. The names of each get a prefix."""

    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start:
        path = scratch / f"{port}.json"
        settings = {
            "core": {"port": port},
            "storage": {"root": str(scratch / f"{port}.data")},
            "servers": [{"id": id, "upstream": {"url": url}} for id, url in servers(upstream).items()],
        }
        path.write_text(json.dumps(settings))
        return Start([*ISTHMUS, "serve", "--quiet-start", str(path)], _endpoint(route), tool=f"{CALLED}__echo")

    return start


def _floor(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start:
    floor = [sys.executable, str(HERE / "floor.py")]
    if isinstance(upstream, list):
        return Start([*floor, "lines", str(port), *upstream])
    if route.client == "stdio":
        return Start([*floor, "posts", _port_of(upstream)])
    return Start([*floor, "relay", str(port), _port_of(upstream)])


def _floor_anyio(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    if isinstance(upstream, list) or route.client == "stdio":
        return None
    return Start([sys.executable, str(HERE / "floor.py"), "relay-anyio", str(port), _port_of(upstream)])


def _floor_h11(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    if isinstance(upstream, list) or route.client == "stdio":
        return None
    return Start([sys.executable, str(HERE / "floor_h11.py"), str(port), _port_of(upstream)])


def _port_of(url: str) -> str:
    return url.rsplit(":", 1)[1].split("/")[0]


def _nginx(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    if route.server != "http" or route.client != "http":
        return None
    assert isinstance(upstream, str)
    path = scratch / f"{port}.conf"
    path.write_text(
        f"""daemon off; master_process off; pid {scratch}/{port}.pid; error_log stderr error;
events {{ worker_connections 32768; }}
http {{
    access_log off;
    client_body_temp_path {scratch}/{port}.body; proxy_temp_path {scratch}/{port}.proxy;
    fastcgi_temp_path {scratch}/{port}.fastcgi; uwsgi_temp_path {scratch}/{port}.uwsgi;
    scgi_temp_path {scratch}/{port}.scgi;
    client_max_body_size 2g; keepalive_requests 100000000;
    upstream stub {{ server 127.0.0.1:{_port_of(upstream)}; keepalive 256; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://stub; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
            proxy_request_buffering off;
        }}
    }}
}}
"""
    )
    return Start([str(PEERS / "nginx/usr/sbin/nginx"), "-p", str(scratch), "-c", str(path), "-e", "stderr"])


def _haproxy(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    if route.server != "http" or route.client != "http":
        return None
    assert isinstance(upstream, str)
    path = scratch / f"{port}.cfg"
    path.write_text(
        f"""global
    nbthread 1
    maxconn {(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200) // 2}
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    http-reuse always
frontend in
    bind 127.0.0.1:{port} backlog 4096
    default_backend stub
backend stub
    server stub 127.0.0.1:{_port_of(upstream)}
"""
    )
    libraries = ":".join(map(str, (PEERS / "haproxy").glob("usr/lib/*-linux-gnu*")))
    command = [str(PEERS / "haproxy/usr/sbin/haproxy"), "-db", "-q", "-f", str(path)]
    return Start(command, env=(("LD_LIBRARY_PATH", libraries),))


def _supergateway(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    script = str(PEERS / "supergateway/node_modules/supergateway/dist/index.js")
    if isinstance(upstream, str):
        return Start(["node", script, "--streamableHttp", upstream, "--logLevel", "none"])
    options = ["--outputTransport", "streamableHttp", "--stateful", "--port", str(port), "--logLevel", "none"]
    return Start(["node", script, "--stdio", shlex.join(upstream), *options])


def _mcp_proxy_npm(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    if isinstance(upstream, str):
        return None
    script = str(PEERS / "mcp-proxy-npm/node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs")
    return Start(["node", script, "--port", str(port), "--host", "127.0.0.1", "--server", "stream", "--", *upstream])


def _mcp_proxy_pypi(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    program = str(PEERS / "mcp-proxy-pypi/bin/mcp-proxy")
    if isinstance(upstream, str):
        return Start([program, "--transport", "streamablehttp", upstream])
    return Start(
        [program, "--host", "127.0.0.1", "--port", str(port), "--log-level", "ERROR", "--", *upstream], "/mcp/"
    )


def _fastmcp(mode: str) -> Starter:
    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
        listen = "stdio" if route.client == "stdio" else str(port)
        target = [upstream] if isinstance(upstream, str) else upstream
        return Start([str(PEERS / "fastmcp/bin/python"), str(HERE / "peer_fastmcp.py"), mode, listen, *target])

    return start


def _fastmcp_several(mode: str, servers: Servers) -> Starter:
    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start:
        path = _mcp_servers(port, servers(upstream), scratch)
        command = [str(PEERS / "fastmcp/bin/python"), str(HERE / "peer_fastmcp.py"), mode, str(port), str(path)]
        return Start(command, tool=f"{CALLED}_echo")

    return start


def _mcp_hub(servers: Servers) -> Starter:
    """Starts mcp-hub, whose endpoint for clients has the older transport alone (HTTP with SSE). It asks for a catalogue
    on the web when it starts, and goes on without one."""

    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
        if route.client != "sse":
            return None
        path, home = _mcp_servers(port, servers(upstream), scratch), str(scratch / f"{port}.home")
        script = str(PEERS / "mcp-hub/node_modules/mcp-hub/dist/cli.js")
        command = ["node", "--require", str(HERE / "loopback.cjs"), script, "--port", str(port), "--config", str(path)]
        env = (("HOME", home), ("XDG_STATE_HOME", home))
        return Start(command, env=env, tool=f"{CALLED}__echo", health=("/api/health", '"state":"ready"'))

    return start


def _mcp_servers(port: int, servers: dict[str, str], scratch: Path) -> Path:
    """Writes the servers into a file of the form that clients have, and returns its path."""
    path = scratch / f"{port}.json"
    path.write_text(json.dumps({"mcpServers": {id: {"url": url} for id, url in servers.items()}}))
    return path


def _translate(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
    if isinstance(upstream, str):
        return None
    python = str(PEERS / "context-forge/bin/python")
    options = ["--expose-streamable-http", "--host", "127.0.0.1", "--port", str(port), "--logLevel", "error"]
    needed = tuple((name, secrets.token_hex(32)) for name in ("JWT_SECRET_KEY", "AUTH_ENCRYPTION_SECRET"))
    return Start([python, "-m", "mcpgateway.translate", "--stdio", shlex.join(upstream), *options], env=needed)


STARTERS: Final[dict[str, Starter]] = {
    "isthmus": _isthmus("protocols"),
    "isthmus-anyio": _isthmus("anyio"),
    "isthmus-relay": _relay("protocols"),
    "isthmus-relay-anyio": _relay("anyio"),
    "isthmus-logged": _isthmus("protocols", "--log-level", "info"),
    "isthmus-shared": _isthmus_shared,
    "isthmus-sqlite": _isthmus_sqlite,
    "isthmus-served": _isthmus_served(0),
    "isthmus-profile-5": _isthmus_profile(5),
    "isthmus-profile-50": _isthmus_profile(50),
    "isthmus-profile-500": _isthmus_profile(500),
    "isthmus-prefix-5": _isthmus_several(_five),
    "isthmus-lists": _isthmus_several(_twelve),
    "isthmus-jwt": _isthmus_served(1),
    "isthmus-jwt-turns": _isthmus_served(17),  # one more than there are sessions
    "isthmus-new-jwt": _isthmus_served(NEW_TOKENS),
    "floor": _floor,
    "floor-anyio": _floor_anyio,
    "floor-h11": _floor_h11,
    "nginx": _nginx,
    "haproxy": _haproxy,
    "supergateway": _supergateway,
    "mcp-proxy-npm": _mcp_proxy_npm,
    "mcp-proxy-pypi": _mcp_proxy_pypi,
    "fastmcp": _fastmcp("default"),
    "fastmcp-reused": _fastmcp("reused"),
    "fastmcp-5": _fastmcp_several("default", _five),
    "fastmcp-reused-5": _fastmcp_several("reused", _five),
    "fastmcp-lists": _fastmcp_several("default", _twelve),
    "fastmcp-reused-lists": _fastmcp_several("reused", _twelve),
    "mcp-hub-5": _mcp_hub(_five),
    "mcp-hub-lists": _mcp_hub(_twelve),
    "translate": _translate,
}


def why_absent(name: str) -> str | None:
    """Returns the reason why a subject cannot be measured here; None if it can."""
    return is_there(name)
