"""The keys beside the servers that mean something: those of gateways, and those that switch servers and tools off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from ....core.wire.http.origin import is_loopback
from .entries import Member
from .findings import Findings
from .times import read_seconds

_NOBODY: Final = "callers need no token, so Isthmus listens on 127.0.0.1 only"
_PATH: Final = re.compile(r"[A-Za-z0-9._~-]+")


class Particulars:
    """The settings of a document beside its servers.

    Attributes:
        core: settings of `core` that follow from it, under those of our own.
        off: names of servers that do not run.
        hidden: for each server, patterns of tools that are not seen.
        shown: for each server, patterns of tools that are seen where all others are hidden.
        times: time limits of servers that have none of their own, and the keys that they come from.
        keys: the top-level keys that were understood.
    """

    def __init__(self) -> None:
        self.core: dict[str, object] = {}
        self.off: set[str] = set()
        self.hidden: dict[str, list[str]] = {}
        self.shown: dict[str, list[str]] = {}
        self.times: dict[str, tuple[float, str]] = {}
        self.keys: set[str] = set()
        self.has_paths = False


def read_particulars(title: str, document: Mapping[str, object], names: list[str], findings: Findings) -> Particulars:
    """Returns what the document of the client `title` says beside its servers, whose names are `names`."""
    particulars = Particulars()
    reader = _READERS.get(title)
    if reader is not None:
        reader(document, names, particulars, findings)
    return particulars


def _tbxark(document: Mapping[str, object], names: list[str], made: Particulars, findings: Findings) -> None:
    proxy = document.get("mcpProxy")
    if not isinstance(proxy, dict):
        return
    made.keys.add("mcpProxy")
    made.has_paths = proxy.get("type") == "streamable-http"
    address = proxy.get("addr")
    if isinstance(address, str) and address:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdecimal():
            findings.refuse("mcpProxy.addr", "HOST:PORT, or :PORT", "got another text")
        else:
            made.core["port"] = int(port)
            if not is_loopback(host.strip("[]").lower()):
                findings.warnings.append(
                    "mcpProxy.addr: Isthmus listens on 127.0.0.1 only; set core.host to accept other machines"
                )
    base_url = proxy.get("baseURL")
    if isinstance(base_url, str) and base_url:
        try:
            host_name = urlsplit(base_url).hostname or ""
        except ValueError:
            host_name = ""
        if not is_loopback(host_name):
            made.core["public_base_url"] = base_url.replace("$", "$$")
    servers = document.get("mcpServers")
    entries = [("mcpProxy", proxy)]
    entries += [(f"mcpServers.{name}", one) for name, one in servers.items()] if isinstance(servers, dict) else []
    for key, entry in entries:
        options = entry.get("options") if isinstance(entry, dict) else None
        if isinstance(options, dict) and options.get("authTokens"):
            findings.warnings.append(f"{key}.options.authTokens is not used: {_NOBODY}")


def _mcphub(document: Mapping[str, object], names: list[str], made: Particulars, findings: Findings) -> None:
    if document.get("users"):
        made.keys.add("users")
        findings.warnings.append(f"users is not used: {_NOBODY}")


def _gemini(document: Mapping[str, object], names: list[str], made: Particulars, findings: Findings) -> None:
    """Reads which servers run, from the keys of today and from those at the top, of older versions."""
    rules = document.get("mcp")
    if isinstance(rules, dict):
        made.keys.add("mcp")
    inner = rules if isinstance(rules, dict) else {}
    allowed: list[str] = []
    for key, listed in (
        ("mcp.allowed", inner.get("allowed")),
        ("mcp.excluded", inner.get("excluded")),
        ("allowMCPServers", document.get("allowMCPServers")),
        ("excludeMCPServers", document.get("excludeMCPServers")),
    ):
        made.keys.add(key)
        if listed is None:
            continue
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            findings.refuse_type(key, "a list of names of servers", listed)
        elif "allow" in key:
            allowed += listed
        else:
            made.off |= set(listed)
    made.off |= {name for name in names if allowed and name not in allowed}


def _opencode(document: Mapping[str, object], names: list[str], made: Particulars, findings: Findings) -> None:
    """Reads `tools` and `permission`, and the time limits of all servers.

    Names and patterns of tools have the name of the server and `_` before that of the tool.
    """
    for key, off, on in (("tools", False, True), ("permission", "deny", "allow")):
        rules = document.get(key)
        for pattern, rule in rules.items() if isinstance(rules, dict) else ():
            for name in names if rule in (off, on) and isinstance(pattern, str) else ():
                prefix = f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}_"
                tools = made.hidden if rule == off else made.shown
                if pattern.startswith(prefix):
                    made.keys.add(key)
                    tools.setdefault(name, []).append(pattern[len(prefix) :].replace("$", "$$"))
                elif rule == off and fnmatchcase(f"{prefix}\0", pattern):  # it fits whatever the tool is called
                    made.keys.add(key)
                    tools.setdefault(name, []).append("*")
    mcp, experimental = document.get("mcp"), document.get("experimental")
    if isinstance(mcp, dict) and isinstance(mcp.get("servers"), dict) and isinstance(mcp.get("timeout"), dict):
        for name, ours in (("startup", "start_timeout_seconds"), ("request", "call_timeout_seconds")):
            _time(made, ours, f"mcp.timeout.{name}", mcp["timeout"].get(name), "ms", findings)
    if isinstance(experimental, dict):
        limit = experimental.get("mcp_timeout")
        _time(made, "call_timeout_seconds", "experimental.mcp_timeout", limit, "ms", findings)


def _zed(document: Mapping[str, object], names: list[str], made: Particulars, findings: Findings) -> None:
    key = "context_server_timeout"
    made.keys.add(key)
    _time(made, "call_timeout_seconds", key, document.get(key), "s", findings)


def _time(made: Particulars, ours: str, key: str, value: object, unit: str, findings: Findings) -> None:
    """Reads a time limit of all servers."""
    seconds = None if value is None else read_seconds(Member(key, value), unit, findings)
    if seconds is not None:
        made.times[ours] = (seconds, key)


_READERS: Final[dict[str, Callable[[Mapping[str, object], list[str], Particulars, Findings], None]]] = {
    "TBXark's mcp-proxy": _tbxark,
    "MCPHub": _mcphub,
    "Gemini CLI": _gemini,
    "opencode": _opencode,
    "Zed": _zed,
}


def further_path(name: str) -> str | None:
    """Returns the path at which TBXark's mcp-proxy has a server; None if it cannot stand in a path."""
    return f"/{name}/mcp" if _PATH.fullmatch(name) else None
