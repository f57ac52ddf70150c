"""The entry of an endpoint in the file of each MCP client: where the file is, and what goes into it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from .banner import own_path

PLACEHOLDER: Final = "TOKEN"
"""Stands for the token that callers must show. A secret is never printed."""
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

Json = dict[str, object]


class Endpoint(NamedTuple):
    """An endpoint that a client is connected to.

    Attributes:
        name: the name that the client is to have for it.
        asks: callers must show a token.
    """

    name: str
    url: str
    asks: bool = False

    @property
    def headers(self) -> Json:
        return {"headers": {"Authorization": f"Bearer {PLACEHOLDER}"}} if self.asks else {}


class Target(NamedTuple):
    """One client.

    Attributes:
        title: its name for people, and in `config.dialects.clients` if its files are read.
        files: where its file is: on Linux, on macOS, on Windows; one, if it is the same on all.
        place: the keys that its servers stand below.
        entry: makes the entry of a server.
        ending: json, toml or yaml.
        head: what the file must have beside the servers, or the client refuses it.
        command: makes a command line that does the same; None: there is none.
        note: what the client wants besides before it connects.
    """

    title: str
    files: tuple[str, ...]
    place: str
    entry: Callable[[Endpoint], Json]
    ending: str = "json"
    head: Json | None = None
    command: Callable[[Endpoint], list[str]] | None = None
    note: str = ""


def _http(**more: str) -> Callable[[Endpoint], Json]:
    return lambda to: {**more, "url": to.url, **to.headers}


def _stdio(to: Endpoint) -> Json:
    """Returns the entry for a client that starts commands only."""
    return {"command": own_path(), "args": ["wrap", "--listen", "stdio", *_header(to), to.url]}


def _mcp_remote(to: Endpoint) -> Json:
    header = ["--header", f"Authorization:Bearer {PLACEHOLDER}"] if to.asks else []
    is_plain = to.url.startswith("http://")
    return {"command": "npx", "args": ["-y", "mcp-remote", to.url, *(["--allow-http"] if is_plain else []), *header]}


def _in_options(to: Endpoint) -> Json:
    return {"type": "streamable-http", "url": to.url, **({"requestOptions": to.headers} if to.asks else {})}


def _codex(to: Endpoint) -> Json:
    return {"url": to.url, **({"http_headers": to.headers["headers"]} if to.asks else {})}


def _added(*words: str) -> Callable[[Endpoint], list[str]]:
    """Returns what makes the command line of a client that adds a server: `words`, name, URL and header."""
    return lambda to: [*words, "--transport", "http", to.name, to.url, *_header(to)]


def _codex_added(to: Endpoint) -> list[str]:
    """Returns the command line of Codex, which takes a token from a variable only."""
    token = ["--bearer-token-env-var", "ISTHMUS_TOKEN"] if to.asks else []
    return ["codex", "mcp", "add", to.name, "--url", to.url, *token]


def _header(to: Endpoint) -> list[str]:
    return ["--header", f"Authorization: Bearer {PLACEHOLDER}"] if to.asks else []


def _inspector(to: Endpoint) -> list[str]:
    package = "@modelcontextprotocol/inspector"
    return ["npx", "-y", package, "--cli", to.url, "--transport", "http", *_header(to), "--method", "tools/list"]


TARGETS: Final[dict[str, Target]] = {
    "claude-desktop": Target(
        "Claude Desktop",
        (
            "~/.config/Claude/claude_desktop_config.json",
            "~/Library/Application Support/Claude/claude_desktop_config.json",
            "%APPDATA%\\Claude\\claude_desktop_config.json",
        ),
        "mcpServers",
        _stdio,
    ),
    "claude-code": Target(
        "Claude Code",
        (".mcp.json in the project",),
        "mcpServers",
        _http(type="http"),
        command=_added("claude", "mcp", "add"),
        note="Claude Code asks at its next start whether to use the servers of that file",
    ),
    "vscode": Target("VS Code", (".vscode/mcp.json in the workspace",), "servers", _http(type="http")),
    "cursor": Target("Cursor", ("~/.cursor/mcp.json",), "mcpServers", _http()),
    "windsurf": Target(
        "Windsurf",
        ("~/.codeium/windsurf/mcp_config.json",),
        "mcpServers",
        lambda to: {"serverUrl": to.url, **to.headers},
    ),
    "cline": Target(
        "Cline",
        ("cline_mcp_settings.json, which Cline opens: MCP Servers, Configure",),
        "mcpServers",
        _http(type="streamableHttp"),
    ),
    "roo": Target("Roo Code", (".roo/mcp.json in the project",), "mcpServers", _http(type="streamable-http")),
    "gemini": Target(
        "Gemini CLI",
        ("~/.gemini/settings.json",),
        "mcpServers",
        lambda to: {"httpUrl": to.url, **to.headers},
        command=_added("gemini", "mcp", "add", "--scope", "user"),
        note="Gemini CLI connects only in folders that you trust",
    ),
    "codex": Target("Codex", ("~/.codex/config.toml",), "mcp_servers", _codex, "toml", command=_codex_added),
    "copilot": Target(
        "GitHub Copilot CLI",
        ("~/.copilot/mcp-config.json",),
        "mcpServers",
        _http(type="http"),
        command=_added("copilot", "mcp", "add"),
    ),
    "opencode": Target("opencode", ("~/.config/opencode/opencode.json",), "mcp", _http(type="remote")),
    "zed": Target(
        "Zed",
        ("~/.config/zed/settings.json", "~/.config/zed/settings.json", "%APPDATA%\\Zed\\settings.json"),
        "context_servers",
        _http(),
    ),
    "continue": Target(
        "Continue",
        ("~/.continue/config.yaml",),
        "mcpServers[]",
        _in_options,
        "yaml",
        head={"name": "Local", "version": "0.0.1", "schema": "v1"},
    ),
    "librechat": Target(
        "LibreChat",
        ("librechat.yaml of its server",),
        "mcpServers",
        _http(type="streamable-http"),
        "yaml",
        note="LibreChat rejects addresses of private networks and of its own machine. Add HOST:PORT to "
        "mcpSettings.allowedAddresses",
    ),
    "inspector": Target(
        "MCP Inspector",
        ("a file for its options --config FILE --server NAME",),
        "mcpServers",
        _http(type="streamable-http"),
        command=_inspector,
        note="The Inspector requires Node.js 22.19 or newer. With an older one, npx starts version 0.15, which sends "
        "no headers",
    ),
    "mcp-remote": Target("mcp-remote", ("the file of a client that starts commands",), "mcpServers", _mcp_remote),
    "json": Target("any client", ("the file of the client",), "mcpServers", _http()),
}
"""The clients by the names that `isthmus connect-info` takes."""


def file_of(target: Target, platform: str = sys.platform) -> str:
    """Returns where the file of a client is on an operating system."""
    place = {"darwin": 1, "win32": 2}.get(platform, 0)
    return target.files[place if place < len(target.files) else 0]


def snippet(target: Target, to: Endpoint) -> str:
    """Returns the text for the file of a client. It is a document by itself, to be merged with what stands there."""
    entry = target.entry(to)
    if target.ending == "toml":
        lines = [f"[{target.place}.{_toml_key(to.name)}]"]
        return "\n".join([*lines, *(f"{key} = {_toml(value)}" for key, value in entry.items())])
    if target.place.endswith("[]"):
        document: Json = {**(target.head or {}), target.place.removesuffix("[]"): [{"name": to.name, **entry}]}
    else:
        document = {**(target.head or {}), target.place: {to.name: entry}}
    if target.ending == "yaml":
        import yaml  # late: few clients need it

        text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        return text.rstrip("\n")
    return json.dumps(document, indent=2, ensure_ascii=False)


def command_line(target: Target, to: Endpoint) -> str:
    """Returns a command that adds the entry, or that uses the endpoint; "" if the client has none."""
    return "" if target.command is None else shlex.join(target.command(to))


def _toml_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)
