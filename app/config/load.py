"""Reads configurations: YAML, TOML or JSON in, checked `Settings` out, or one error that lists every fault."""

from __future__ import annotations

import inspect
import logging
import os
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..base.errors import ConfigError
from . import remote_mcp_adapter
from .addresses import settle
from .checks import check
from .dialects.keys import KEYS
from .dialects.recognition import Recognized, has_servers_of_projects, recognize
from .dialects.surroundings import Input, Surroundings
from .documents import MalformedDocument, Reader, parse
from .line_numbers import line_numbers, line_of
from .login_settings import ClientCredentials, Enterprise, Exchange
from .remote_mcp_adapter_schema import AdapterFile
from .rusted_tools import IGNORED, EndpointsFile, is_endpoints_file, to_settings, to_their_keys, unused
from .settings import Server, Settings
from .value_types import REFERENCE

if TYPE_CHECKING:
    from .dialects.conversion import Converted

_log = logging.getLogger("isthmus.config")

_ENDINGS: Final = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".jsonc": "json"}
_OWN_KEYS: Final = {
    entry.encode_name: tuple(one.encode_name for one in msgspec.structs.fields(entry.type))
    if isinstance(entry.type, type) and issubclass(entry.type, msgspec.Struct)
    else ()
    for entry in msgspec.structs.fields(Settings)
}
"""The top-level keys of our form, each with the keys that it may have."""
MCP_SERVERS: Final = "Servers, by name, in the form that MCP clients use."
_SERVERS: Final = "expected servers, as in mcpServers: {time: {command: uvx, args: [mcp-server-time]}}"
_PLACEHOLDERS: Final = ("{ws}", "{in}", "{out}", "{tmp}")


def load(path: str | Path) -> Settings:
    """Returns the settings in the file `path`, which ends in .yaml, .yml, .toml, .json or .jsonc.

    Raises:
        ConfigError: the file cannot be read, or its content cannot be used.
    """
    return open_source(path).settings()


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
    return Source(text, format, Surroundings(posixpath.join(base_dir, "configuration"), environ)).settings()


