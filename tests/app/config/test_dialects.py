"""Tests of the files of MCP clients: the plan that each becomes, or the error that refuses it."""

from __future__ import annotations

import copy
import json
import logging
import random
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.dialects.clients import CLIENTS, Client
from isthmus.app.config.dialects.keys import KEYS, Meaning, key_of, nearest_key
from isthmus.app.config.dialects.recognition import recognize
from isthmus.app.config.dialects.surroundings import Input, Surroundings
from isthmus.app.config.jsonc import read_json
from isthmus.app.config.load import Source, open_source
from isthmus.app.config.plan import to_plan
from isthmus.app.config.settings import Server, Settings

ENVIRON = {"HOME": "/home/ann", "KEY": "4711", "ZONE": "Asia/Tokyo", "MY_TOKEN": "t0"}
FILES = {"/w/.env": "# of the team\nexport A=1\nB='two # 2'\n", "/w/secret.txt": "s3cret\n"}
Json = dict[str, Any]


def read_text(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


def source(document: object, path: str = "/w/servers.json", **more: Any) -> Source:
    text = document if isinstance(document, str) else json.dumps(document)
    format = {"yaml": "yaml", "toml": "toml"}.get(path.rpartition(".")[2], "json")
    more = {"environ": ENVIRON, "read_text": read_text, **more}
    return Source(text, format, Surroundings(path, **more))


def servers(document: object, path: str = "/w/servers.json", **more: Any) -> dict[str, Server]:
    return {server.id: server for server in source(document, path, **more).settings().servers}


def refusal(document: object, path: str = "/w/servers.json", **more: Any) -> str:
    with pytest.raises(ConfigError) as error:
        source(document, path, **more).settings()
    return error.value.message


def sheet(server: Server) -> Json:
    """A server as one mapping, without the values that are the default."""
    up = server.upstream
    full = {
        "command": list(up.command or ()),
        "env": up.env,
        "cwd": up.cwd,
        "url": up.url,
        "transport": None if up.transport == "auto" else up.transport,
        "headers": up.headers,
        "pass": list(up.pass_headers),
        "proxy": up.proxy,
        "verify": None if up.verify_tls else False,
        "include": list(server.tools.include or ()),
        "exclude": list(server.tools.exclude or ()),
        "prompts": list(server.prompts.exclude or ()),
        "call": server.call_timeout_seconds,
        "start": server.start_timeout_seconds,
        "total": server.tool_time_limits,
        "path": server.further_path,
    }
    return {name: value for name, value in full.items() if value not in (None, [], {})}


CLOCK: Json = {"command": "clock", "args": ["-v"]}
RUN = {"command": ["clock", "-v"]}
URL = "http://h/mcp"


def of(server: object, **top: Any) -> Json:
    return {"mcpServers": {"a": server}, **top}


# For each dialect: its name, the path and the document, and the servers that it becomes.
READ: list[tuple[str, str, object, Json]] = [
    ("an MCP client", "/w/x.json", of(CLOCK), {"a": RUN}),
    ("an MCP client", "/w/x.json", of(CLOCK | {"timeout": 90}), {"a": RUN | {"call": 90}}),
    ("an MCP client", "/w/x.json", of(CLOCK | {"timeout": 90_000}), {"a": RUN | {"call": 90}}),
    ("Claude Desktop", "/w/x.json", of(CLOCK, preferences={"a": 1}, globalShortcut=""), {"a": RUN}),
    (
        "Claude Code",
        "/w/.mcp.json",
        of({"command": "${CLAUDE_PROJECT_DIR}/run", "args": ["${NO:-d}"], "timeout": 500, "alwaysLoad": True}),
        {"a": {"command": ["/w/run", "d"], "call": 0.5}},
    ),
    (
        "Claude Code",
        "/w/.mcp.json",
        of({"type": "ws", "url": "ws://h"}),
        {"a": {"url": "ws://h", "transport": "websocket"}},
    ),
    ("a plugin", "/w/x.json", {"a": CLOCK, "b": {"url": URL}}, {"a": RUN, "b": {"url": URL}}),
    (
        "VS Code",
        "/w/.vscode/mcp.json",
        '{"servers": {"a": {"command": "./run", "cwd": "${workspaceFolder}", // here\n'
        '"envFile": "${workspaceFolder}/.env", "env": {"H": "${userHome}", "B": 3, "N": null}, "dev": {},},},}',
        {"a": {"command": ["/w/run"], "cwd": "/w", "env": {"A": "1", "B": "3", "H": "/home/ann"}}},
    ),
    ("VS Code", "/w/x.json", {"mcp": {"servers": {"a": CLOCK}, "inputs": []}}, {"a": RUN}),
    (
        "Cursor",
        "/w/.cursor/mcp.json",
        of({"url": URL, "headers": {"X": "${env:KEY}", "Accept": "*/*"}, "auth": {"CLIENT_ID": "i"}}),
        {"a": {"url": URL, "headers": {"X": "4711"}}},
    ),
    (
        "Windsurf",
        "/w/x.json",
        of({"serverUrl": URL, "headers": {"X": "${file:secret.txt}"}}),
        {"a": {"url": URL, "headers": {"X": "s3cret"}}},
    ),
    (
        "Cline",
        "/w/x.json",
        of(CLOCK | {"transportType": "stdio", "timeout": 60, "disabledTools": ["t"], "autoApprove": []}),
        {"a": RUN | {"call": 60, "exclude": ["t"]}},
    ),
    (
        "Roo Code",
        "/w/x.json",
        of({"type": "streamable-http", "url": URL, "alwaysAllow": [], "timeout": 3600}),
        {"a": {"url": URL, "transport": "streamable_http", "call": 3600}},
    ),
    (
        "Kiro",
        "/w/x.json",
        of(CLOCK | {"env": {"K": "$KEY", "L": "a$"}}, powers={}),
        {"a": RUN | {"env": {"K": "4711", "L": "a$"}}},
    ),
    (
        "GitHub Copilot CLI",
        "/w/x.json",
        of(CLOCK | {"type": "local", "tools": ["*"]}),
        {"a": RUN},
    ),
    ("GitHub Copilot CLI", "/w/mcp-config.json", of(CLOCK | {"tools": []}), {"a": RUN | {"exclude": ["*"]}}),
    (
        "Gemini CLI",
        "/w/.gemini/settings.json",
        {
            "mcpServers": {
                "a": {"httpUrl": URL, "url": "http://h/sse", "timeout": 5000},
                "b": {"url": URL, "includeTools": ["run(ls)", "x"], "excludeTools": ["x"], "trust": True},
                "c": CLOCK,
            },
            "mcp": {"allowed": ["a", "b", "d"], "excluded": ["d"]},
        },
        {
            "a": {"url": URL, "transport": "streamable_http", "call": 5},
            "b": {"url": URL, "transport": "sse", "include": ["run", "x"], "exclude": ["x"]},
        },
    ),
    (
        "Codex",
        "/w/config.toml",
        '[mcp_servers.a]\nurl = "http://h/mcp"\nbearer_token_env_var = "KEY"\nhttp_headers = {"X-R" = "eu"}\n'
        'env_http_headers = {"X-K" = "ZONE"}\nenabled_tools = ["t"]\nstartup_timeout_sec = 20\ntool_timeout_sec = 4.5\n'
        '[mcp_servers.b]\ncommand = "clock"\nargs = ["-v"]\nenv_vars = ["KEY", "UNSET"]\n'
        "[mcp_servers.c]\nenabled = false\n",
        {
            "a": {
                "url": URL,
                "headers": {"X-R": "eu", "X-K": "Asia/Tokyo", "Authorization": "Bearer 4711"},
                "include": ["t"],
                "start": 20,
                "call": 4.5,
            },
            "b": RUN | {"env": {"KEY": "4711"}},
        },
    ),
    (
        "opencode",
        "/w/opencode.jsonc",
        {
            "mcp": {
                "a": {"type": "local", "command": ["clock", "-v"], "environment": {"K": "{env:KEY}"}, "timeout": 5000},
                "b": {"type": "remote", "url": URL, "oauth": False, "headers": {"F": "{file:./secret.txt}"}},
            },
            "tools": {"a_get_*": False, "b*": False, "edit": False},
        },
        {
            "a": RUN | {"env": {"K": "4711"}, "start": 5, "exclude": ["get_*"]},
            "b": {"url": URL, "headers": {"F": "s3cret"}, "exclude": ["*"]},
        },
    ),
    (
        "opencode",
        "/w/opencode.json",
        {
            "mcp": {
                "servers": {
                    "a": {"type": "local", "command": ["clock", "-v"], "timeout": {"startup": 1000, "request": 2000}}
                }
            }
        },
        {"a": RUN | {"start": 1, "call": 2}},
    ),
    (
        "OpenClaw",
        "/w/x.json",
        {
            "mcp": {
                "servers": {"a": CLOCK | {"toolFilter": {"include": ["i"], "exclude": ["e"]}, "requestTimeoutMs": 1500}}
            }
        },
        {"a": RUN | {"include": ["i"], "exclude": ["e"], "call": 1.5}},
    ),
    (
        "Zed",
        "/w/x.json",
        {
            "context_servers": {
                "a": {"command": {"path": "clock", "args": ["-v"], "env": None}, "settings": {}},
                "b": {"source": "extension", "settings": {"k": 1}},
            }
        },
        {"a": RUN},
    ),
    (
        "Continue",
        "/w/config.yaml",
        {
            "mcpServers": [
                {
                    "name": "a",
                    "command": "clock",
                    "args": ["-v"],
                    "env": {"K": "${{ secrets.KEY }}"},
                    "connectionTimeout": 500,
                },
                {
                    "name": "b",
                    "url": URL,
                    "apiKey": "k",
                    "requestOptions": {"headers": {"X": "y"}, "verifySsl": False, "timeout": 9},
                },
            ]
        },
        {
            "a": RUN | {"env": {"K": "4711"}, "start": 0.5},
            "b": {"url": URL, "headers": {"X": "y", "Authorization": "Bearer k"}, "verify": False, "call": 9},
        },
    ),
    (
        "LibreChat",
        "/w/librechat.yaml",
        of(CLOCK | {"timeout": 60000, "initTimeout": 20000, "chatMenu": False}, interface={}, cache=True),
        {"a": RUN | {"call": 60, "start": 20}},
    ),
    (
        "mcpo",
        "/w/x.json",
        of(
            {
                "url": URL,
                "client_header_forwarding": {"enabled": True, "whitelist": ["X-A", "X-B"], "blacklist": ["x-b"]},
            }
        ),
        {"a": {"url": URL, "pass": ["X-A"]}},
    ),
    (
        "TBXark's mcp-proxy",
        "/w/x.json",
        of(
            CLOCK | {"options": {"toolFilter": {"mode": "allow", "list": ["t"]}}},
            mcpProxy={"addr": ":9090", "type": "streamable-http", "options": {"authTokens": ["x"]}},
        ),
        {"a": RUN | {"include": ["t"], "path": "/a/mcp"}},
    ),
    (
        "FastMCP",
        "/w/x.json",
        of(
            {"transport": "http", "url": URL, "auth": "tok", "sse_read_timeout": 60, "tools": {"t": {"enabled": False}}}
        ),
        {"a": {"url": URL, "headers": {"Authorization": "Bearer tok"}, "call": 60, "exclude": ["t"]}},
    ),
    (
        "Amp",
        "/w/settings.json",
        {"amp.mcpServers": {"a": CLOCK | {"includeTools": ["x*"]}}},
        {"a": RUN | {"include": ["x*"]}},
    ),
    (
        "Goose",
        "/w/config.yaml",
        {
            "extensions": {
                "dev": {"type": "builtin", "enabled": True},
                "a": {
                    "type": "stdio",
                    "cmd": "clock",
                    "args": ["-v"],
                    "envs": {},
                    "env_keys": ["KEY"],
                    "timeout": 300,
                    "available_tools": [],
                },
            }
        },
        {"a": RUN | {"env": {"KEY": "4711"}, "call": 300}},
    ),
    (
        "MetaMCP",
        "/w/x.json",
        of({"type": "STREAMABLE_HTTP", "url": URL, "bearerToken": "${KEY}"}),
        {"a": {"url": URL, "transport": "streamable_http", "headers": {"Authorization": "Bearer 4711"}}},
    ),
    (
        "MCPHub",
        "/w/x.json",
        of(
            CLOCK
            | {
                "owner": "o",
                "options": {"timeout": 60000, "maxTotalTimeout": 90000},
                "tools": {"t": {"enabled": False, "description": ""}, "u": {"enabled": True}},
                "prompts": {"p": {"enabled": False}},
            },
            users=[{"username": "u"}],
        ),
        {"a": RUN | {"call": 60, "total": {"*": 90}, "exclude": ["t"], "prompts": ["p"]}},
    ),
    # A program that replaces variables in its arguments itself, with those of its own environment.
    (
        "Claude Desktop",
        "/w/claude_desktop_config.json",
        of({"command": "mcp-remote", "args": [URL, "--header", "A:${H}"], "env": {"H": "Bearer ${KEY}"}}),
        {"a": {"command": ["mcp-remote", URL, "--header", "A:Bearer 4711"], "env": {"H": "Bearer 4711"}}},
    ),
    (
        "Cursor",
        "/w/.cursor/mcp.json",
        of({"command": "npx -y clock http://h"}),
        {"a": {"command": ["npx", "-y", "clock", "http://h"]}},
    ),
    # A limit that is for another client: no server is given five hours, or a tenth of a second.
    ("Cline", "/w/x.json", of(CLOCK | {"autoApprove": [], "timeout": 60_000}), {"a": RUN | {"call": 60}}),
    ("Cline", "/w/cline_mcp_settings.json", of(CLOCK | {"timeout": 1_800_000}), {"a": RUN | {"call": 1800}}),
    (
        "TBXark's mcp-proxy",
        "/w/x.json",
        of({"url": URL, "timeout": 10}, mcpProxy={})
        | {"mcpServers": {"a": {"url": URL, "timeout": 10}, "b": {"url": URL, "timeout": 30_000_000_000}}},
        {"a": {"url": URL, "call": 10}, "b": {"url": URL, "call": 30}},
    ),
    ("MCPHub", "/w/mcp_settings.json", of(CLOCK | {"options": {"timeout": 60_000}}), {"a": RUN | {"call": 60}}),
    (
        "MCPHub",
        "/w/x.json",
        of({"url": URL, "passthroughHeaders": ["X-A"]}, users=[]),
        {"a": {"url": URL, "pass": ["X-A"]}},
    ),
    (
        "GitHub Copilot CLI",
        "/w/mcp-config.json",
        of({"type": "http", "url": URL, "headers": {"A": "Bearer $KEY"}}),
        {"a": {"url": URL, "headers": {"A": "Bearer 4711"}}},
    ),
    (
        "Gemini CLI",
        "/w/.gemini/settings.json",
        {
            "allowMCPServers": ["a", "b"],
            "excludeMCPServers": ["b"],
            "mcpServers": {"a": {"tcp": "ws://h"}, "b": CLOCK, "c": CLOCK},
        },
        {"a": {"url": "ws://h", "transport": "websocket"}},
    ),
    (
        "opencode",
        "/w/opencode.json",
        {
            "mcp": {"a": {"type": "local", "command": ["clock", "-v"]}, "b": {"type": "remote", "url": URL}},
            "permission": {"a_del*": "deny", "edit": "ask", "b_*": "deny", "b_get": "allow"},
            "experimental": {"mcp_timeout": 9000},
        },
        {"a": RUN | {"exclude": ["del*"], "call": 9}, "b": {"url": URL, "include": ["get"], "call": 9}},
    ),
    (
        "opencode",
        "/w/opencode.json",
        {
            "mcp": {
                "timeout": {"startup": 1000, "request": 2000},
                "servers": {
                    "a": {"type": "local", "command": ["clock", "-v"]},
                    "b": {"type": "remote", "url": URL, "timeout": {"request": 3000}},
                },
            }
        },
        {"a": RUN | {"start": 1, "call": 2}, "b": {"url": URL, "start": 1, "call": 3}},
    ),
    (
        "OpenClaw",
        "/w/x.json",
        {
            "mcp": {
                "servers": {
                    "a": {"url": URL, "transport": "http", "timeout": 20, "connectTimeout": 5, "sslVerify": False}
                }
            },
            "agents": {},
        },
        {"a": {"url": URL, "verify": False, "call": 20, "start": 5}},
    ),
    (
        "Zed",
        "/w/settings.json",
        {
            "context_server_timeout": 90,
            "context_servers": {"a": CLOCK | {"timeout": 5000}, "b": {"url": URL, "remote": False}},
        },
        {"a": RUN | {"call": 5000}, "b": {"url": URL, "call": 90}},
    ),
    (
        "LibreChat",
        "/w/librechat.yaml",
        of(
            {
                "url": URL,
                "apiKey": {"source": "admin", "authorization_type": "custom", "custom_header": "X-K", "key": "${KEY}"},
            }
        ),
        {"a": {"url": URL, "headers": {"X-K": "4711"}}},
    ),
    (
        "Continue",
        "/w/.continue/mcpServers/x.json",
        {"mcpServers": [{"name": "a", **CLOCK}, {"uses": "docker/mcp-time", "with": {"K": "v"}}]},
        {"a": RUN},
    ),
    (
        "a Docker catalog",
        "/w/x.yaml",
        {
            "registry": {
                "a": {
                    "type": "remote",
                    "remote": {"url": URL, "transport_type": "streamable", "headers": {"X": "${KEY}"}},
                },
                "b": {"sseEndpoint": "http://h/sse"},
                "c": {"type": "server", "image": "mcp/c", "command": ["x"], "env": [{"name": "Z", "value": "{{c.z}}"}]},
            }
        },
        {"a": {"url": URL, "transport": "streamable_http", "headers": {"X": "4711"}}, "b": {"url": "http://h/sse"}},
    ),
]


@each_row(("title", "path", "document", "expected"), READ)
def test_a_file_of_a_client_is_read(title: str, path: str, document: object, expected: Json) -> None:
    """Every server of the file that is not switched off is there, and is what the client would start."""
    opened = source(document, path)
    assert opened.title == title
    assert {server.id: sheet(server) for server in opened.settings().servers} == expected


def test_every_dialect_has_a_sample() -> None:
    assert {title for title, *_ in READ} == {client.title for client in CLIENTS}


REFUSED: list[tuple[Json, str]] = [
    (
        of(CLOCK | {"env": {"K": "${UNSET}"}}),
        "mcpServers.a.env.K: the environment variable UNSET is not set; set it",
    ),
    (of(CLOCK | {"args": ["${A:-${B}}"]}), "mcpServers.a.args[0]: got ${ without its }, expected a closing }"),
    (of(CLOCK | {"args": ["${config:x}"]}), "mcpServers.a.args[0]: got ${config:x}, expected ${NAME}"),
    (of(CLOCK | {"envFile": "no.env"}), "mcpServers.a.envFile: got /w/no.env, which cannot be read: No such file"),
    (
        of({"url": URL, "headersHelper": "/x"}),
        "mcpServers.a.headersHelper: got a key that Isthmus cannot honour, expected the headers",
    ),
    (
        of({"url": URL, "oauth": {"clientId": "x"}}),
        "mcpServers.a.oauth: got a key that Isthmus cannot honour, expected a token",
    ),
    (of({"url": URL, "auth": "oauth"}), "mcpServers.a.auth: got oauth, expected a token"),
    (of(CLOCK | {"include_tags": ["x"]}), "mcpServers.a.include_tags: got a key that Isthmus cannot honour"),
    (of(CLOCK | {"transport": "stdio", "tools": {"t": {"name": "n"}}}), "mcpServers.a.tools.t.name: got a change"),
    (of({"url": URL, "headers": {"X": "{{USER}}"}}, mcpSettings={}), "mcpServers.a.headers.X: got {{USER}}"),
    (of({"comand": "x"}), "mcpServers.a.comand: unknown key; did you mean command?"),
    (of(CLOCK | {"timeout": 0}), "mcpServers.a.timeout: got 0, expected a number above 0"),
    (of(CLOCK | {"timeout": "soon"}), "mcpServers.a.timeout: got text, expected a number above 0"),
    (of(CLOCK | {"url": URL}), "mcpServers.a: both command and url"),
    (of({"url": URL, "serverUrl": "http://other"}), "mcpServers.a.serverUrl: got another value, expected the value of"),
    (of({"type": "pigeon", "url": URL}), "mcpServers.a.type: got 'pigeon', expected stdio, http, streamable-http"),
    (of(CLOCK | {"disabled": True}), "mcpServers: every server is disabled"),
    (of(CLOCK | {"disabled": "maybe"}), "mcpServers.a.disabled: got text, expected true or false"),
    ({"mcpServers": {"a": 5}}, "mcpServers.a: got a number, expected keys with values"),
    (
        {"registry": {"a": {"image": "x"}}},
        "registry: none is left: registry.a is left out: it is an image; isthmus wrap -- docker run -i --rm IMAGE "
        "serves one, expected at least one server that Isthmus can start",
    ),
    (of({"url": URL, "client_header_forwarding": {"enabled": True, "whitelist": ["X-*"]}}), "whitelist[0]: got 'X-*'"),
    (of(CLOCK, mcpProxy={"addr": "here"}), "mcpProxy.addr: got another text, expected HOST:PORT"),
    (
        of(CLOCK | {"env": {"T": "$KEY"}}),
        "mcpServers.a.env.T: got $KEY, expected ${KEY}, with braces, for the variable",
    ),
    (of({"url": URL, "headers": {"X": "Bearer {env:UNSET}"}}), "the environment variable UNSET is not set"),
    (of({"url": URL, "headers": {"X": "{{TOKEN}}"}}), "mcpServers.a.headers.X: got {{TOKEN}}, expected a text"),
    (
        of({"url": URL, "bearer_token_env_var": "UNSET"}),
        "mcpServers.a.bearer_token_env_var: the environment variable UNSET is not set; set it before you start Isthmus",
    ),
    (of({"url": URL, "auth": True}), "mcpServers.a.auth: got true, expected a token in"),
    (
        of({"url": URL, "apiKey": {"source": "user"}}),
        "mcpServers.a.apiKey.source: got no key of the admin, expected admin",
    ),
    (of({"url": URL, "clientCert": "/c"}), "mcpServers.a.clientCert: got a key that Isthmus cannot honour"),
    (of("./.mcp.json"), "mcpServers.a: got text, expected keys with values"),
    ({"mcpServers": "./.mcp.json"}, "expected keys with values; if it is the path of a file, give Isthmus that file"),
    (of(CLOCK, core={"prot": 1}), "core.prot: unknown key; did you mean port?"),
]


@pytest.mark.parametrize(("document", "expected"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(document: Json, expected: str) -> None:
    lines = refusal(document).splitlines()
    assert len(lines) == 1
    assert expected in lines[0]


@pytest.mark.parametrize("document", [document for document, expected in REFUSED if "mcpServers.a" in expected])
def test_faults_of_a_server_that_is_switched_off_are_none(document: Json) -> None:
    entry = document["mcpServers"]["a"]
    if not isinstance(entry, dict) or entry.get("disabled"):
        return
    off = {"mcpServers": {"a": entry | {"disabled": True}, "b": CLOCK}}
    assert list(servers(off | {name: value for name, value in document.items() if name != "mcpServers"})) == ["b"]


def test_own_settings_stand_beside_those_of_a_client() -> None:
    own = {"core": {"port": 0}, "servers": [{"id": "z", "upstream": {"command": ["z"]}}]}
    settings = source({**own, **of(CLOCK, theme="dark")}).settings()
    assert (settings.core.port, [server.id for server in settings.servers]) == (0, ["z", "a"])
    assert source({"core": {"port": 0}, "servers": {"a": CLOCK}, "inputs": []}).settings().core.port == 0


def test_what_is_the_clients_own_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("isthmus").propagate = True
    servers(of(CLOCK | {"autoApprove": [], "icon": "x", "wholly": "other"}, theme="dark"))
    assert [record.getMessage() for record in caplog.records] == [
        "for the client, and ignored here: theme, mcpServers.a.autoApprove, mcpServers.a.icon, mcpServers.a.wholly"
    ]


@pytest.mark.parametrize("more", [{}, {"mcpServers": {}}], ids=["none", "empty"])
def test_servers_of_single_projects_are_not_read_and_it_is_said_how_to_add_one_for_all(more: Json) -> None:
    projects = {"/home/ann/site": {"mcpServers": {"notes": {"command": "notes"}}}, "/home/ann/old": {"mcpServers": {}}}
    document = {"userID": "17", "projects": projects, **more}
    assert refusal(document, "/home/ann/.claude.json").startswith("projects: got servers of single projects only")
    user = {"mine": {"type": "http", "url": "https://mine.test/mcp"}}
    assert list(servers({**document, "mcpServers": user}, "/home/ann/.claude.json")) == ["mine"]


def test_names_become_legal_ids() -> None:
    names = ["My Files (home)", "My-Files-home", "日本", "_x", "ok.1", "@org/x", "Größe", "Gro\u0308sse", "Café"]
    opened = source({"mcpServers": dict.fromkeys(names, CLOCK)})
    ids = [server.id for server in opened.settings().servers]
    assert ids == [
        *("My-Files-home-2", "My-Files-home", "server", "x", "ok.1"),
        *("org-x", "Groesse", "Groesse-2", "Cafe"),
    ]
    assert "'My Files (home)' has the id My-Files-home-2" in opened.notes


# --- Inputs ---------------------------------------------------------------------------------------------------------

ASKED = {"id": "my-token", "type": "promptString", "description": "Token of the demo", "password": True}
WITH_INPUT = {"inputs": [ASKED], "servers": {"a": {"command": "x", "env": {"T": "${input:my-token}"}}}}


def test_an_input_is_given_or_in_the_environment_or_asked_for_or_refused() -> None:
    asked: list[Input] = []

    def ask(one: Input) -> str:
        asked.append(one)
        return "entered"

    assert servers(WITH_INPUT, inputs={"my-token": "$given"}, ask=ask)["a"].upstream.env == {"T": "$given"}
    assert servers(WITH_INPUT, ask=ask)["a"].upstream.env == {"T": "t0"}
    assert asked == []
    assert servers(WITH_INPUT, environ={}, ask=ask)["a"].upstream.env == {"T": "entered"}
    assert [(one.id, one.is_secret) for one in asked] == [("my-token", True)]
    message = refusal(WITH_INPUT, environ={})
    assert "servers.a.env.T: the input my-token (Token of the demo) has no value" in message
    assert "--input my-token=VALUE or in the environment variable MY_TOKEN" in message


def test_inputs_that_do_not_exist_are_refused() -> None:
    assert "--input: got a value for 'my-tokn', expected my-token (the nearest input)" in refusal(
        WITH_INPUT, inputs={"my-tokn": "x"}
    )
    document = {"inputs": [], "servers": {"a": {"command": "${input:no}"}}}
    assert "servers.a.command: got ${input:no}, expected an input that inputs describes" in refusal(document)
    choice = {"id": "c", "type": "pickString", "options": ["one", {"label": "2", "value": "two"}]}
    document = {"inputs": [choice], "servers": {"a": {"command": "${input:c}"}}}
    assert servers(document, inputs={"c": "two"})["a"].upstream.command == ("two",)
    assert "expected one of one, two" in refusal(document, inputs={"c": "three"})


# --- Properties -----------------------------------------------------------------------------------------------------

CLIENT_KEYS = [
    name for row in KEYS if row.meaning is Meaning.CLIENT for name in row.names if name not in ("name", "id")
]


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(name, shuffled(item, order)) for name, item in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


def decorated(value: Any, order: random.Random) -> str:
    """JSON with comments and trailing commas at random places."""

    def gap() -> str:
        return order.choice(["", " ", "\n", '// {"]\n', "/* , } */"])

    def tail() -> str:
        return order.choice(["", ","])

    if isinstance(value, dict) and value:
        members = [f"{gap()}{json.dumps(name)}{gap()}:{gap()}{decorated(item, order)}" for name, item in value.items()]
        return "{" + f"{gap()},".join(members) + gap() + tail() + gap() + "}"
    if isinstance(value, list) and value:
        return "[" + f"{gap()},".join(gap() + decorated(item, order) for item in value) + gap() + tail() + gap() + "]"
    return json.dumps(value)


def parsed(document: object, path: str) -> Json:
    if isinstance(document, str):
        document = tomllib.loads(document) if path.endswith("toml") else read_json(document)
    assert isinstance(document, dict)
    return copy.deepcopy(document)


def as_json(document: Json, path: str, order: random.Random) -> Source:
    """The document as JSON with comments, under the name that its client gives it."""
    surroundings = Surroundings(path, ENVIRON, read_text=read_text)
    return Source(decorated(shuffled(document, order), order), "json", surroundings)


def add_client_keys(document: Json, path: str, name: str) -> None:
    """Adds keys of the client beside the places of servers, in servers, and in mappings that are read like servers."""
    recognized = recognize(document, path, {})
    assert recognized is not None
    for place in recognized.places:
        for _, _, server in place.servers:
            assert isinstance(server, dict)
            for inner in (server.get(nested, None) for nested in ("options", "requestOptions", "remote")):
                if isinstance(inner, dict):
                    inner["colour"] = "red"
            server |= {name: 7, "colour": {"url": "red"}}
    if "" not in recognized.client.places:
        document |= {"colour": {"command": "red"}, "x.size": [1]}


@given(sample=st.sampled_from(READ), seed=st.integers(), name=st.sampled_from(CLIENT_KEYS))
def test_order_comments_commas_and_unknown_keys_change_nothing(
    sample: tuple[str, str, object, Json], seed: int, name: str
) -> None:
    title, path, written, _ = sample
    document, order = parsed(written, path), random.Random(seed)
    expected = source(written, path).settings().servers
    assert sorted(as_json(document, path, order).settings().servers, key=id_of) == sorted(expected, key=id_of)
    add_client_keys(document, path, name)
    opened = as_json(document, path, order)
    if opened.title == title:  # else the key says whose file it is
        assert sorted(opened.settings().servers, key=id_of) == sorted(expected, key=id_of)


def id_of(server: Server) -> str:
    return server.id


PLACEHOLDERS = st.one_of(
    st.sampled_from(
        [
            "${UNSET}",
            "${env:UNSET}",
            "${input:x}",
            "${workspaceFolder}",
            "${A:-${B}}",
            "${UNSET:-d}",
            "${",
            "${}",
            "$${X}",
        ]
    ),
    st.text(alphabet="${}:-A_ x/.", max_size=12),
)


@given(text=PLACEHOLDERS, client=st.sampled_from(CLIENTS))
def test_no_unresolved_placeholder_reaches_a_server(text: str, client: Any) -> None:
    """A text like a variable is replaced or an error, whoever's file it is; `$${` alone is a literal `${`."""
    key = next((top for top in client.top_keys), "theme")
    for entry in (
        {"command": "x", "args": [text]},
        {"command": "x", "env": {"K": text}},
        {"url": f"http://h/{text}"},
        {"url": URL, "headers": {"X": text}},
    ):
        try:
            [server] = servers(of(entry, **{key: {}}), environ={}).values()
        except ConfigError:
            continue
        up = server.upstream
        seen = [*(up.command or ()), *up.env.values(), up.url or "", *up.headers.values()]
        assert not any("${" in one for one in seen) or "$${" in text


SURE = [
    *("${UNSET}", "${env:UNSET}", "${env:KEY}", "${input:x}", "${config:x}", "${file:no}", "${{ secrets.KEY }}"),
    *("${{secrets.UNSET}}", "{env:UNSET}", "{env:KEY}", "{file:/w/no}", "{file:./secret.txt}"),
    *("$UNSET", "$KEY", "{{UNSET_1}}"),
]
"""Placeholders of all clients."""
LEFT = re.compile(r"\$\{|\{env:|\{file:|\{\{|\$[A-Z]")


def document_of(client: Client, servers: Json) -> Json:
    """A document that is known for one of `client`."""
    *tops, last = client.places[0].split(".")
    marks = dict.fromkeys(name for name in client.server_keys if name != "transport")
    entries = {name: marks | server for name, server in servers.items()}
    if client.title == "Goose":
        entries = {name: {"type": "sse" if "url" in one else "stdio", **one} for name, one in entries.items()}
    if client.title == "Amp":
        return {"amp.mcpServers": entries}
    made: Any = [{"name": name, **one} for name, one in entries.items()] if last.endswith("[]") else entries
    for key in reversed([*tops, last.removesuffix("[]")] if last else []):
        made = {key: made}
    assert isinstance(made, dict)
    return {**{key: {} for key in client.top_keys[:1] if key != "inputs"}, **made}


def of_client(client: Client, servers: Json) -> Source:
    path = f"/w/{client.files[0].replace('*', 'x.json')}" if client.files else "/w/x.json"
    return Source(json.dumps(document_of(client, servers)), "json", Surroundings(path, ENVIRON, read_text=read_text))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.title)
def test_a_file_is_known_by_its_name_or_its_keys(client: Client) -> None:
    assert of_client(client, {"a": {"command": "x"}}).title == client.title


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.title)
def test_no_placeholder_of_any_client_reaches_a_server(client: Client) -> None:
    """Each server is named in an error, or has the value of the placeholder, whoever's file it is."""
    for placeholder in SURE:
        written: Json = {
            "env": {"command": "x", "env": {"K": placeholder}},
            "cwd": {"command": "x", "cwd": placeholder},
            "url": {"url": f"http://h/{placeholder}" if "{" in placeholder else placeholder},
            "headers": {"url": URL, "headers": {"X": f"Bearer {placeholder}"}},
        }
        if client.has_templates or "{{U" not in placeholder:  # a program may have templates of its own
            written |= {"args": {"command": "x", "args": [placeholder]}, "command": {"command": placeholder}}
        try:
            made = of_client(client, written).settings().servers
        except ConfigError as error:
            lines = error.message.splitlines()
        else:
            lines = []
        if lines:
            listed = list(written)
            faulty = {name for name in written for line in lines if re.match(rf"[^:]*[.\]]{name}\b|{name}\.", line)}
            faulty |= {listed[int(found[1])] for line in lines if (found := re.match(r"[^:]*\[(\d)\]\.", line))}
            assert faulty
            rest = {name: one for name, one in written.items() if name not in faulty}
            made = of_client(client, rest).settings().servers if rest else ()
        for server in made:
            up = server.upstream
            seen = [*(up.command or ()), *up.env.values(), up.cwd or "", up.url or "", *up.headers.values()]
            assert not any(map(LEFT.search, seen)), (placeholder, seen)


@pytest.mark.parametrize(
    ("written", "meant"), [("comand", "command"), ("enviroment", "environment"), ("headres", "headers")]
)
def test_a_key_that_is_nearly_one_names_it(written: str, meant: str) -> None:
    assert key_of(written) is None
    assert nearest_key(written) == meant


@pytest.mark.parametrize("name", ["colour", "x-team", "serverName", "args_help"])
def test_other_keys_are_the_clients_own(name: str) -> None:
    assert key_of(name) is None
    assert nearest_key(name) is None


# --- Conversion -----------------------------------------------------------------------------------------------------


def plan(settings: Settings) -> object:
    return to_plan(settings, b"k" * 16, "/ws", "")


@each_row(("title", "path", "document", "expected"), READ)
def test_a_converted_file_has_the_same_plan(title: str, path: str, document: object, expected: Json) -> None:
    converted = source(document, path).converted()
    text = yaml.safe_dump(converted, sort_keys=False)
    assert "4711" not in text  # what a variable holds is not written out
    again = source(text, "/elsewhere/isthmus.yaml")
    assert again.title == ""
    assert again.settings().servers == source(document, path).settings().servers
    assert plan(again.settings()) == plan(source(document, path).settings())


def test_an_open_input_becomes_a_variable() -> None:
    converted = source(WITH_INPUT, environ={}).converted()
    assert isinstance(converted, dict)
    assert converted["servers"][0]["upstream"]["env"] == {"T": "${MY_TOKEN}"}


def test_a_file_with_a_mark_of_its_byte_order_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonc"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(of(CLOCK)).encode())
    assert [server.id for server in open_source(path).settings().servers] == ["a"]
    assert re.fullmatch(r".*x\.jsonc", open_source(path).path)
