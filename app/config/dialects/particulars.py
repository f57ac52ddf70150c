"""The keys beside the servers that mean something: those of gateways, and those that switch servers and tools off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from ....core.wire.http.origin import is_loopback
from .findings import Findings

_NOBODY: Final = "nobody is asked who they are, so it listens on 127.0.0.1 only"
_PATH: Final = re.compile(r"[A-Za-z0-9._~-]+")


class Particulars:
    """The settings of a document beside its servers.

    Attributes:
        core: settings of `core` that follow from it, under those of our own.
        off: names of servers that do not run.
        hidden: for each server, patterns of tools that are not seen.
        keys: the top-level keys that were understood.
    """

    def __init__(self) -> None:
        self.core: dict[str, object] = {}
        self.off: set[str] = set()
        self.hidden: dict[str, list[str]] = {}
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
                    "mcpProxy.addr: it listens on 127.0.0.1 only; core.host opens it to other machines"
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
    rules = document.get("mcp")
    if not isinstance(rules, dict):
        return
    made.keys.add("mcp")
    lists: dict[str, list[str]] = {}
    for kind in ("allowed", "excluded"):
        listed = rules.get(kind) or []
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            findings.refuse_type(f"mcp.{kind}", "a list of names of servers", listed)
            listed = []
        lists[kind] = listed
    made.off |= {name for name in names if lists["allowed"] and name not in lists["allowed"]}
    made.off |= set(lists["excluded"])


def _opencode(document: Mapping[str, object], names: list[str], made: Particulars, findings: Findings) -> None:
    """Reads `tools`, whose names and patterns have the name of the server and `_` before that of the tool."""
    rules = document.get("tools")
    if not isinstance(rules, dict):
        return
    made.keys.add("tools")
    for pattern, is_on in rules.items():
        for name in names:
            if is_on is not False or not isinstance(pattern, str):
                continue
            prefix = f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}_"
            if pattern.startswith(prefix):
                made.hidden.setdefault(name, []).append(pattern[len(prefix) :].replace("$", "$$"))
            elif fnmatchcase(f"{prefix}\0", pattern):  # it fits whatever the tool is called
                made.hidden.setdefault(name, []).append("*")


_READERS: Final[dict[str, Callable[[Mapping[str, object], list[str], Particulars, Findings], None]]] = {
    "TBXark's mcp-proxy": _tbxark,
    "MCPHub": _mcphub,
    "Gemini CLI": _gemini,
    "opencode": _opencode,
}


def further_path(name: str) -> str | None:
    """Returns the path at which TBXark's mcp-proxy has a server; None if it cannot stand in a path."""
    return f"/{name}/mcp" if _PATH.fullmatch(name) else None