def open_source(
    path: str | Path, inputs: Mapping[str, str] | None = None, ask: Callable[[Input], str | None] | None = None
) -> Source:
    """Reads and parses the file `path`, and recognizes whose form it has.

    Args:
        inputs: values of the inputs that a file of VS Code asks for.
        ask: asks a person for those that are missing; None: there is nobody to ask.

    Raises:
        ConfigError: the file cannot be read, or it is not valid in its format.
    """
    path = Path(path)
    format = _ENDINGS.get(path.suffix.lower())
    if format is None:
        seen = f"the ending {path.suffix!r}" if path.suffix else "no ending"
        fix = f"name it {path.stem}.yaml, for example"
        raise ConfigError(f"{path}: got {seen}, expected one of {', '.join(_ENDINGS)}; {fix}")
    try:
        text = _read_text(str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: got byte {error.start} that is not UTF-8, expected UTF-8 text") from error
    surroundings = Surroundings(str(path.absolute()), os.environ, inputs or {}, ask, _read_text)
    return Source(text, format, surroundings, str(path))


def _read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8-sig")


class Source:
    """A configuration that was parsed, and not yet turned into settings.

    Args:
        format: yaml, toml or json.
        path: the file, as errors name it; empty: they name none.

    Attributes:
        title: whose form it has; empty: our own.
        notes: after `settings` or `converted`, what was decided about a file of a client, a line each.

    Raises:
        ConfigError: the text is not valid in this format.
    """

    def __init__(self, text: str, format: str, surroundings: Surroundings, path: str = "") -> None:
        self._surroundings = surroundings
        self._text = text
        self._format = format
        self.path = path
        self.notes: list[str] = []
        if not text.strip():
            raise self._error(f"got an empty file, {_SERVERS}")
        try:
            self._document = parse(text, format)
        except MalformedDocument as error:
            raise self._error(f"not {format.upper()}: {error}", error.line) from error
        if self._document is None:
            raise self._error(f"got a file without keys, {_SERVERS}")
        self._is_endpoints = format == "toml" and is_endpoints_file(self._document)
        self._recognized = None if self._is_endpoints else self._recognize()
        self._is_adapter = self._recognized is None and remote_mcp_adapter.is_adapter_file(self._document)
        self.title = (
            "rusted-tools"
            if self._is_endpoints
            else "remote-mcp-adapter"
            if self._is_adapter
            else ""
            if self._recognized is None
            else self._recognized.client.title
        )

    def settings(self) -> Settings:
        """Returns the settings.

        Raises:
            ConfigError: the content cannot be used.
        """
        base_dir, environ = posixpath.dirname(self._surroundings.path), self._surroundings.environ
        try:
            if self._is_endpoints:
                return _settle(_endpoints(self._document, environ), base_dir)
            if self._is_adapter:
                return _settle(_adapter(self._document, environ), base_dir)
            if self._has_no_servers() and has_servers_of_projects(self._document):
                raise ConfigError(
                    "projects: got servers of single projects only, expected mcpServers; "
                    "claude mcp add --scope user adds a server for all projects"
                )
            if self._recognized is not None:
                return _settle(self._of_client(self._surroundings), base_dir)
            if self._surroundings.inputs:
                raise ConfigError("got --input, expected it for a file with inputs, as VS Code has them")
            return _settle(_own(self._document, environ), base_dir)
        except ConfigError as error:
            raise self._located(error.message.splitlines()) from error

    def converted(self) -> object:
        """Returns the document in our own form.

        Raises:
            ConfigError: it cannot be converted.
        """
        if self._is_endpoints or self._is_adapter:
            raise self._error(f"got a file of {self.title}, which is read as it is; expected one of an MCP client")
        if self._recognized is None:
            return self._document
        converted = self._convert(replace(self._surroundings, leaves_inputs_open=True))
        if converted.problems:
            reader = Reader(self._surroundings.environ)
            raise self._located([reader.render(problem) for problem in converted.problems])
        self._tell(converted)
        return converted.document

    def _recognize(self) -> Recognized | None:
        servers = self._document.get("servers") if isinstance(self._document, dict) else None
        if isinstance(servers, list) and any(isinstance(one, dict) and "mount_path" in one for one in servers):
            return None  # of remote-mcp-adapter
        return recognize(self._document, self._surroundings.path, _OWN_KEYS)

    def _has_no_servers(self) -> bool:
        return self._recognized is None or not any(place.servers for place in self._recognized.places)

    def _convert(self, surroundings: Surroundings) -> Converted:
        from .dialects.conversion import convert  # late: most files have our own form

        assert self._recognized is not None and isinstance(self._document, dict)
        return convert(self._document, self._recognized, surroundings, _OWN_KEYS)

    def _of_client(self, surroundings: Surroundings) -> Settings:
        converted = self._convert(surroundings)
        reader = Reader(surroundings.environ)
        settings = reader.read(converted.document, Settings)
        found = list(reader.problems)
        if isinstance(settings, Settings):
            found += check(settings, reader.is_sound)
        found = reader.without_followers(found)
        if converted.problems:  # servers with a fault are left out, so there may be none
            found = [problem for problem in found if problem.key != "servers"]
        problems = [*converted.problems, *found]
        if problems:
            raise ConfigError(
                "\n".join(converted.to_their_keys(reader.render(one)).replace("\n", " ") for one in problems)
            )
        assert isinstance(settings, Settings)
        self._tell(converted)
        return settings

    def _tell(self, converted: Converted) -> None:
        self.notes = converted.notes
        for line in converted.warnings:
            _log.warning("%s", line)

    def _located(self, lines: list[str]) -> ConfigError:
        """Returns an error of lines that begin with a key each, each with the number of the line its key stands in."""
        numbers = line_numbers(self._text, self._format) if self.path else {}
        found = (line_of(line.partition(": ")[0], numbers) for line in lines)
        return ConfigError("\n".join(map(self._at, lines, found)))

    def _error(self, line: str, number: int | None = None) -> ConfigError:
        return ConfigError(self._at(line, number))

    def _at(self, line: str, number: int | None) -> str:
        """Returns a line with the file, if it has a name, and with the number of the line there, if it is known."""
        where = f"{self.path}:{number}: " if number else f"{self.path}: "
        return f"{where if self.path else ''}{line}".replace("\n", " ")


def _own(document: object, environ: Mapping[str, str]) -> Settings:
    """Returns the settings in a configuration of our own form."""
    reader = Reader(environ)
    settings = reader.read(document, Settings)
    problems = reader.problems
    if isinstance(settings, Settings):
        problems = problems + check(settings, reader.is_sound)
    problems = reader.without_followers(problems)
    if problems:
        raise ConfigError("\n".join(reader.render(problem).replace("\n", " ") for problem in problems))
    assert isinstance(settings, Settings)
    return settings


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
    """Normalizes settings: absolute paths, no trailing slash, no transport in URLs."""

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
        auth = upstream.auth
        if isinstance(auth, ClientCredentials) and auth.private_key is not None:
            auth = msgspec.structs.replace(auth, private_key=absolute(auth.private_key))
        elif isinstance(auth, Exchange | Enterprise) and auth.subject_token_file is not None:
            auth = msgspec.structs.replace(auth, subject_token_file=absolute(auth.subject_token_file))
        settled = [settle(url, upstream.transport) for url in upstream.all_urls]
        url, transport = settled[0] if settled else (None, upstream.transport)
        return msgspec.structs.replace(
            server,
            upstream=msgspec.structs.replace(
                upstream,
                command=command,
                cwd=cwd,
                ca_file=ca_file,
                url=url,
                urls=tuple(each for each, _ in settled) if len(settled) > 1 else None,
                transport=transport,
                auth=auth,
            ),
            artifact_roots=tuple(map(absolute, server.artifact_roots)),
            hard_linked_roots=tuple(map(absolute, server.hard_linked_roots)),
            shared=tuple(
                msgspec.structs.replace(folder, here=absolute(folder.here), there=posixpath.normpath(folder.there))
                for folder in server.shared_folders
            ),
            unix_socket=server.unix_socket and absolute(server.unix_socket),
        )

    audit = settings.telemetry.audit
    if audit is not None and audit.file is not None:
        audit = msgspec.structs.replace(audit, file=absolute(audit.file))
    base_url, tls, clients = settings.core.public_base_url, settings.core.tls, settings.auth.client_certificates
    if tls is not None:
        tls = msgspec.structs.replace(tls, certificate=absolute(tls.certificate), key=absolute(tls.key))
    if clients is not None:
        clients = msgspec.structs.replace(clients, ca_file=absolute(clients.ca_file))
    return msgspec.structs.replace(
        settings,
        core=msgspec.structs.replace(
            settings.core,
            public_base_url=base_url and base_url.rstrip("/"),
            unix_socket=settings.core.unix_socket and absolute(settings.core.unix_socket),
            tls=tls,
        ),
        auth=msgspec.structs.replace(settings.auth, client_certificates=clients),
        pins=msgspec.structs.replace(settings.pins, file=absolute(settings.pins.file)),
        telemetry=msgspec.structs.replace(settings.telemetry, audit=audit),
        storage=msgspec.structs.replace(settings.storage, root=absolute(settings.storage.root)),
        servers=tuple(map(settled, settings.servers)),
    )


def schema() -> dict[str, Any]:
    """Returns the JSON Schema (2020-12) of a configuration file, in which variables and byte sizes are text."""
    made = msgspec.json.schema(Settings)
    _loosen(made)
    made["$defs"]["Settings"]["properties"]["mcpServers"] = {
        "description": MCP_SERVERS,
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {row.names[0]: {"description": row.about} for row in KEYS},
        },
    }
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
