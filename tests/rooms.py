"""The rooms of the tree, from the ground up, and which rooms each may import.

A room is a folder. A row holds the folders that its files import, itself left out; each of them has a row above. A file
that stands outside a room (`core/engine.py`) has a row of its own kind, "core" for all of them.

`tests/test_layers.py` fails on any other import, and on an arrow that no import uses any more. `docs/generate.py` draws
the picture in `docs/architecture.md` from the same table.
"""

from __future__ import annotations

from typing import Final

CORE: Final[dict[str, tuple[str, ...]]] = {
    "core/base": (),
    "core/access": ("core/base",),
    "core/jsonrpc": ("core/base",),
    "core/oracle": ("core/base",),
    "core/replicas": ("core/base",),
    "core/search": ("core/base",),
    "core/tracing": ("core/base", "core/jsonrpc"),
    "core/wire": ("core/base",),
    "core/wire/http1": ("core/wire",),
    "core/wire/http": ("core/access", "core/base", "core/jsonrpc", "core/wire", "core/wire/http1"),
    "core/logins": ("core/base", "core/wire/http"),
    "core/connect": ("core/access", "core/logins"),
    "core/bridge": ("core/base", "core/jsonrpc"),
    "core/governance": ("core/base", "core/bridge", "core/jsonrpc"),
    "core/state": ("core/base", "core/bridge", "core/governance", "core/jsonrpc", "core/tracing", "core/wire/http"),
    "core/downstream": ("core/base", "core/bridge", "core/jsonrpc", "core/state", "core/tracing"),
    "core/upstream": (
        "core/access",
        "core/base",
        "core/bridge",
        "core/downstream",
        "core/governance",
        "core/jsonrpc",
        "core/state",
        "core/wire/http",
    ),
    "core/caching": (
        "core/base",
        "core/bridge",
        "core/downstream",
        "core/jsonrpc",
        "core/state",
        "core/upstream",
    ),
    "core/subscriptions": (
        "core/base",
        "core/bridge",
        "core/downstream",
        "core/jsonrpc",
        "core/state",
        "core/upstream",
    ),
    "core/input_required": (
        "core/base",
        "core/bridge",
        "core/downstream",
        "core/jsonrpc",
        "core/state",
        "core/upstream",
    ),
    "core/tasks": (
        "core/base",
        "core/bridge",
        "core/downstream",
        "core/jsonrpc",
        "core/state",
        "core/subscriptions",
        "core/upstream",
        "core/wire/http",
    ),
    "core/files/store": ("core/base", "core/state"),
    "core/files/calls": (
        "core/base",
        "core/bridge",
        "core/files/store",
        "core/jsonrpc",
        "core/state",
        "core/upstream",
    ),
    "core/files/transfer": (
        "core/base",
        "core/downstream",
        "core/files/calls",
        "core/files/store",
        "core/state",
        "core/wire/http",
    ),
    "core/files": (
        "core/base",
        "core/bridge",
        "core/downstream",
        "core/files/calls",
        "core/files/store",
        "core/files/transfer",
        "core/jsonrpc",
        "core/state",
        "core/upstream",
    ),
    "core/profiles": (
        "core/access",
        "core/base",
        "core/bridge",
        "core/downstream",
        "core/input_required",
        "core/jsonrpc",
        "core/search",
        "core/state",
        "core/subscriptions",
    ),
    "core/routing": (
        "core/base",
        "core/bridge",
        "core/caching",
        "core/downstream",
        "core/jsonrpc",
        "core/state",
        "core/subscriptions",
        "core/upstream",
        "core/wire",
        "core/wire/http",
    ),
    "core/endpoints": (
        "core/base",
        "core/bridge",
        "core/downstream",
        "core/input_required",
        "core/jsonrpc",
        "core/routing",
        "core/state",
        "core/subscriptions",
        "core/upstream",
        "core/wire",
        "core/wire/http",
    ),
    "core": (
        "core/access",
        "core/base",
        "core/downstream",
        "core/endpoints",
        "core/files",
        "core/input_required",
        "core/jsonrpc",
        "core/profiles",
        "core/routing",
        "core/state",
        "core/subscriptions",
        "core/tasks",
        "core/upstream",
        "core/wire",
        "core/wire/http",
    ),
    "core/testing": ("core", "core/base"),
}

