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
SWITCH_OFF: Final = '"disabled": true, which leaves the server out'
LOG_IN: Final = (
    'a token in "headers"; or auth: {type: oauth} in a configuration of Isthmus, and then run isthmus login; '
    f"or {SWITCH_OFF}"
)
"""The fix of a server that its client logs in at."""

KEYS: Final[tuple[Key, ...]] = (
    Key(
        ("command", "cmd"),
        Meaning.COMMAND,
        "The program; or a list with its arguments; or a mapping with `env`.",
    ),
    Key(("args", "arguments"), Meaning.ARGS, "The arguments of the program."),
    Key(
        ("env", "environment", "envs"),
        Meaning.ENV,
        "Environment variables. Numbers, true and false become text.",
    ),
    Key(("envFile",), Meaning.ENV_FILE, "A file with lines `NAME=VALUE`. `env` takes precedence."),
    Key(("env_vars", "env_keys"), Meaning.ENV_NAMES, "Names of variables that the server inherits."),
    Key(("cwd", "workingDirectory", "workdir"), Meaning.CWD, "The working directory, relative to the workspace."),
    Key(("url", "serverUrl", "uri", "endpoint", "sseEndpoint", "tcp"), Meaning.URL, "The URL of the server."),
    Key(("httpUrl",), Meaning.STREAMABLE_URL, "The URL for Streamable HTTP. It takes precedence over `url`."),
    Key(
        ("headers", "http_headers"),
        Meaning.HEADERS,
        "Headers of every request. Headers of the protocol, such as `Accept`, are left out.",
    ),
    Key(
        ("env_http_headers",),
        Meaning.HEADER_VARIABLES,
        "Headers, each with the name of a variable for its value.",
    ),
    Key(
        ("bearerToken", "bearer_token", "apiKey"),
        Meaning.TOKEN,
        "A token, sent as `Authorization: Bearer`. In LibreChat a mapping with `key`, `authorization_type` and "
        "`custom_header`.",
    ),
    Key(
        ("auth",),
        Meaning.AUTH,
        "A token. `oauth` is an error. A mapping is ignored with a warning.",
    ),
    Key(
        ("bearer_token_env_var",),
        Meaning.TOKEN_VARIABLE,
        "The variable with the token for `Authorization: Bearer`.",
    ),
    Key(
        ("client_header_forwarding", "passthroughHeaders", "forward_headers"),
        Meaning.PASS_HEADERS,
        "`pass_headers`: a list, or a mapping with `whitelist` and `blacklist`.",
    ),
    Key(("proxy",), Meaning.PROXY, "The HTTP proxy."),
    Key(("caBundlePath",), Meaning.CA_FILE, "`ca_file`."),
    Key(("verifySsl", "sslVerify"), Meaning.VERIFY_TLS, "`verify_tls`."),
    Key(
        ("type", "transport", "transportType", "transport_type"),
        Meaning.TYPE,
        "`stdio` or `local`; `http`, `streamableHttp` or `streamable`; `sse`; `ws` or `websocket`; `remote`.",
    ),
    Key(("disabled",), Meaning.OFF, "`true` leaves the server out."),
    Key(("enabled",), Meaning.ON, "`false` leaves the server out."),
    Key(
        ("tools",),
        Meaning.TOOLS,
        "A list like `includeTools`, or a mapping with `enabled` for each tool.",
    ),
    Key(
        ("includeTools", "enabledTools", "allowedTools", "available_tools"),
        Meaning.INCLUDE,
        "The tools that clients see. An empty `available_tools` means all.",
    ),
    Key(("disabledTools", "excludeTools", "blockedTools"), Meaning.EXCLUDE, "The tools that clients do not see."),
    Key(
        ("toolFilter",),
        Meaning.FILTER,
        "`mode` (`allow` or `block`) and `list`, or `include` and `exclude`.",
    ),
    Key(("prompts",), Meaning.PROMPTS, "A mapping with `enabled` for each prompt."),
    Key(("timeout",), Meaning.TIMEOUT, f"{_CALL}, in the unit of the client."),
    Key(
        ("tool_timeout_sec", "timeoutSeconds", "timeoutSec", "sse_read_timeout"),
        Meaning.CALL_S,
        f"{_CALL}, in seconds.",
    ),
    Key(
        ("requestTimeoutMs", "timeoutMs", "sseReadTimeout", "requestTimeout"),
        Meaning.CALL_MS,
        f"{_CALL}, in milliseconds.",
    ),
    Key(("maxTotalTimeout",), Meaning.TOTAL_MS, "`tool_time_limits` of all tools, in milliseconds."),
    Key(("connectTimeout",), Meaning.START, f"{_START}, in seconds up to 3600, otherwise milliseconds."),
    Key(("startup_timeout_sec",), Meaning.START_S, f"{_START}, in seconds."),
    Key(
        ("connectionTimeoutMs", "connectionTimeout", "initTimeout", "startup_timeout_ms"),
        Meaning.START_MS,
        f"{_START}, in milliseconds.",
    ),
    Key(("options", "requestOptions", "remote"), Meaning.NESTED, "A mapping of further keys of this table."),
    Key(("image",), Meaning.IMAGE, "The server is left out, because Isthmus does not start containers."),
    Key(
        ("oauth", "requiresOAuth", "oauth_tokens", "authProviderType"),
        Meaning.SIGN_IN,
        LOG_IN,
    ),
    Key(("headersHelper",), Meaning.REFUSED, f'the headers that this command prints, in "headers"; or {SWITCH_OFF}'),
    Key(
        ("include_tags", "exclude_tags"),
        Meaning.REFUSED,
        f'the names of the tools in "includeTools" or "excludeTools"; or {SWITCH_OFF}',
    ),
    Key(
        ("clientCert", "clientKey", "clientCertificate"),
        Meaning.REFUSED,
        f"a server that requires no client certificate; or {SWITCH_OFF}",
    ),
    Key(("openapi",), Meaning.REFUSED, f"an MCP server that calls this interface; or {SWITCH_OFF}"),
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
        "Ignored, because only the client uses it. A warning lists it.",
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
