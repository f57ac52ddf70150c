"""The clients and gateways whose files are read: where their servers stand, and how a file is recognized.

A table only. `recognition` reads it, and the page of the configuration is made from it.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Client(NamedTuple):
    """One row of the table: the dialect of a client.

    Attributes:
        title: the name of the client.
        places: where the servers stand; "" means that the document is the map of servers.
        files: ends of paths. The folders in it stand in the workspace; those without one say nothing about it.
        top_keys: keys beside those of the servers that only this client writes.
        server_keys: keys of a server that only this client writes.
        texts: a regular expression for texts in a server that only this client writes.
        timeout: unit of the key `timeout`: s, ms or ns; "start" is ms, of the start; "": not known, its size decides.
        has_bare_variables: `$NAME` is a variable, beside `${NAME}`.
        has_braces: `{file:PATH}` stands for the text of a file, whatever the path.
        has_templates: `{{NAME}}` stands for something that only the client knows, and is refused.
        changes_tools: what it says of a tool changes what models see of it.
        url_is_sse: a `url` without a type is that of an HTTP+SSE server.
        variables: the variables beside `${NAME}` and `${NAME:-default}`, for the page.
        note: what else is particular, for the page.
    """

    title: str
    places: tuple[str, ...] = ("mcpServers",)
    files: tuple[str, ...] = ()
    top_keys: tuple[str, ...] = ()
    server_keys: tuple[str, ...] = ()
    texts: str = ""
    timeout: str = ""
    has_bare_variables: bool = False
    has_braces: bool = False
    has_templates: bool = False
    changes_tools: bool = False
    url_is_sse: bool = False
    variables: str = ""
    note: str = ""


_NO_TOKEN: Final = "Callers need no token, as a warning says."

CLIENTS: Final[tuple[Client, ...]] = (
    Client(
        "an MCP client",
        note="Files that no other row matches.",
    ),
    Client(
        "Claude Desktop",
        files=("claude_desktop_config.json",),
        top_keys=("preferences", "globalShortcut", "isUsingBuiltInNodeForMcp", "coworkScheduledTasksEnabled"),
        timeout="ms",
    ),
    Client(
        "Claude Code",
        files=(".mcp.json", ".claude.json", ".claude-plugin/plugin.json"),
        server_keys=("alwaysLoad", "headersHelper"),
        texts=r"\$\{CLAUDE_",
        timeout="ms",
        variables="`${CLAUDE_PROJECT_DIR}`, `${CLAUDE_PLUGIN_ROOT}`",
        note="Servers of a single project in `.claude.json` are not read. `claude mcp add --scope user` adds a server "
        "for all projects.",
    ),
    Client(
        "a plugin",
        places=("",),
        timeout="ms",
        variables="`${CLAUDE_PROJECT_DIR}`, `${CLAUDE_PLUGIN_ROOT}`",
        note="The document maps names to servers. Each server has a `command` or a `url`.",
    ),
    Client(
        "mcpo",
        server_keys=("client_header_forwarding",),
        note="The `whitelist` of `client_header_forwarding` becomes `pass_headers`.",
    ),
    Client(
        "VS Code",
        places=("servers", "mcp.servers"),
        files=(".vscode/mcp.json", ".vscode/settings.json"),
        top_keys=("inputs",),
        server_keys=("dev",),
        texts=r"\$\{input:",
        timeout="ms",
        variables="`${env:NAME}`, `${input:ID}`, `${workspaceFolder}`, `${userHome}`, `${pathSeparator}`",
        note="Values of `inputs` come from `--input`, the environment or the terminal.",
    ),
    Client(
        "Cursor",
        files=(".cursor/mcp.json",),
        server_keys=("auth",),
        texts=r"\$\{(env:|workspaceFolder|userHome)",
        timeout="ms",
        variables="`${env:NAME}`, `${workspaceFolder}`, `${userHome}`, `${pathSeparator}`",
        note="`auth` is ignored with a warning.",
    ),
    Client(
        "Windsurf",
        files=("mcp_config.json", ".codeium/windsurf/mcp_config.json"),
        server_keys=("serverUrl",),
        texts=r"\$\{file:",
        variables="`${env:NAME}`, `${file:PATH}`",
    ),
    Client(
        "Cline",
        files=("cline_mcp_settings.json",),
        server_keys=("autoApprove", "transportType"),
        texts=r"^streamableHttp$",
        timeout="s",
    ),
    Client(
        "Roo Code",
        files=(".roo/mcp.json", "mcp_settings.json"),
        server_keys=("alwaysAllow", "watchPaths"),
        timeout="s",
        variables="`${env:NAME}`, `${workspaceFolder}`",
    ),
    Client(
        "Kiro",
        files=(".kiro/settings/mcp.json",),
        top_keys=("powers",),
        server_keys=("autoApprove", "disabledTools"),
        has_bare_variables=True,
        variables="`$NAME`",
    ),
    Client(
        "GitHub Copilot CLI",
        files=("mcp-config.json", ".github/mcp.json"),
        server_keys=("filterMapping", "isDefaultServer", "deferTools", "oauthClientId"),
        texts=r"^local$",
        timeout="ms",
        has_bare_variables=True,
        variables="`$NAME`",
    ),
    Client(
        "Gemini CLI",
        files=(".gemini/settings.json", ".qwen/settings.json", "gemini-extension.json"),
        top_keys=("security", "ui", "mcp", "selectedAuthType", "contextFileName", "general", "theme"),
        server_keys=("httpUrl", "trust", "includeTools", "excludeTools", "authProviderType"),
        timeout="ms",
        has_bare_variables=True,
        url_is_sse=True,
        variables="`$NAME`",
        note="`httpUrl` means Streamable HTTP. `url` without a `type` means HTTP+SSE. `mcp.allowed`, `mcp.excluded`, "
        "`allowMCPServers` and `excludeMCPServers` select the servers.",
    ),
    Client(
        "Codex",
        places=("mcp_servers",),
        files=(".codex/config.toml",),
        top_keys=("model", "approval_policy", "sandbox_mode", "features", "profiles"),
        server_keys=("startup_timeout_sec", "tool_timeout_sec", "bearer_token_env_var", "env_vars"),
        timeout="s",
        note="`env_vars`, `bearer_token_env_var` and `env_http_headers` contain names of variables.",
    ),
    Client(
        "opencode",
        places=("mcp", "mcp.servers"),
        files=("opencode.json", "opencode.jsonc", ".opencode/opencode.json"),
        top_keys=("agent", "provider", "model", "instructions", "plugin"),
        server_keys=("environment",),
        texts=r"\{(env|file):|^local$|^remote$",
        timeout="start",
        has_braces=True,
        variables="`{env:NAME}`, `{file:PATH}`",
        note="A mapping as `timeout` has `startup` and `request`. `mcp.timeout` and `experimental.mcp_timeout` apply "
        "to servers without a `timeout`. `tools` and `permission` hide tools.",
    ),
    Client(
        "OpenClaw",
        places=("mcp.servers",),
        files=(".openclaw/openclaw.json",),
        top_keys=("agents", "channels", "gateway"),
        server_keys=("toolFilter", "connectionTimeoutMs", "requestTimeoutMs", "connectTimeout", "transport"),
        timeout="s",
    ),
    Client(
        "Zed",
        places=("context_servers",),
        files=(".zed/settings.json", "zed/settings.json"),
        timeout="s",
        note="Servers of extensions are left out with a warning. `context_server_timeout` applies to servers without a "
        "`timeout`.",
    ),
    Client(
        "Continue",
        places=("mcpServers", "mcpServers[]"),
        files=(".continue/config.yaml", ".continue/mcpServers/*"),
        top_keys=("models", "rules", "schema", "context"),
        server_keys=("connectionTimeout", "requestOptions"),
        texts=r"\$\{\{",
        timeout="ms",
        variables="`${{ secrets.NAME }}`",
        note="The servers are a list, each with a `name`. Blocks from the hub (`uses`) are left out with a warning.",
    ),
    Client(
        "LibreChat",
        files=("librechat.yaml", "librechat.yml"),
        top_keys=("mcpSettings", "endpoints", "interface", "fileConfig", "registration", "cache"),
        server_keys=("initTimeout", "customUserVars", "serverInstructions", "chatMenu", "requiresOAuth", "iconPath"),
        texts=r"\{\{LIBRECHAT_",
        timeout="ms",
        has_templates=True,
        note="`{{…}}` is an error, because only LibreChat knows the value.",
    ),
    Client(
        "TBXark's mcp-proxy",
        top_keys=("mcpProxy",),
        timeout="ns",
        note="The port of `mcpProxy.addr` becomes `core.port`. The path `/NAME/mcp` works too. `authTokens` is "
        f"ignored. {_NO_TOKEN}",
    ),
    Client(
        "FastMCP",
        server_keys=("keep_alive", "include_tags", "exclude_tags", "sse_read_timeout", "transport"),
        timeout="ms",
        changes_tools=True,
        note="`auth` is a token. `auth: oauth`, tags and changes of tools are errors.",
    ),
    Client("Amp", top_keys=("amp.mcpServers",)),
    Client(
        "Goose",
        places=("extensions",),
        files=("goose/config.yaml",),
        timeout="s",
        note="Extensions of Goose itself, such as `builtin`, are left out with a warning.",
    ),
    Client("MetaMCP", server_keys=("bearerToken",), texts=r"^(STDIO|SSE|STREAMABLE_HTTP)$", timeout="ms"),
    Client(
        "MCPHub",
        top_keys=("users", "systemConfig", "groups", "bearerKeys"),
        files=("mcp_settings.json",),
        server_keys=("owner", "options"),
        timeout="ms",
        has_bare_variables=True,
        variables="`$NAME`",
        note=f"Only servers are read. `users` is ignored. {_NO_TOKEN}",
    ),
    Client(
        "a Docker catalog",
        places=("registry", "servers[]"),
        top_keys=("displayName",),
        has_templates=True,
        note="Entries with `remote` or `sseEndpoint` are read. Entries with an `image` are left out with a warning.",
    ),
)
"""The dialects. Where two recognize a file equally well, the earlier row has it."""
