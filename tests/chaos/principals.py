"""Principals of a storm, whose grants change from one request to the next, and rules for the tools that they call.

Some principals show a token with fixed scopes. For others a proxy in front says the groups, anew with each request. The
verdict over a call follows from what was shown with it, and shares nothing with the product.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

ALLOWED: Final = "allowed"
NEEDS_SCOPES: Final = "needs scopes"
HIDDEN: Final = "hidden"
FOREIGN: Final = "in the session of another"
"""The verdicts over a call. Only the first may run."""

GROUPS: Final = ("ops", "staff")
SCOPES: Final = ("run", "write")
USER_FIELD: Final = "x-user"
GROUPS_FIELD: Final = "x-groups"
USERS: Final = ("ann", "ben")
"""Callers that the proxy in front names."""


@dataclass(frozen=True)
class Shown:
    """The header fields that a principal sends with a request, and what they grant."""

    fields: dict[str, str]
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rule:
    """The groups of which a caller must be in one, and the scopes that it needs."""

    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()

    def verdict(self, shown: Shown) -> str:
        if self.groups and not self.groups & shown.groups:
            return HIDDEN
        return ALLOWED if self.scopes <= shown.scopes else NEEDS_SCOPES

    @property
    def setting(self) -> dict[str, list[str]]:
        return {"groups": sorted(self.groups), "scope": sorted(self.scopes)}


OPEN: Final = Rule()
Rules = dict[str, Rule]
"""Rules, by the names of tools."""


def drawn_rules(chance: random.Random, tools: Iterable[str]) -> Rules:
    """Returns rules for some of the tools of a server. Most stay open, so that a storm has calls enough."""
    return {tool: Rule(_some(chance, GROUPS), _some(chance, SCOPES)) for tool in tools if chance.random() < 0.4}


def _some(chance: random.Random, names: tuple[str, ...], share: float = 0.35) -> frozenset[str]:
    return frozenset(name for name in names if chance.random() < share)


class Principal:
    """Anybody, where no callers are told apart."""

    name = ""

    def show(self) -> Shown:
        """Returns what it sends with its next request."""
        return Shown({})


ANYBODY: Final = Principal()


class TokenHolder(Principal):
    """A caller with a static token, whose grants stay the same."""

    def __init__(self, name: str, groups: Iterable[str], scopes: Iterable[str]) -> None:
        self.name = name
        token = f"ist_{hashlib.sha256(name.encode()).hexdigest()}"
        self._shown = Shown({"authorization": f"Bearer {token}"}, frozenset(groups), frozenset(scopes))
        self.setting: dict[str, Any] = {
            "name": name,
            "sha256": hashlib.sha256(token.encode()).hexdigest(),
            "groups": [*groups],
            "scopes": [*scopes],
        }

    def show(self) -> Shown:
        return self._shown


class User(Principal):
    """A caller whom the proxy in front names, with other groups each time."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self._chance = chance

    def show(self) -> Shown:
        groups = _some(self._chance, GROUPS, 0.6)
        return Shown({USER_FIELD: self.name, GROUPS_FIELD: ",".join(sorted(groups))}, groups)


ROOT: Final = TokenHolder("root", (*GROUPS, "admin"), SCOPES)
"""May do everything."""


class Principals:
    """All principals of a world."""

    def __init__(self, chance: random.Random) -> None:
        tokens = [
            ROOT,
            TokenHolder("reader", (), ()),
            TokenHolder("writer", _some(chance, GROUPS, 0.6), _some(chance, SCOPES, 0.6)),
        ]
        self.all: list[Principal] = [*tokens, *(User(name, random.Random(chance.random())) for name in USERS)]
        self.setting = {
            "tokens": [each.setting for each in tokens],
            "proxy": {"peers": ["127.0.0.1"], "user": USER_FIELD, "groups": GROUPS_FIELD},
        }
