"""Converts the document of a client to one of our own form."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from ....core.base.nearest import nearest
from ...base.problem import Problem
from .entries import Entry
from .findings import Findings
from .inputs import read_inputs
from .keys import Meaning, plain
from .particulars import Particulars, further_path, read_particulars
from .recognition import Place, Recognized
from .selections import read_selections
from .surroundings import Surroundings
from .times import read_times
from .upstreams import UpstreamReader
from .variables import Variables

ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_ID_MAX_CHARS: Final = 64
_IN_ASCII: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})
_APP_TYPES: Final = (
    "builtin",
    "platform",
    "frontend",
    "inprocess",
    "internal",
    "extension",
    "inlinepython",
    "poci",
    "sdk",
)
"""Types of servers that are a part of their client, as `keys.plain` has them."""
_COMMENT: Final = ("_", "$", "//", "#")
_NO_WARNING: Final = ("$schema", "inputs", "version")


class Converted(NamedTuple):
    """A document of our own form.

    Attributes:
        document: its text is in our form: variables are `${NAME}`, and a `$` is `$$`.
        origins: for keys of the document, the keys of the file that they come from.
        problems: the faults of the file, with its own keys.
        warnings: lines about what is ignored or works differently.
        notes: lines about what was decided.
    """

    document: dict[str, object]
    origins: dict[str, str]
    problems: list[Problem]
    warnings: list[str]
    notes: list[str]

    def to_their_keys(self, text: str) -> str:
        """Replaces our keys in a message by those of the file."""

        def replacement(match: re.Match[str]) -> str:
            key = match[0]
            at = key
            while at and at not in self.origins:
                at = at[: max(at.rfind("."), at.rfind("["), 0)]
            return self.origins[at] + key[len(at) :] if at else key

        return re.sub(r"servers\[\d+\](?:[\w.\-/]|\[\d+\])*(?<!\.)", replacement, text)


def convert(
    document: Mapping[str, object],
    recognized: Recognized,
    surroundings: Surroundings,
    own_keys: Mapping[str, Collection[str]],
) -> Converted:
    """Returns the document in our form. Parts with a fault, which is noted, are left out.

    Args:
        own_keys: the top-level keys of our form, each with the keys that it may have. They may stand beside those of
            the client.
    """
    return _Conversion(document, recognized, surroundings, own_keys).run()


class _Conversion:
    def __init__(
        self,
        document: Mapping[str, object],
        recognized: Recognized,
        surroundings: Surroundings,
        own_keys: Mapping[str, Collection[str]],
    ) -> None:
        self._document = document
        self._client = recognized.client
        self._places = recognized.places
        self._own_keys = own_keys
        self._findings = Findings()
        self._origins: dict[str, str] = {}
        self._left_out: list[str] = []
        inputs = read_inputs(document, surroundings.inputs, self._findings)
        variables = Variables(self._client, recognized.workspace, inputs, surroundings)
        self._upstreams = UpstreamReader(self._client, recognized.workspace, variables, surroundings, self._findings)

    def run(self) -> Converted:
        findings = self._findings
        entries = list(self._entries())
        particulars = read_particulars(self._client.title, self._document, [entry.name for entry in entries], findings)
        made = self._own_part(particulars)
        own_servers = made.pop("servers", [])
        servers: list[object] = [*own_servers] if isinstance(own_servers, list) else []
        running = [entry for entry in entries if not entry.is_off and entry.name not in particulars.off]
        off = [entry.name for entry in entries if entry not in running]
        if off:
            findings.notes.append(f"switched off: {', '.join(off)}")
        taken = {str(one.get("id")) for one in servers if isinstance(one, dict)}
        ids = _ids([entry.name for entry in running], taken)
        for entry, id in zip(running, ids, strict=True):
            if id != entry.name:
                findings.notes.append(f"{entry.name!r} has the id {id}")
            self._add(servers, entry, id, particulars)
        if entries and not running and not servers:
            findings.refuse(self._places[0].key, "at least one server that is to run", "every server is disabled")
        elif not servers and any(place.servers for place in self._places) and not findings.problems:
            right = "at least one server that Isthmus can start"
            why = f"none is left: {self._left_out[0]}" if self._left_out else "none is left"
            findings.refuse(self._places[0].key, right, why)
        made["servers"] = servers
        return Converted(made, self._origins, findings.problems, findings.all_warnings(), findings.notes)

    def _entries(self) -> Iterator[Entry]:
        """Yields the servers of all places, those that are switched off too."""
        for place in self._places:
            for name, key, value in place.servers:
                if not isinstance(value, dict):
                    if self._is_foreign(place, name):
                        self._findings.ignored.append(key)
                    else:
                        is_file = isinstance(value, str) and key == place.key
                        fix = "if it is the path of a file, give Isthmus that file" if is_file else ""
                        self._findings.refuse_type(key, "keys with values", value, fix)
                    continue
                is_listed = place.kind.endswith("[]")
                entry = Entry(name, key, value, self._client, is_listed=is_listed)
                reason = self._why_left_out(entry, value)
                if reason and not entry.is_off:
                    self._left_out.append(f"{key} is left out: {reason}")
                    self._findings.warnings.append(self._left_out[-1])
                else:
                    yield entry

    def _is_foreign(self, place: Place, name: str) -> bool:
        """True for what stands among servers and is none: a comment, or a setting of the client."""
        return name.startswith(_COMMENT) or place.kind == "mcp"

    def _why_left_out(self, entry: Entry, value: Mapping[object, object]) -> str:
        if entry.all(Meaning.IMAGE) and not entry.all(Meaning.URL):
            return "it is an image; isthmus wrap -- docker run -i --rm IMAGE serves one"
        types = [plain(member.value) for member in entry.all(Meaning.TYPE) if isinstance(member.value, str)]
        if any(type in _APP_TYPES for type in types):
            return f"it is a part of {self._client.title}"
        if not entry.has_way and not {"source", "settings"}.isdisjoint(value) and "context_servers" in entry.key:
            return f"it belongs to an extension of {self._client.title}"
        if not entry.has_way and "uses" in value:
            return f"it is a block of the hub of {self._client.title}; write its command or url here"
        return ""

    def _add(self, servers: list[object], entry: Entry, id: str, particulars: Particulars) -> None:
        before = len(self._findings.problems)
        self._findings.problems += entry.findings.problems
        self._findings.ignored += entry.findings.ignored
        upstream, origins = self._upstreams.read(entry)
        server: dict[str, object] = {"id": id, "upstream": upstream}
        hidden = particulars.hidden.get(entry.name)
        for made, sources in (
            read_selections(entry, self._client, self._findings),
            read_times(entry, self._client, self._findings),
        ):
            server |= made
            origins |= sources
        if hidden:
            tools = server.setdefault("tools", {})
            assert isinstance(tools, dict)
            shown = particulars.shown.get(entry.name)
            if hidden == ["*"] and shown and "include" not in tools:
                tools["include"] = shown
            else:
                tools["exclude"] = [*tools.get("exclude", []), *hidden]
        for ours, (seconds, key) in particulars.times.items():
            if ours not in server:
                server[ours], origins[ours] = seconds, key
        path = further_path(entry.name) if particulars.has_paths else None
        if path is not None:
            server["further_path"] = path
        if len(self._findings.problems) == before:
            key = f"servers[{len(servers)}]"
            origins.setdefault("upstream", origins[""])
            self._origins |= {f"{key}.{ours}" if ours else key: theirs for ours, theirs in origins.items()}
            servers.append(server)

    def _own_part(self, particulars: Particulars) -> dict[str, object]:
        """Returns what the document has of our own form. Other keys are the client's, and are noted as ignored."""
        made: dict[str, object] = {}
        tops = {place.key if place.key in self._document else place.key.partition(".")[0] for place in self._places}
        is_flat = "" in tops
        for name, value in self._document.items():
            if name in tops or name in particulars.keys:
                continue
            if name in self._own_keys and _is_own(value, self._own_keys[name]):
                made[name] = value
            elif not is_flat and name not in _NO_WARNING:
                self._findings.ignored.append(str(name))
        if particulars.core:
            core = made.get("core")
            made["core"] = particulars.core | (core if isinstance(core, dict) else {})
        return made


def _is_own(value: object, keys: Collection[str]) -> bool:
    """True for a section of our form: one of its keys is one of ours, or nearly one."""
    if not keys:
        return True  # a list of servers, or the text of $schema
    if not isinstance(value, dict):
        return False
    return not value or any(isinstance(name, str) and nearest(name, keys) for name in value)


def _ids(names: list[str], taken: set[str]) -> list[str]:
    """Returns an id for each name: the name itself where it is a legal id, else one made of it, each once."""
    legal = {name for name in names if re.fullmatch(ID_PATTERN, name)}
    used = {*taken, *legal}
    ids: list[str] = []
    given: set[str] = set()
    for name in names:
        if name in legal and name not in given:
            given.add(name)
            ids.append(name)
            continue
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", _ascii(name)).strip("-._")[:_ID_MAX_CHARS] or "server"
        id, count = base, 1
        while id in used:
            count += 1
            id = f"{base[: _ID_MAX_CHARS - len(f'-{count}')]}-{count}"
        used.add(id)
        ids.append(id)
    return ids


def _ascii(name: str) -> str:
    """Returns a name with letters in place of those with marks: a reader knows it again."""
    letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", name).translate(_IN_ASCII))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
