"""Sorts the keys of one server by their meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from .clients import Client
from .findings import Findings
from .keys import Meaning, key_of, nearest_key, plain

_TIMES: Final = {"startup": Meaning.START_MS, "request": Meaning.CALL_MS}
_TRUE_FALSE: Final = {"true": True, "false": False}
_VAGUE_TYPES: Final = ("remote", "server")
_AVAILABLE: Final = "availabletools"
_NO_SIGN_IN: Final = ("dynamic_discovery",)


class Member(NamedTuple):
    """A key of a server, dotted from the top of the file, and its value."""

    key: str
    value: object


class Entry:
    """One server of a file: its keys by meaning.

    Args:
        name: what the file calls it.
        key: its dotted key.
        is_listed: it stands in a list, so its name is one of its keys.

    Attributes:
        findings: the faults of its keys. They matter only if the server runs.
    """

    def __init__(
        self,
        name: str,
        key: str,
        value: Mapping[object, object],
        client: Client,
        *,
        is_listed: bool,
    ) -> None:
        self.name = name
        self.key = key
        self.members: dict[Meaning, list[Member]] = {}
        self.findings = Findings()
        self._sort(key, value, client, self.findings, {"name", "id"} if is_listed else set())
        self.is_off = any(self._flag(member, self.findings) is True for member in self.all(Meaning.OFF))
        self.is_off |= any(self._flag(member, self.findings) is False for member in self.all(Meaning.ON))

    def all(self, meaning: Meaning) -> list[Member]:
        return self.members.get(meaning, [])

    def one(self, meaning: Meaning, findings: Findings) -> Member | None:
        """Returns the key with this meaning, if there is one. Several have to agree."""
        found = self.all(meaning)
        if meaning is Meaning.TYPE and len(found) > 1:  # of a kind of entry and of its transport, the second says more
            found = [member for member in found if member.value not in _VAGUE_TYPES] or found
        for other in found[1:]:
            if other.value != found[0].value:
                findings.refuse(other.key, f"the value of {found[0].key}, or one of the two keys", "got another value")
        return found[0] if found else None

    @property
    def has_way(self) -> bool:
        """True if it has a command or a URL."""
        return any(self.all(meaning) for meaning in (Meaning.COMMAND, Meaning.URL, Meaning.STREAMABLE_URL))

    def _sort(
        self, key: str, value: Mapping[object, object], client: Client, findings: Findings, skipped: set[str]
    ) -> None:
        for name, item in value.items():
            at = f"{key}.{name}"
            if not isinstance(name, str):
                findings.refuse_type(at, "a key that is text (in quotes)", name)
            elif item is not None and plain(name) not in skipped:
                for meaning, member in self._meant(at, name, item, client, findings):
                    self.members.setdefault(meaning, []).append(member)

    def _meant(
        self, at: str, name: str, item: object, client: Client, findings: Findings
    ) -> Iterator[tuple[Meaning, Member]]:
        row = key_of(name)
        if row is None:
            near = nearest_key(name)
            if near is not None:
                findings.refuse(at, "", "unknown key", f"did you mean {near}?")
            else:
                findings.ignored.append(at)
            return
        meaning = row.meaning
        if meaning is Meaning.CLIENT or (plain(name) == _AVAILABLE and item == []):
            findings.ignored.append(at)
        elif meaning is Meaning.NESTED or (meaning is Meaning.TYPE and isinstance(item, dict)):
            if isinstance(item, dict):
                self._sort(at, item, client, findings, {"timeout"} if plain(name) == "requestoptions" else set())
                if plain(name) == "requestoptions" and item.get("timeout") is not None:
                    yield Meaning.CALL_S, Member(f"{at}.timeout", item["timeout"])
            else:
                findings.ignored.append(at)
        elif meaning is Meaning.COMMAND and isinstance(item, dict):
            self._sort(at, {name: one for name, one in item.items() if name != "path"}, client, findings, set())
            yield meaning, Member(f"{at}.path", item.get("path"))
        elif meaning is Meaning.TIMEOUT and isinstance(item, dict):
            for inner, value in item.items():
                if inner in _TIMES:
                    yield _TIMES[inner], Member(f"{at}.{inner}", value)
                else:
                    findings.ignored.append(f"{at}.{inner}")
        elif meaning is Meaning.SIGN_IN and not _signs_in(item):
            findings.ignored.append(at)
        elif meaning in (Meaning.REFUSED, Meaning.SIGN_IN):
            if item not in ("", [], {}):
                findings.refuse(at, row.about, "got a key that Isthmus cannot honour")
        else:
            yield meaning, Member(at, item)

    def _flag(self, member: Member, findings: Findings) -> bool | None:
        value = member.value
        if isinstance(value, str):
            value = _TRUE_FALSE.get(value.strip().lower(), value)
        if isinstance(value, bool):
            return value
        findings.refuse_type(member.key, "true or false", value)
        return None


def _signs_in(value: object) -> bool:
    """True if a server is signed in to with OAuth."""
    if isinstance(value, dict):
        return bool(value) and value.get("enabled") is not False
    return bool(value) and value not in _NO_SIGN_IN
