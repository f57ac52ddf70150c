"""Strategies of profiles: servers with aliases and renamings, and the names and URIs that servers may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.profiles.aliases import Aliases
from isthmus.core.profiles.names import Kind, Names
from isthmus.core.profiles.uris import Uris

IDS: Final = ("a", "a_b", "A.b", "github", "github-production-eu", "github-production-us", "7zip", "file.system", "b")
ALIASES: Final = ("", "a", "a-b", "b", "gh", "s7zip", "rel", "ui", "file", "sixteen-letters-")
OWN: Final = ("search_tools", "call_tool", "a__b_get_upload_url", "b__c")
NAMES: Final = (
    *("", "b_c", "c", "x__y", "__y", "_", "__", "a__b", "b__c", "gh____c", "search_tools", "call_tool"),
    *("read", "Read", "READ", "read file", "read.file", "read/file", "read-file", "lesen\u00e4", "\0", "\U0001f600"),
    *("n" * 64, "n" * 65, "n" * 128, "n" * 300, "n" * 60 + "one", "n" * 60 + "two", "get-facade", "a-123456"),
    *("x-abcdef-y", "-", "-e3b0c4"),
)
URIS: Final = (
    *("", "file:///x", "memo:x", "urn:uuid:6e8bc430", "readme.md", "/etc/hosts", "//host/x", "GIT+https://h/x", ":"),
    *("a+file:///x", "b+memo:x", "ui://x", "ui://a+x", "ui:x", "UI://x", "rel:x", "rel:%41", "REL:x", "a+rel:x", "a+x"),
    *("c:\\x y", "http://[::1]/\u00e4?q#f", "\0", "%41", "docs/a b/%20", "+", "a+", "a+:", "{x}", "{scheme}://x"),
    *("{+url}", "file:///{path}", "notes/{id}", "rel:{x}", "ui://{x}", "b+{x}"),
)

plain_texts: Final = st.text("abAB019_-", max_size=40)
raw_names: Final = st.sampled_from(NAMES) | plain_texts | st.text(max_size=60)
raw_uris: Final = st.sampled_from(URIS) | st.text("ab+:/%{}41relui", max_size=12) | st.text(max_size=40)


class World(NamedTuple):
    """A profile and what it was made of."""

    chosen: Mapping[str, str | None]
    renames: Mapping[tuple[str, Kind], Mapping[str, str]]
    aliases: Aliases
    names: Names
    uris: Uris

    def without(self, server: str) -> World:
        """Returns the profile without one server."""
        chosen = {one: alias for one, alias in self.chosen.items() if one != server}
        return world(chosen, self.renames)


def world(
    chosen: Mapping[str, str | None],
    renames: Mapping[tuple[str, Kind], Mapping[str, str]] | None = None,
    *,
    longest: int = 50,
) -> World:
    """Returns the profile of servers with these aliases, None for the default one."""
    aliases = Aliases(chosen)
    names = Names(aliases, renames or {}, own=OWN, longest=longest)
    return World(chosen, renames or {}, aliases, names, Uris(aliases))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Profiles of one to six servers; servers and renamings that make no profile are left out."""
    chosen: dict[str, str | None] = {}
    for server in draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=6, unique=True)):
        wanted = draw(st.none() | st.sampled_from(ALIASES))
        try:
            Aliases({**chosen, server: wanted})
        except LocalProtocolError:
            continue
        chosen[server] = wanted
    renames: dict[tuple[str, Kind], Mapping[str, str]] = {}
    for server in chosen:
        renamed = draw(st.dictionaries(raw_names, st.sampled_from(NAMES) | plain_texts, max_size=3))
        kind: Kind = draw(st.sampled_from(("tools", "prompts")))
        try:
            world(chosen, {**renames, (server, kind): renamed})
        except LocalProtocolError:
            continue
        renames[server, kind] = renamed
    return world(chosen, renames)
