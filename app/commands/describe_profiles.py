"""Asks profiles for all that they list, as a client does, and describes them for people."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import anyio
import msgspec

from ...core.access.identity import Identity
from ...core.access.policy import all_scopes
from ...core.base.plan import AccessRules
from ...core.profiles.aliases import Aliases, default_alias
from ...core.profiles.names import SEPARATOR, Names
from ...core.profiles.rewriting import SERVER
from ..base.output import plain, short
from ..config.access import to_rules
from ..config.profile_settings import Profile
from ..config.profiles import DEFAULT, left_out, servers_of
from ..config.settings import Settings
from ..runtime.hub import Hub
from ..runtime.own_sessions import OwnSession, Refusal
from ..runtime.probe import PAGES_MAX, ServerReport

WIDTH: Final = 80
TOKEN_BYTES: Final = 4
"""Bytes of a token. English text and JSON have three to five."""
MANY_TOKENS: Final = 16_000
"""Tokens of definitions from which on a line says how to have fewer."""
LISTS: Final = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
_SEEN: Final = ("name", "description", "inputSchema")
"""The members of a tool that clients show to a model."""
_DIGESTED: Final = re.compile(r".*-[0-9a-f]{6}", re.DOTALL)
Entries = Mapping[str, Sequence[dict[str, object]]]


async def describe(hub: Hub, settings: Settings, profile: Profile, reports: Sequence[ServerReport]) -> list[str]:
    """Describes a profile in a few lines: endpoint, servers, names, renamings, and the size of its tools.

    Args:
        settings: as they were read.
        reports: of all servers, with their tools.
    """
    try:
        listed = await _listed(hub, settings, profile.id)
    except Refusal as refusal:
        return [*_head(settings, profile), *_wrapped("    FAILED  ", str(refusal))]
    lines = _head(settings, profile)
    failed = [report.id for report in reports if report.problem and report.id in _aliases(profile)]
    lines += [f"    without {id}, which does not answer: see above" for id in failed]
    for key in ("tools", "prompts"):
        if listed[key] or key == "tools":
            lines += _wrapped(f"    {key:7} ", _counted(profile, listed[key], SEPARATOR))
    templates = listed["resourceTemplates"]
    uris = [*listed["resources"], *templates]
    if uris:
        of_them = f" with {len(templates)} of templates" if templates else ""
        lines += _wrapped("    uris    ", _counted(profile, uris, "+", of_them))
    lines += [line for text in _renamed(profile, listed, reports) for line in _wrapped("    renamed ", text)]
    return [*lines, *_tokens(listed["tools"])]


def _head(settings: Settings, profile: Profile) -> list[str]:
    suffix = "" if profile.id == DEFAULT else f"/{profile.id}"
    lines = [f"  profile {profile.id}", f"    at      /mcp{suffix}, /sse{suffix} and /ws{suffix}"]
    lines += _wrapped("    servers ", ", ".join(shown.id for shown in servers_of(profile)))
    if profile.id == DEFAULT:
        lines += [f"    {line}" for line in left_out(settings)]
    for alias, servers in _alike(settings, profile).items():
        text = (
            f"{' and '.join(servers)} have {alias} both, so a hash ends theirs: for names that read better, write a "
            f"profile {DEFAULT} with an alias for each, such as {{id: {servers[-1]}, alias: {alias[:14]}-2}}"
        )
        lines += _wrapped("    alias   ", text)
    return lines


def _alike(settings: Settings, profile: Profile) -> dict[str, list[str]]:
    """Returns servers that would have one alias, by it, in the profile that nobody wrote."""
    found: dict[str, list[str]] = {}
    if profile.id == DEFAULT and profile not in settings.profiles:
        for shown in servers_of(profile):
            found.setdefault(default_alias(shown.id), []).append(shown.id)
    return {alias: servers for alias, servers in found.items() if len(servers) > 1}


async def _listed(hub: Hub, settings: Settings, id: str) -> Entries:
    """Returns all entries of a profile's lists, as a caller sees them who may use everything.

    Raises:
        Refusal: a list is answered with an error.
    """
    rules = [one for server in settings.servers if (one := to_rules(server.access)) is not None]
    groups = frozenset(group for one in rules for group in _groups(one))
    everyone = Identity("", scopes=frozenset().union(*map(all_scopes, rules)), groups=groups)
    session = OwnSession(hub, id, "0", identity=everyone)
    failure: Refusal
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        try:
            return {key: await _entries(session, key, method) for key, method in LISTS.items()}
        except Refusal as refusal:
            failure = refusal
        finally:
            session.leave()
    raise failure


def _groups(rules: AccessRules) -> Iterator[str]:
    yield from rules.server.groups
    for _, rule in (*rules.tools, *rules.prompts, *rules.resources):
        yield from rule.groups


async def _entries(session: OwnSession, key: str, method: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    params: dict[str, object] = {}
    for _ in range(PAGES_MAX):
        page = msgspec.json.decode(await session.request(method, msgspec.json.encode(params)))
        found += page[key]
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    return found


def _renamed(profile: Profile, listed: Entries, reports: Sequence[ServerReport]) -> Iterator[str]:
    """Yields a line for each name that is not the server's own after its alias."""
    aliases = _aliases(profile)
    names = Names(aliases, {})
    tools = {
        (report.id, names.expose(report.id, "tools", raw)): raw
        for report in reports
        if report.id in aliases
        for raw in report.tools or ()
    }
    for kind in ("tools", "prompts"):
        for entry in listed[kind]:
            name, server = str(entry.get("name")), _server_of(entry)
            if _DIGESTED.fullmatch(name):
                raw = tools.get((server, name)) if kind == "tools" else None
                yield f"{name}, for {'a name' if raw is None else short(raw)} of {server} that does not fit"


def _tokens(tools: Sequence[dict[str, object]]) -> list[str]:
    size = sum(len(msgspec.json.encode({key: tool[key] for key in _SEEN if key in tool})) for tool in tools)
    tokens = size // TOKEN_BYTES
    lines = [f"    tokens  about {tokens:,} for the tools, as {TOKEN_BYTES} bytes of their {size:,} are one"]
    if tokens > MANY_TOKENS:
        text = "tools.include and tools.exclude of a server leave out tools that nobody needs, and tools.descriptions: "
        lines += _wrapped("            ", f"{text}first-sentence shortens the others")
    return lines


def _counted(profile: Profile, entries: Sequence[dict[str, object]], mark: str, note: str = "") -> str:
    """Returns how many entries there are, and how many of them begin with which alias."""
    if not entries:
        return "none"
    aliases, counts = _aliases(profile), Counter(map(_server_of, entries))
    parts = [
        f"{counts[server]} {f'{alias}{mark}…' if alias else f'of {server} as they are'}"
        for server in aliases
        for alias in (aliases.of(server),)
        if counts[server]
    ]
    return f"{len(entries)}{note}: {', '.join(parts)}"


def _aliases(profile: Profile) -> Aliases:
    return Aliases({shown.id: shown.alias for shown in servers_of(profile)})


def _server_of(entry: dict[str, object]) -> str:
    meta = entry.get("_meta")
    return str(meta.get(SERVER)) if isinstance(meta, dict) else ""


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        plain(text), WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )
