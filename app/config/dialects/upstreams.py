"""Converts the way to a server: its command, or its URL."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Final

from ....core.wire.http.header_forwarding import may_pass
from ....core.wire.http.request import FRAMING_HEADERS, PROTOCOL_HEADERS
from .clients import Client
from .entries import Entry, Member
from .env_file import read_env_file
from .findings import Findings
from .keys import LOG_IN, SWITCH_OFF, Meaning, plain
from .surroundings import Surroundings
from .variables import UnknownVariable, Variables, escape

_STDIO: Final = "stdio"
TRANSPORTS: Final[dict[str, str]] = {
    "stdio": _STDIO,
    "local": _STDIO,
    "http": "http",
    "https": "http",
    "streamablehttp": "streamable_http",
    "streamable": "streamable_http",
    "httpstream": "streamable_http",
    "sse": "sse",
    "ws": "websocket",
    "websocket": "websocket",
    "remote": "auto",
    "server": "auto",
    "auto": "auto",
}
"""Words for transports, as `keys.plain` has them, and ours."""

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_SOCKETS: Final = ("ws://", "wss://")
_WORD: Final = "stdio, http, streamable-http, sse, websocket, local or remote"
_BESIDE: Final = "stdio beside a command, http, sse or websocket beside a url"
_API_KEYS: Final[dict[object, str]] = {"bearer": "Bearer ", "basic": "Basic ", "custom": ""}
"""The text before a key in its header, by type."""
_FALSE: Final = ("false", "0", "no")


class UpstreamReader:
    """Reads the `upstream` of one server after another.

    Args:
        workspace: the folder that relative paths start from.
    """

    def __init__(
        self,
        client: Client,
        workspace: str,
        variables: Variables,
        surroundings: Surroundings,
        findings: Findings,
    ) -> None:
        self._client = client
        self._workspace = workspace
        self._variables = variables
        self._surroundings = surroundings
        self._findings = findings

    def read(self, entry: Entry) -> tuple[dict[str, object], dict[str, str]]:
        """Returns the upstream in our form, and the keys of the file that its keys come from."""
        made: dict[str, object] = {}
        origins: dict[str, str] = {"": entry.key}
        process = self._process(entry, origins) if entry.all(Meaning.COMMAND) else {}
        command, url = self._command(entry, process, origins), self._url(entry, origins)
        word = self._type(entry, has_command=command is not None, url=url)
        if command is not None:
            made["command"] = command
            made |= process
            self._ignore(entry, (Meaning.HEADERS, Meaning.HEADER_VARIABLES, Meaning.PASS_HEADERS, Meaning.PROXY))
        if url is not None:
            made["url"] = url
            made |= self._connection(entry, origins)
            transport = "streamable_http" if origins.get("url") in self._streamable(entry) else word
            if transport is None and self._client.url_is_sse and not url.startswith(_SOCKETS):
                transport = "sse"
            if transport not in (None, "auto", "http", _STDIO):
                made["transport"] = transport
            for member in entry.all(Meaning.ARGS) if command is None else ():
                if member.value != []:
                    self._findings.refuse_type(member.key, "args beside a command only", member.value)
            if command is None:
                self._ignore(entry, (Meaning.ENV, Meaning.ENV_FILE, Meaning.ENV_NAMES, Meaning.CWD))
        return made, origins

    def _ignore(self, entry: Entry, meanings: tuple[Meaning, ...]) -> None:
        """Ignores keys that mean nothing for this kind of server, unless they are empty."""
        self._findings.ignored += [
            member.key for meaning in meanings for member in entry.all(meaning) if member.value not in ({}, [], "")
        ]

    def _streamable(self, entry: Entry) -> list[str]:
        return [member.key for member in entry.all(Meaning.STREAMABLE_URL)]

    def text(self, key: str, value: object, own: Mapping[str, str] | None = None) -> str:
        """Returns a value as text in our form; empty if it has a fault, which is noted.

        Args:
            own: as `Variables.rewrite` takes it.
        """
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return escape(f"{value}")
        if not isinstance(value, str):
            self._findings.refuse_type(key, "text", value)
            return ""
        try:
            return self._variables.rewrite(value, own)
        except UnknownVariable as error:
            self._findings.refuse(key, error.expected, error.seen)
            return ""

    def _texts(self, member: Member, own: Mapping[str, str]) -> list[str]:
        if not isinstance(member.value, list):
            fix = 'write ["…"], one text for each word' if isinstance(member.value, str) else ""
            self._findings.refuse_type(member.key, "a list", member.value, fix)
            return []
        return [self.text(f"{member.key}[{i}]", item, own) for i, item in enumerate(member.value)]

    def _mapping(self, member: Member) -> dict[str, str]:
        """Returns a mapping to texts. A name whose value is null is left out."""
        if not isinstance(member.value, dict):
            self._findings.refuse_type(member.key, "keys with values", member.value)
            return {}
        return {
            str(name): self.text(f"{member.key}.{name}", value)
            for name, value in member.value.items()
            if value is not None
        }

    # --- A command --------------------------------------------------------------------------------------------------

    def _command(self, entry: Entry, process: Mapping[str, object], origins: dict[str, str]) -> list[str] | None:
        member = entry.one(Meaning.COMMAND, self._findings)
        if member is None:
            return None
        own = process.get("env")
        own = own if isinstance(own, dict) else {}
        if isinstance(member.value, list):
            command = self._texts(member, own)
            origins["upstream.command"] = member.key
        elif isinstance(member.value, str):
            words = _words(member.value)
            if len(words) > 1:
                self._findings.notes.append(f"{member.key} is taken for {len(words)} words")
            command = [self.text(member.key, word, own) for word in words]
            origins["upstream.command"] = origins["upstream.command[0]"] = member.key
        else:
            self._findings.refuse_type(member.key, "a program, or a list of it and its arguments", member.value)
            return None
        if command and "/" in command[0]:
            command[0] = self._path(command[0])
        for arguments in entry.all(Meaning.ARGS):
            more = self._texts(arguments, own)
            origins |= {f"upstream.command[{len(command) + i}]": f"{arguments.key}[{i}]" for i in range(len(more))}
            command += more
        return command

    def _path(self, path: str) -> str:
        """Returns a path from the workspace. One that begins with a variable or `~` stays as it is."""
        return (
            path if path.startswith(("$", "~")) else posixpath.normpath(posixpath.join(escape(self._workspace), path))
        )

    def _process(self, entry: Entry, origins: dict[str, str]) -> dict[str, object]:
        env: dict[str, str] = {}
        for member in entry.all(Meaning.ENV_FILE):
            env |= self._env_file(member)
        for member in entry.all(Meaning.ENV_NAMES):
            env |= self._env_names(member, origins)
        for member in entry.all(Meaning.ENV):
            env |= self._mapping(member)
            origins["upstream.env"] = member.key
        made: dict[str, object] = {"env": env} if env else {}
        cwd = entry.one(Meaning.CWD, self._findings)
        if cwd is not None and cwd.value != "":
            made["cwd"] = self._path(self.text(cwd.key, cwd.value))
            origins["upstream.cwd"] = cwd.key
        return made

    def _env_file(self, member: Member) -> dict[str, str]:
        """Reads a file of variables. Its values stand for themselves: they are not looked through for variables."""
        if not isinstance(member.value, str):
            self._findings.refuse_type(member.key, "the path of a file", member.value)
            return {}
        path = self._plain_path(member.key, member.value)
        if path is None:
            return {}
        try:
            read = read_env_file(self._surroundings.read_text(path))
        except OSError as error:
            self._findings.refuse(
                member.key,
                "a file of lines NAME=VALUE that can be read",
                f"got {path}, which cannot be read: {error.strerror or error}",
            )
            return {}
        except ValueError as error:  # UnicodeDecodeError is one
            why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            self._findings.refuse(member.key, "lines NAME=VALUE", f"got {path}, where {why}")
            return {}
        self._findings.notes.append(f"{member.key}: {len(read)} variables from {path}")
        return {name: escape(value) for name, value in read.items()}

    def _plain_path(self, key: str, text: str) -> str | None:
        """Returns a path whose variables are replaced at once, since the file is read now."""
        environ, missing = self._surroundings.environ, []

        def value(match: re.Match[str]) -> str:
            if match["name"] is None:
                return "$"
            found = environ.get(match["name"]) or match["default"]
            if found is None:
                missing.append(match["name"])
            return found or ""

        path = re.sub(r"\$\$|\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", value, self.text(key, text))
        if missing:
            self._findings.refuse(key, f"the environment variable {missing[0]} to be set", f"got ${{{missing[0]}}}")
        if missing or not path:
            return None
        if path.startswith("~/"):
            path = posixpath.join(environ.get("HOME", "/"), path[2:])
        return posixpath.normpath(posixpath.join(self._workspace, path))

    def _env_names(self, member: Member, origins: dict[str, str]) -> dict[str, str]:
        """Returns the variables that are handed on. One that is not set is left out, as the client leaves it out."""
        names = member.value if isinstance(member.value, list) else None
        given = [one.get("name") if isinstance(one, dict) else one for one in names or ()]
        plain_names = [name for name in given if isinstance(name, str)]
        if names is None or len(plain_names) < len(given):
            self._findings.refuse_type(member.key, "a list of names of variables", member.value)
            return {}
        env: dict[str, str] = {}
        for i, name in enumerate(plain_names):
            if name in self._surroundings.environ:
                env[name] = self.text(f"{member.key}[{i}]", f"${{env:{name}}}")
                origins[f"upstream.env.{name}"] = f"{member.key}[{i}]"
            else:
                self._findings.notes.append(f"{member.key}[{i}]: {name} is not set, and is not handed on")
        return env

    # --- A URL ------------------------------------------------------------------------------------------------------

    def _url(self, entry: Entry, origins: dict[str, str]) -> str | None:
        member = entry.one(Meaning.STREAMABLE_URL, self._findings) or entry.one(Meaning.URL, self._findings)
        if member is None:
            return None
        origins["upstream.url"] = origins["url"] = member.key
        return self.text(member.key, member.value)

    def _type(self, entry: Entry, *, has_command: bool, url: str | None) -> str | None:
        """Returns the transport that the file names; None if it names none. One that does not fit is refused."""
        member = entry.one(Meaning.TYPE, self._findings)
        if member is None or member.value == "":
            return None
        word = TRANSPORTS.get(plain(member.value)) if isinstance(member.value, str) else None
        seen = f"got {member.value!r}" if isinstance(member.value, str) else "got no text"
        if word is None:
            self._findings.refuse(member.key, _WORD, seen)
        elif word == "auto" or has_command == (url is not None):  # both or neither: another problem says so
            return word
        elif (word == _STDIO) != has_command:
            self._findings.refuse(member.key, _BESIDE, seen)
        elif url is not None:
            self._check_scheme(member.key, word, url, seen)
        return word

    def _check_scheme(self, key: str, word: str, url: str, seen: str) -> None:
        found = _SCHEME.match(url)
        scheme = found[1].lower() if found else ""
        if word in ("http", "streamable_http") and scheme.startswith("sse+"):
            self._findings.refuse(key, "sse beside an sse+http:// or sse+https:// URL", seen)
        elif (word in ("http", "streamable_http") and scheme in ("ws", "wss")) or (
            word == "websocket" and scheme in ("http", "https")
        ):
            right = "http beside an http:// or https:// URL, websocket beside a ws:// or wss:// URL"
            self._findings.refuse(key, right, seen)

    def _connection(self, entry: Entry, origins: dict[str, str]) -> dict[str, object]:
        headers: dict[str, str] = {}
        for member in entry.all(Meaning.HEADERS):
            headers |= self._headers(member)
            origins["upstream.headers"] = member.key
        for member in entry.all(Meaning.HEADER_VARIABLES):
            for name, variable in self._mapping(member).items():
                headers[name] = self._variable(f"{member.key}.{name}", variable)
                origins[f"upstream.headers.{name}"] = f"{member.key}.{name}"
        for meaning in (Meaning.TOKEN, Meaning.TOKEN_VARIABLE, Meaning.AUTH):
            for member in entry.all(meaning):
                self._token(member, meaning, headers, origins)
        made: dict[str, object] = {"headers": headers} if headers else {}
        for member in entry.all(Meaning.PASS_HEADERS):
            passed = self._pass_headers(member)
            if passed:
                made["pass_headers"] = passed
                listed = "" if isinstance(member.value, list) else ".whitelist"
                origins["upstream.pass_headers"] = f"{member.key}{listed}"
        for name, meaning in (("proxy", Meaning.PROXY), ("ca_file", Meaning.CA_FILE)):
            one = entry.one(meaning, self._findings)
            if one is not None and one.value not in ("", []):
                value = one.value[0] if isinstance(one.value, list) else one.value
                text = self.text(one.key, value)
                made[name] = self._path(text) if name == "ca_file" else text
                origins[f"upstream.{name}"] = one.key
        for member in entry.all(Meaning.VERIFY_TLS):
            if member.value is False or str(member.value).lower() in _FALSE:
                made["verify_tls"] = False
        return made

    def _headers(self, member: Member) -> dict[str, str]:
        headers = self._mapping(member)
        own = [name for name in headers if name.lower().encode() in PROTOCOL_HEADERS | FRAMING_HEADERS]
        self._findings.ignored += [f"{member.key}.{name}" for name in own]
        return {name: value for name, value in headers.items() if name not in own}

    def _token(self, member: Member, meaning: Meaning, headers: dict[str, str], origins: dict[str, str]) -> None:
        if meaning is Meaning.AUTH and isinstance(member.value, dict):
            if member.value:
                self._findings.warnings.append(f"{member.key} is not used: write {LOG_IN}")
            return
        if meaning is Meaning.AUTH and member.value in ("oauth", True):
            self._findings.refuse(member.key, LOG_IN, "got oauth" if member.value == "oauth" else "got true")
            return
        if member.value in ("", False):
            return
        if meaning is Meaning.TOKEN and isinstance(member.value, dict):
            self._api_key(member.key, member.value, headers, origins)
            return
        if any(name.lower() == "authorization" for name in headers):
            self._findings.refuse(member.key, "it, or a header Authorization, and not both", "got both")
            return
        if meaning is Meaning.TOKEN_VARIABLE and isinstance(member.value, str):
            token = self._variable(member.key, member.value)
        else:
            token = self.text(member.key, member.value)
        if token:
            headers["Authorization"] = f"Bearer {token.removeprefix('Bearer ')}"
            origins["upstream.headers.Authorization"] = member.key

    def _api_key(
        self, key: str, rules: Mapping[object, object], headers: dict[str, str], origins: dict[str, str]
    ) -> None:
        """Reads the mapping in which LibreChat has a key: whose it is, and how it is sent."""
        kind, custom = rules.get("authorization_type", "bearer"), rules.get("custom_header", "X-Api-Key")
        if rules.get("source", "admin") != "admin" or rules.get("key") is None:
            right = f"admin beside a key, for that of a user is not known here; or {SWITCH_OFF}"
            self._findings.refuse(f"{key}.source", right, "got no key of the admin")
        elif kind not in _API_KEYS:
            self._findings.refuse(f"{key}.authorization_type", "bearer, basic or custom", "got another type")
        elif not isinstance(custom, str):
            self._findings.refuse_type(f"{key}.custom_header", "the name of a header", custom)
        else:
            name = custom if kind == "custom" else "Authorization"
            headers[name] = _API_KEYS[kind] + self.text(f"{key}.key", rules["key"])
            origins[f"upstream.headers.{name}"] = f"{key}.key"

    def _variable(self, key: str, name: str) -> str:
        """Returns a variable that a key names. No default can be written there, so one that is not set is a fault."""
        if name not in self._surroundings.environ and not self._surroundings.leaves_inputs_open:
            self._findings.refuse(
                key, "", f"the environment variable {name} is not set", "set it before you start Isthmus"
            )
            return ""
        return self.text(key, f"${{env:{name}}}")

    def _pass_headers(self, member: Member) -> list[str]:
        rules = member.value
        if isinstance(rules, list):
            rules = {"enabled": True, "whitelist": rules}
        if not isinstance(rules, dict):
            self._findings.refuse_type(
                member.key, "a list of names of headers, or the keys enabled and whitelist", rules
            )
            return []
        if rules.get("enabled") is not True:
            return []
        lists = {}
        for kind in ("whitelist", "blacklist"):
            names = rules.get(kind) or []
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                self._findings.refuse_type(f"{member.key}.{kind}", "a list of names of headers", names)
                return []
            lists[kind] = names
        denied = {name.lower() for name in lists["blacklist"]}
        passed: list[str] = []
        for i, name in enumerate(lists["whitelist"]):
            if "*" in name:
                right = "the whole name of a header, for patterns are not passed on"
                self._findings.refuse(f"{member.key}.whitelist[{i}]", right, f"got {name!r}")
            elif name.lower() not in denied and may_pass(name):
                passed.append(escape(name))
        return passed


def _words(command: str) -> list[str]:
    """Returns the words of a command line such as `npx -y server`. A path is one word, spaces and all."""
    first = command.split(maxsplit=1)[:1]
    if not first or "/" in first[0] or "\\" in first[0]:
        return [command]
    try:
        return shlex.split(command)
    except ValueError:  # a quote that is not closed
        return [command]
