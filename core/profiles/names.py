"""Names of tools and prompts as clients of a profile see them: `alias__raw`, where the raw name is the server's.

A name depends on the configuration and on (server, raw name) alone: not on what other servers there are, which of them
can be reached, or what else is in a list. So every replica gives the same names, and what users and prompts say of a
tool stays true. Rules, pins and metrics speak of (server, raw name), and no renaming opens a way around them.

A raw name cannot always be shown as it is: it is too long, or empty, or has characters that model APIs refuse. Then the
name is made of what can be shown and a digest of the raw name at its end. Such a name cannot be computed back: it is
looked up among the names that the server has listed. A raw name that itself looks like one with a digest gets a
digest, too, so that the look of a name tells which it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

import msgspec

from ..base.errors import LocalProtocolError
from .aliases import Aliases

Kind = Literal["tools", "prompts"]

SEPARATOR: Final = "__"

LONGEST_MIN: Final = 32
"""The least bound on names: an alias, the separator, a digest, and something to read."""

CATALOGUE_MAX: Final = 20_000
"""Names of one server that can be looked up, of each kind. A list of so many tools has some 5 MB. At it: further names
with a digest are unknown."""

GUESS_MAX_CHARS: Final = 1024
"""The longest name for which candidates are found: each server of the profile costs a digest of it. At it: a name that
is unknown has none."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_DIGEST_CHARS: Final = 6
_DIGESTED: Final = re.compile(rf".*-[0-9a-f]{{{_DIGEST_CHARS}}}", re.DOTALL)
# A name with a digest has no separator in it, so the one of a server without an alias is never taken for another's.
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9_-]+|__+")


class Route(msgspec.Struct, frozen=True):
    """A server of the profile, and a name or URI in its own words."""

    server: str
    raw: str


class Shortened(msgspec.Struct, frozen=True):
    """A server of the profile, and a name with a digest, to be looked up in the `Names.catalogue` of that server."""

    server: str
    exposed: str


class Unknown(msgspec.Struct, frozen=True):
    """No name of the profile.

    Attributes:
        candidates: what it would be if it were a raw name: servers, and the name that clients have for it. Whether a
            server has such a name is not known here.
    """

    candidates: tuple[Shortened, ...]


class Names:
    """The names of one profile, in both directions.

    Args:
        renames: for some tools and prompts of a server, what is shown after its alias, by raw name.
        own: names of tools that the profile itself has.
        longest: the most characters of a name: 64 for model APIs, without the prefixes that clients add.

    Raises:
        LocalProtocolError: a renaming cannot be done. The text has a line for each problem.
    """

    def __init__(
        self,
        aliases: Aliases,
        renames: Mapping[tuple[str, Kind], Mapping[str, str]],
        *,
        own: Collection[str] = (),
        longest: int = 50,
    ) -> None:
        assert longest >= LONGEST_MIN
        self.aliases = aliases
        self._own = frozenset(own)
        self._longest = longest
        self._renamed = {key: dict(names) for key, names in renames.items() if key[0] in aliases}
        self._raw_of = {key: {new: raw for raw, new in names.items()} for key, names in self._renamed.items()}
        problems = [problem for key in self._renamed for problem in self._problems(*key)]
        if problems:
            raise LocalProtocolError("\n".join(problems))

    def expose(self, server: str, kind: Kind, raw: str) -> str:
        """Returns the name that clients have for a tool or prompt: at most `longest` of `A-Za-z0-9_-`."""
        renamed = self._renamed.get((server, kind), {}).get(raw)
        exposed = self._prefix(server) + (raw if renamed is None else renamed)
        if renamed is not None or self._may_stay(server, kind, raw, exposed):
            return exposed
        return self._digested(server, raw)

    def route(self, kind: Kind, exposed: str) -> Route | Shortened | Unknown:
        """Returns what a name that a client sent stands for; the inverse of `expose`."""
        if len(exposed) > GUESS_MAX_CHARS:
            return Unknown(())
        alias, separator, rest = exposed.partition(SEPARATOR)
        server = self.aliases.server_of(alias) if separator else None
        if server is None:
            server, rest = self.aliases.bare, exposed
        if server is None:
            return Unknown(tuple(Shortened(one, self.expose(one, kind, exposed)) for one in self.aliases))
        raw = self._raw_of.get((server, kind), {}).get(rest)
        if raw is not None:
            return Route(server, raw)
        candidate = self.expose(server, kind, rest)
        if candidate == exposed:
            return Route(server, rest)
        if len(exposed) <= self._longest and _PLAIN.fullmatch(exposed) and _DIGESTED.fullmatch(rest):
            return Shortened(server, exposed)
        return Unknown((Shortened(server, candidate),))

    def catalogue(self, server: str, kind: Kind, raws: Iterable[str]) -> dict[str, str]:
        """Returns the raw names of a server's list by the names that clients have for them, `CATALOGUE_MAX` at most.

        Of two entries with one name, which only a server that means to can have, the first counts.
        """
        found: dict[str, str] = {}
        for raw in raws:
            if len(found) == CATALOGUE_MAX:
                break
            found.setdefault(self.expose(server, kind, raw), raw)
        return found

    def _prefix(self, server: str) -> str:
        alias = self.aliases.of(server)
        return alias + SEPARATOR if alias else ""

    def _may_stay(self, server: str, kind: Kind, raw: str, exposed: str) -> bool:
        """True if a raw name can be shown as it is, and no other name is shown so."""
        return (
            len(exposed) <= self._longest
            and _PLAIN.fullmatch(raw) is not None
            and _DIGESTED.fullmatch(raw) is None
            and raw not in self._raw_of.get((server, kind), ())
            and self._is_free(server, kind, exposed)
        )

    def _is_free(self, server: str, kind: Kind, exposed: str) -> bool:
        """True if neither the profile itself nor another server has the name."""
        if kind == "tools" and exposed in self._own:
            return False
        alias, separator, _ = exposed.partition(SEPARATOR)
        return server != self.aliases.bare or not separator or self.aliases.server_of(alias) is None

    def _digested(self, server: str, raw: str) -> str:
        prefix = self._prefix(server)
        digest = hashlib.sha256(f"{server}\0{raw}".encode()).hexdigest()[:_DIGEST_CHARS]
        text = _UNCLEAN.sub("-", raw)
        room = self._longest - len(prefix) - 1 - _DIGEST_CHARS
        if len(text) > room:
            tail = room // 3  # names of one server often begin alike
            text = f"{text[: room - 1 - tail]}-{text[len(text) - tail :]}"
        return f"{prefix}{text}-{digest}"

    def _problems(self, server: str, kind: Kind) -> Iterable[str]:
        seen: dict[str, str] = {}
        for raw, name in self._renamed[server, kind].items():
            path = f"{kind}.rename of server {server!r}: {raw!r}"
            room = self._longest - len(self._prefix(server))
            if _PLAIN.fullmatch(name) is None or len(name) > room:
                yield f"{path}: got {name!r}, expected 1 to {room} letters, digits, underscores and hyphens"
            elif _DIGESTED.fullmatch(name) is not None:
                yield f"{path}: got {name!r}, expected another end than a hyphen and {_DIGEST_CHARS} of 0-9 and a-f"
            elif not self._is_free(server, kind, self._prefix(server) + name):
                yield f"{path}: got {name!r}, which is a name of the profile or of another server, expected another"
            elif seen.setdefault(name, raw) != raw:
                yield f"{path}: got {name!r}, which {seen[name]!r} has already, expected another"
