"""The keys of one server in the files of MCP clients, and what each means here.

A name is compared without case, `-` and `_`: `disabledTools`, `disabled_tools` and `disabled-tools` are one key. A key
that is not in the table is the client's own and is left alone, unless it is nearly one that is.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from ....core.base.nearest import ALIKE, nearest


class Meaning(enum.Enum):
    COMMAND = "command"
    ARGS = "args"
    ENV = "env"
    ENV_FILE = "env file"
    ENV_NAMES = "env names"
    CWD = "cwd"
    URL = "url"
    STREAMABLE_URL = "streamable url"
    HEADERS = "headers"
    HEADER_VARIABLES = "header variables"
    TOKEN = "token"
    TOKEN_VARIABLE = "token variable"
    PASS_HEADERS = "pass headers"
    PROXY = "proxy"
    CA_FILE = "ca file"
    VERIFY_TLS = "verify tls"
    TYPE = "type"
    OFF = "off"
    ON = "on"
    TOOLS = "tools"
    INCLUDE = "include"
    EXCLUDE = "exclude"
    FILTER = "filter"
    PROMPTS = "prompts"
    TIMEOUT = "timeout"
    CALL_S = "call timeout, s"
    CALL_MS = "call timeout, ms"
    TOTAL_MS = "total call timeout, ms"
    START = "start timeout"
    START_S = "start timeout, s"
    START_MS = "start timeout, ms"
    NESTED = "nested"
    IMAGE = "image"
    AUTH = "auth"
    SIGN_IN = "sign-in"
    REFUSED = "refused"
    CLIENT = "client"


class Key(NamedTuple):
    """One row of the table.

    Attributes:
        names: the spellings that clients use; the first is shown on the page.
        about: what is done with it; of a refused one, what mends the file.
    """

    names: tuple[str, ...]
    meaning: Meaning
    about: str


_CALL: Final = "`call_timeout_seconds`"
_START: Final = "`start_timeout_seconds`"
SWITCH_OFF: Final = '"disabled": true leaves the server out'
LOG_IN: Final = (
    'a token in "headers"; or the server in a configuration of Isthmus with auth: {type: oauth}, where isthmus login '
    f"logs in; or {SWITCH_OFF}"
)
"""The fix of a server that its client logs in at."""

KEYS: Final[tuple[Key, ...]] = (
    Key(("command", "cmd"), Meaning.COMMAND, "The program; a list has its arguments, too, and a mapping env as well."),
    Key(("args", "arguments"), Meaning.ARGS, "Its arguments."),
    Key(("env", "environment", "envs"), Meaning.ENV, "Its environment variables. Numbers, true and false become text."),
    Key(("envFile",), Meaning.ENV_FILE, "A file of lines NAME=VALUE, which `env` overrides."),
    Key(("env_vars", "env_keys"), Meaning.ENV_NAMES, "Variables that are handed on where they are set."),
    Key(("cwd", "workingDirectory", "workdir"), Meaning.CWD, "Its working directory, from the workspace."),
    Key(("url", "serverUrl", "uri", "endpoint", "sseEndpoint", "tcp"), Meaning.URL, "Where the server listens."),
    Key(("httpUrl",), Meaning.STREAMABLE_URL, "Where it listens and speaks Streamable HTTP; goes before `url`."),
    Key(
        ("headers", "http_headers"),
        Meaning.HEADERS,
        "Headers of every request. Those that each request has anyway, such as Accept, are left out.",
    ),
    Key(("env_http_headers",), Meaning.HEADER_VARIABLES, "Headers, each with the name of the variable that has it."),
    Key(
        ("bearerToken", "bearer_token", "apiKey"),
        Meaning.TOKEN,
        "Sent as `Authorization: Bearer`. A mapping of LibreChat has `key`, `authorization_type` and `custom_header`.",
    ),
    Key(
        ("auth",),
        Meaning.AUTH,
        "A text is a token, too; oauth is refused. A mapping is not used, as a warning says.",
    ),
    Key(("bearer_token_env_var",), Meaning.TOKEN_VARIABLE, "The variable with the token for `Authorization: Bearer`."),
    Key(
        ("client_header_forwarding", "passthroughHeaders", "forward_headers"),
        Meaning.PASS_HEADERS,
        "`pass_headers`: a list, or its `whitelist` less its `blacklist`.",
    ),
    Key(("proxy",), Meaning.PROXY, "The proxy to the URL."),
    Key(("caBundlePath",), Meaning.CA_FILE, "`ca_file`."),
    Key(("verifySsl", "sslVerify"), Meaning.VERIFY_TLS, "`verify_tls`."),
    Key(
        ("type", "transport", "transportType", "transport_type"),
        Meaning.TYPE,
        "stdio or local; http, streamableHttp or streamable; sse; ws or websocket; remote. Case, `-` and `_` are free.",
    ),
    Key(("disabled",), Meaning.OFF, "true leaves the server out."),
    Key(("enabled",), Meaning.ON, "false leaves the server out."),
    Key(("tools",), Meaning.TOOLS, "A list is `includeTools`, with `*` for all; a mapping has `enabled` for each."),
    Key(
        ("includeTools", "enabledTools", "allowedTools", "available_tools"),
        Meaning.INCLUDE,
        "Clients see these tools only. An empty `available_tools` means all.",
    ),
    Key(("disabledTools", "excludeTools", "blockedTools"), Meaning.EXCLUDE, "Clients do not see these tools."),
    Key(("toolFilter",), Meaning.FILTER, "`mode` allow or block with a `list`, or `include` and `exclude`."),
    Key(("prompts",), Meaning.PROMPTS, "A mapping has `enabled` for each prompt."),
    Key(("timeout",), Meaning.TIMEOUT, f"{_CALL}; the unit is that of the client."),
    Key(("tool_timeout_sec", "timeoutSeconds", "timeoutSec", "sse_read_timeout"), Meaning.CALL_S, f"{_CALL}."),
    Key(("requestTimeoutMs", "timeoutMs", "sseReadTimeout", "requestTimeout"), Meaning.CALL_MS, f"{_CALL}, from ms."),
    Key(("maxTotalTimeout",), Meaning.TOTAL_MS, "`tool_time_limits` of all tools, from milliseconds."),
    Key(("connectTimeout",), Meaning.START, f"{_START}; up to 3600 in seconds, else in milliseconds."),
    Key(("startup_timeout_sec",), Meaning.START_S, f"{_START}."),
    Key(
        ("connectionTimeoutMs", "connectionTimeout", "initTimeout", "startup_timeout_ms"),
        Meaning.START_MS,
        f"{_START}, from milliseconds.",
    ),
    Key(("options", "requestOptions", "remote"), Meaning.NESTED, "Its keys are read as if they stood beside it."),
    Key(("image",), Meaning.IMAGE, "The server is left out: containers are not started."),
    Key(
        ("oauth", "requiresOAuth", "oauth_tokens", "authProviderType"),
        Meaning.SIGN_IN,
        LOG_IN,
    ),
    Key(("headersHelper",), Meaning.REFUSED, f'the headers that this command prints, in "headers"; or {SWITCH_OFF}'),
    Key(
        ("include_tags", "exclude_tags"),
        Meaning.REFUSED,
        f'names of tools in "includeTools" or "excludeTools", for tags are not sent to clients; or {SWITCH_OFF}',
    ),
    Key(
        ("clientCert", "clientKey", "clientCertificate"),
        Meaning.REFUSED,
        f"a server that asks for no certificate, for Isthmus shows none; or {SWITCH_OFF}",
    ),
    Key(("openapi",), Meaning.REFUSED, f"a server of MCP, for other interfaces are not read; or {SWITCH_OFF}"),
    Key(
        (
            *("autoApprove", "alwaysAllow", "trust", "description", "icon", "iconPath", "title", "displayName", "name"),
            *(
                "id",
                "serverInstructions",
                "chatMenu",
                "startup",
                "alwaysLoad",
                "dev",
                "watchPaths",
                "owner",
                "required",
            ),
            *("source", "settings", "customUserVars", "keep_alive", "keepAlive", "panicIfInvalid", "logEnabled"),
            *(
                "authTokens",
                "resetTimeoutOnProgress",
                "default_tools_approval_mode",
                "approval_mode",
                "version",
                "tags",
            ),
            *(
                "required",
                "version",
                "gallery",
                "category",
                "scopes",
                "registryUrl",
                "note",
                "notes",
                "comment",
                "secrets",
            ),
            *("fromGalleryId", "marketplace", "extensionName", "bundled", "isActive", "provider", "providerUrl"),
            *("volumes", "debugHeaders", "permissions", "instructions", "priority", "group", "groups", "env_example"),
        ),
        Meaning.CLIENT,
        "For the client: a warning names it, and nothing is done.",
    ),
)
"""The keys of a server. Each client writes some of them, and each is read in every file."""


def plain(name: str) -> str:
    """Returns a key as it is compared: without case, `-` and `_`."""
    return name.lower().replace("_", "").replace("-", "")


_BY_SPELLING: Final[dict[str, Key]] = {name: row for row in KEYS for name in row.names}
"""The keys as they are written. `sse_read_timeout` and `sseReadTimeout` are in different units."""
_BY_NAME: Final[dict[str, Key]] = {plain(name): row for row in KEYS for name in row.names}
_MEANT: Final[dict[str, str]] = {
    plain(name): name for row in KEYS if row.meaning is not Meaning.CLIENT for name in row.names
}


def key_of(name: str) -> Key | None:
    """Returns the row of a key; None if it is not in the table."""
    return _BY_SPELLING.get(name) or _BY_NAME.get(plain(name))


def nearest_key(name: str) -> str | None:
    """Returns the key that a key outside the table was probably to be; None if it is the client's own."""
    found = nearest(plain(name), _MEANT, similarity=ALIKE)
    return _MEANT[found] if found else None
