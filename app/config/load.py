"""Reads configurations: YAML, TOML or JSON in, checked `Settings` out, or one error that lists every fault."""

from __future__ import annotations

import inspect
import logging
import os
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from . import remote_mcp_adapter
from .addresses import settle
from .checks import check
from .documents import MalformedDocument, Reader, parse
from .remote_mcp_adapter_schema import AdapterFile
from .rusted_tools import IGNORED, EndpointsFile, is_endpoints_file, to_settings, to_their_keys, unused
from .settings import CLIENT_KEYS, McpServer, Server, Settings
from .upstream_checks import upstream_of
from .value_types import REFERENCE

_log = logging.getLogger("isthmus.config")

_ENDINGS: Final = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json"}
_PLACEHOLDERS: Final = ("{ws}", "{in}", "{out}", "{tmp}")


class ConfigError(Exception):
    """A configuration that cannot be used.

    Attributes:
        message: a line for each fault: file, dotted key, what was seen, what was expected.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def load(path: str | Path) -> Settings:
    """Returns the settings in the file `path`, which ends in .yaml, .yml, .toml or .json.

    Raises:
        ConfigError: the file cannot be read, or its content cannot be used.
    """
    path = Path(path)
    format = _ENDINGS.get(path.suffix.lower())
    if format is None:
        raise ConfigError(f"{path}: got the ending {path.suffix!r}, expected one of {', '.join(_ENDINGS)}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: got byte {error.start} that is not UTF-8, expected UTF-8 text") from error
    try:
        return loads(text, format, str(path.absolute().parent), os.environ)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in error.message.splitlines())) from error


def loads(text: str, format: str, base_dir: str, environ: Mapping[str, str]) -> Settings:
    """Returns the settings in `text`. Reads neither files nor the process's own environment.

    Args:
        format: yaml, toml or json.
        base_dir: absolute path of the folder that relative paths start from.
        environ: the variables for `${NAME}`.

    Raises:
        ConfigError: the content cannot be used; the lines of the message name no file.
    """
    assert posixpath.isabs(base_dir)
    try:
        document = parse(text, format)
    except MalformedDocument as error:
        raise ConfigError(f"not {format.upper()}: {error}".replace("\n", " ")) from error
    if format == "toml" and is_endpoints_file(document):
        return _settle(_endpoints(document, environ), base_dir)
    if remote_mcp_adapter.is_adapter_file(document):
        return _settle(_adapter(document, environ), base_dir)
    reader = Reader(environ, {McpServer: CLIENT_KEYS})
    settings = reader.read(document, Settings)
    problems = reader.problems
    if isinstance(settings, Settings):
        problems = problems + check(settings, reader.is_sound)
    if problems:
        raise ConfigError("\n".join(reader.render(problem).replace("\n", " ") for problem in problems))
    assert isinstance(settings, Settings)
    for key in reader.passed_over:
        _log.warning("%s is for clients, and is ignored", key)
    return _settle(settings, base_dir)


def _endpoints(document: object, environ: Mapping[str, str]) -> Settings:
    """Returns the settings in a configuration of rusted-tools."""
    reader = Reader(environ, IGNORED)
    file = reader.read(document, EndpointsFile)
    settings, problems = Settings(), reader.problems
    if isinstance(file, EndpointsFile) and not problems:
        settings = to_settings(file)
        problems = list(map(to_their_keys, check(settings, lambda key: True)))
    if problems:
        raise ConfigError("\n".join(reader.render(problem).replace("\n", " ") for problem in problems))
    for line in unused(reader.passed_over):
        _log.warning("%s", line)
    return settings


def _adapter(document: object, environ: Mapping[str, str]) -> Settings:
    """Returns the settings in a configuration of remote-mcp-adapter."""
    document = remote_mcp_adapter.prepared(document)
    reader = Reader(environ)
    file = reader.read(document, AdapterFile)
    settings, problems = Settings(), reader.problems
    notes: list[str] = []
    if isinstance(file, AdapterFile) and not problems:
        settings, notes = remote_mcp_adapter.to_settings(file)
        problems = [
            *remote_mcp_adapter.faults(file),
            *map(remote_mcp_adapter.to_their_keys, check(settings, lambda key: True)),
        ]
    if problems:
        raise ConfigError("\n".join(reader.render(problem).replace("\n", " ") for problem in problems))
    assert isinstance(document, dict)
    for line in (*notes, *remote_mcp_adapter.unused(document)):
        _log.warning("%s", line)
    return settings


def _settle(settings: Settings, base_dir: str) -> Settings:
    """Normalizes settings: all servers in one list, absolute paths, no trailing slash, no transport in URLs."""

    def absolute(path: str) -> str:
        return posixpath.normpath(posixpath.join(base_dir, path))

    def settled(server: Server) -> Server:
        upstream = server.upstream
        command, cwd, ca_file = upstream.command, upstream.cwd, upstream.ca_file
        if command is not None and "/" in command[0] and not command[0].startswith(_PLACEHOLDERS):
            command = (absolute(command[0]), *command[1:])
        if cwd is not None and not cwd.startswith(_PLACEHOLDERS):
            cwd = absolute(cwd)
        if ca_file is not None:
            ca_file = absolute(ca_file)
        url, transport = upstream.url, upstream.transport
        if url is not None:
            url, transport = settle(url, transport)
        return msgspec.structs.replace(
            server,
            upstream=msgspec.structs.replace(
                upstream, command=command, cwd=cwd, ca_file=ca_file, url=url, transport=transport
            ),
            artifact_roots=tuple(map(absolute, server.artifact_roots)),
            hard_linked_roots=tuple(map(absolute, server.hard_linked_roots)),
            shared=tuple(
                msgspec.structs.replace(folder, here=absolute(folder.here), there=posixpath.normpath(folder.there))
                for folder in server.shared_folders
            ),
            unix_socket=server.unix_socket and absolute(server.unix_socket),
        )

    entries = settings.mcp_servers.items()
    more = (Server(id=name, upstream=upstream_of(entry)) for name, entry in entries if not entry.disabled)
    base_url = settings.core.public_base_url
    return msgspec.structs.replace(
        settings,
        core=msgspec.structs.replace(
            settings.core,
            public_base_url=base_url and base_url.rstrip("/"),
            unix_socket=settings.core.unix_socket and absolute(settings.core.unix_socket),
        ),
        storage=msgspec.structs.replace(settings.storage, root=absolute(settings.storage.root)),
        servers=tuple(map(settled, (*settings.servers, *more))),
        mcp_servers={},
    )


def schema() -> dict[str, Any]:
    """Returns the JSON Schema (2020-12) of a configuration file, in which variables and byte sizes are text."""
    made = msgspec.json.schema(Settings)
    _loosen(made)
    for key in CLIENT_KEYS:
        made["$defs"]["McpServer"]["properties"][key] = {"description": "For clients; ignored here."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Isthmus configuration",
        **made,
        "anyOf": [
            {"required": ["servers"], "properties": {"servers": {"minItems": 1}}},
            {"required": ["mcpServers"], "properties": {"mcpServers": {"minProperties": 1}}},
        ],
    }


def _loosen(node: object) -> None:
    """Allows `${NAME}` for every number, boolean and choice, except for the tag that tells adapters apart."""
    if isinstance(node, list):
        for item in node:
            _loosen(item)
    if not isinstance(node, dict):
        return
    if node.get("type") in ("integer", "number", "boolean"):
        node["type"] = [node["type"], "string"]
        node.setdefault("pattern", REFERENCE)
    if isinstance(node.get("description"), str):
        node["description"] = inspect.cleandoc(node["description"])
    for key, value in node.items():
        if key not in ("default", "type", "enum"):
            _loosen(value)
    if "enum" in node and len(node["enum"]) > 1:
        node["anyOf"] = [{"enum": node.pop("enum")}, {"type": "string", "pattern": REFERENCE}]