TRANSPORTS: Final[dict[str, tuple[str, ...]]] = {
    "transports/base": (),
    "transports/http1": (),
    "transports/http2": (),
    "transports/http_client": ("transports/base", "transports/http1", "transports/http2"),
    "transports/sse": ("transports/base", "transports/http_client"),
    "transports/websocket": ("transports/base",),
    "transports/stdio": ("transports/base",),
    "transports/unix": ("transports/base", "transports/stdio"),
    "transports/reverse_proxy": ("transports/base", "transports/http1"),
    "transports/tls": ("transports/base",),
    "transports/http_server": (
        "transports/base",
        "transports/http1",
        "transports/reverse_proxy",
        "transports/tls",
        "transports/websocket",
    ),
    "transports": ("transports/base", "transports/http1"),
    "transports/access": ("transports",),
}

STORAGE: Final[dict[str, tuple[str, ...]]] = {"storage": ()}

APP: Final[dict[str, tuple[str, ...]]] = {
    "app/base": (),
    "app/config/dialects": ("app/base",),
    "app/config": ("app/base", "app/config/dialects"),
    "app/disk": (),
    "app/telemetry": ("app/base", "app/config"),
    "app/stores": ("app/base", "app/config", "app/disk"),
    "app/cluster": ("app/base", "app/config", "app/stores"),
    "app/logins": ("app/base", "app/cluster", "app/config", "app/stores"),
    "app/runtime": ("app/base", "app/config", "app/disk"),
    "app/workers": ("app/base", "app/config", "app/disk", "app/runtime", "app/stores"),
    "app/admin": ("app/base", "app/config", "app/runtime", "app/telemetry"),
    "app/watch": ("app/base", "app/config", "app/runtime"),
    "app/trying": ("app/base", "app/runtime"),
    "app/conform/script": ("app/base",),
    "app/conform/generate": ("app/conform/script",),
    "app/conform/clients": ("app/base", "app/config", "app/conform/script"),
    "app/conform/servers": ("app/base", "app/config", "app/conform/clients", "app/conform/script"),
    "app/conform/verdict": ("app/base", "app/conform/script"),
    "app/conform/search": (
        "app/base",
        "app/config",
        "app/conform/clients",
        "app/conform/generate",
        "app/conform/script",
        "app/conform/servers",
        "app/conform/verdict",
    ),
    "app/conform": (
        "app/base",
        "app/config",
        "app/conform/clients",
        "app/conform/script",
        "app/conform/search",
        "app/conform/verdict",
    ),
    # `gateway` stands below `commands` and `cli`, `main` above them.
    "app/gateway.py": (
        "app/admin",
        "app/base",
        "app/cluster",
        "app/config",
        "app/disk",
        "app/logins",
        "app/runtime",
        "app/stores",
        "app/telemetry",
        "app/workers",
        "app/watch",
    ),
    "app/driver_checks": ("app/base",),
    "app/commands": (
        "app/admin",
        "app/base",
        "app/cluster",
        "app/config",
        "app/disk",
        "app/gateway.py",
        "app/logins",
        "app/runtime",
        "app/stores",
    ),
    "app/terminal": ("app/base", "app/commands"),
    "app/cli": (
        "app/admin",
        "app/base",
        "app/cluster",
        "app/commands",
        "app/config",
        "app/config/dialects",
        "app/conform",
        "app/driver_checks",
        "app/gateway.py",
        "app/logins",
        "app/runtime",
        "app/stores",
        "app/terminal",
        "app/trying",
        "app/workers",
    ),
    "app": ("app/cli",),
}

PARTS: Final[dict[str, tuple[str, ...]]] = {
    "core": (),
    "transports": ("core",),
    "storage": (),
    "app": ("core", "transports", "storage"),
}
"""The parts that are installed under `isthmus`, and which other parts each may import."""

ROOMS: Final[dict[str, tuple[str, ...]]] = {**CORE, **TRANSPORTS, **STORAGE, **APP}

LOOSE: Final[dict[str, frozenset[str]]] = {
    "core": frozenset(
        {"bulk", "client_exchange", "engine", "features", "line_channel", "server_exchange", "status", "trace"}
    ),
    "transports": frozenset({"memory", "web_fetch"}),
    "app": frozenset({"gateway", "main"}),
}
"""The files that may stand outside a room."""


def room_of(path: str) -> str:
    """The room of a file, given as its path from the root of the tree: `core/files/plane.py` is in `core/files`."""
    return path if path in ROOMS else path.rpartition("/")[0]
