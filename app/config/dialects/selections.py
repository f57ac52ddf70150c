"""Converts which tools and prompts of a server clients see."""

from __future__ import annotations

from typing import Final

from .clients import Client
from .entries import Entry, Member
from .findings import Findings
from .keys import Meaning

_ALL: Final = "*"
_MODES: Final = {"allow": "include", "block": "exclude"}
_CHANGES: Final = ("name", "title", "description", "arguments", "tags", "meta", "annotations")
"""Keys of a tool that change what clients see of it."""


class _Selection:
    """A selection of names: those of `include`, if it is not None, less those of `exclude`."""

    def __init__(self) -> None:
        self.include: list[str] | None = None
        self.exclude: list[str] = []
        self.origins: dict[str, str] = {}

    def add_include(self, key: str, names: list[str]) -> None:
        """Admits these names only. An empty list admits none, unlike one of our form."""
        if self.include is not None:
            names = [name for name in names if name in self.include or _ALL in self.include]
        self.include = names
        self.origins.setdefault("include", key)

    def add_exclude(self, key: str, names: list[str]) -> None:
        self.exclude += [name for name in names if name not in self.exclude]
        if names:
            self.origins.setdefault("exclude", key)

    def made(self) -> dict[str, object]:
        made: dict[str, object] = {}
        include, exclude = self.include, self.exclude
        if include == []:
            include, exclude = None, [_ALL]
            self.origins["exclude"] = self.origins["include"]
        if include is not None and _ALL not in include:
            made["include"] = [*include]
        if exclude:
            made["exclude"] = [*exclude]
        return made


def read_selections(entry: Entry, client: Client, findings: Findings) -> tuple[dict[str, object], dict[str, str]]:
    """Returns `tools` and `prompts` of our form, and the keys of the file that they come from."""
    tools, prompts = _Selection(), _Selection()
    for member in entry.all(Meaning.INCLUDE):
        tools.add_include(member.key, _names(member, findings))
    for member in entry.all(Meaning.EXCLUDE):
        tools.add_exclude(member.key, _names(member, findings))
    for member in entry.all(Meaning.FILTER):
        _add_filter(tools, member, findings)
    for member in entry.all(Meaning.TOOLS):
        _add_tools(tools, member, client, findings)
    for member in entry.all(Meaning.PROMPTS):
        _add_tools(prompts, member, client, findings)
    made: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, selection in (("tools", tools), ("prompts", prompts)):
        rules = selection.made()
        if rules:
            made[name] = rules
            origins |= {f"{name}.{part}": key for part, key in selection.origins.items()}
    return made, origins


def _names(member: Member, findings: Findings) -> list[str]:
    """Returns names of tools. `run(ls)` stands for calls of `run` with certain arguments, which are not looked at."""
    value = member.value
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        findings.refuse_type(member.key, "a list of names of tools", value)
        return []
    return [name.partition("(")[0].replace("$", "$$") for name in value]


def _add_filter(tools: _Selection, member: Member, findings: Findings) -> None:
    value = member.value
    if not isinstance(value, dict):
        findings.refuse_type(member.key, "the keys mode and list, or include and exclude", value)
        return
    listed = value.get("list") or []
    if listed:
        mode = value.get("mode") or "block"
        kind = _MODES.get(mode.strip().lower()) if isinstance(mode, str) else None
        names = _names(Member(f"{member.key}.list", listed), findings)
        if kind is None:
            findings.refuse(f"{member.key}.mode", "allow or block", f"got {mode!r}")
        elif kind == "include":
            tools.add_include(f"{member.key}.list", names)
        else:
            tools.add_exclude(f"{member.key}.list", names)
    for name, add in (("include", tools.add_include), ("exclude", tools.add_exclude)):
        if value.get(name) is not None:
            at = f"{member.key}.{name}"
            add(at, _names(Member(at, value[name]), findings))


def _add_tools(tools: _Selection, member: Member, client: Client, findings: Findings) -> None:
    """Adds a list of names, or a mapping that switches names on and off. A list of descriptions says nothing."""
    value = member.value
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        findings.ignored.append(member.key)
    elif isinstance(value, list):
        tools.add_include(member.key, _names(member, findings))
    elif not isinstance(value, dict):
        findings.refuse_type(member.key, "a list of names, or names with what holds for them", value)
    else:
        for name, rule in value.items():
            at, is_on = f"{member.key}.{name}", rule
            if isinstance(rule, dict):
                is_on = rule.get("enabled", True)
                for key in _CHANGES:
                    if rule.get(key) and client.changes_tools:
                        findings.refuse(
                            f"{at}.{key}", "no change of the tool, for it is offered as it is", "got a change"
                        )
                findings.ignored += [f"{at}.{key}" for key in rule if key != "enabled" and not client.changes_tools]
            if is_on is False:
                tools.add_exclude(member.key, [str(name).replace("$", "$$")])
            elif is_on is not True:
                findings.refuse_type(f"{at}.enabled", "true or false", is_on)
