"""Access rules: the rules of a server for its tools, prompts and resources.

What a caller may ask a token for (a scope) is shown, and its use is refused with all scopes that it needs. What a
caller cannot get by asking (a group) is hidden, as if it did not exist.

Source: 2026-07-28 basic/authorization, "Scope Challenge Handling"; server/tools, "Listing Tools".
"""

from __future__ import annotations

import enum
from fnmatch import fnmatchcase
from typing import Final

from ..base.grants import Grants
from ..base.plan import AccessRule, AccessRules

KINDS: Final = ("tools", "prompts", "resources")
"""The kinds of what a server lists: the fields of `AccessRules` with rules for it."""


class Verdict(enum.Enum):
    ALLOWED = "allowed"
    NEEDS_SCOPES = "needs scopes"
    HIDDEN = "hidden"


def verdict(rules: AccessRules, kind: str, name: str, grants: Grants) -> tuple[Verdict, frozenset[str]]:
    """Returns whether a caller may use something of a server, and all scopes that this needs.

    Args:
        kind: `tools`, `prompts` or `resources`.
        name: of the tool or prompt, or the URI of the resource. The first pattern that matches it holds.
    """
    found = next((rule for pattern, rule in getattr(rules, kind) if fnmatchcase(name, pattern)), AccessRule())
    scopes = frozenset(rules.server.scopes) | frozenset(found.scopes)
    if not may_see(found, grants):
        return Verdict.HIDDEN, scopes
    return Verdict.ALLOWED if scopes <= grants.scopes else Verdict.NEEDS_SCOPES, scopes


def may_see(rule: AccessRule, grants: Grants) -> bool:
    """True if the caller is in one of the groups that the rule names, if it names any."""
    return not rule.groups or not grants.groups.isdisjoint(rule.groups)


def all_scopes(rules: AccessRules) -> frozenset[str]:
    """Returns all scopes that the operations of a server may need."""
    found = set(rules.server.scopes)
    for kind in KINDS:
        found.update(scope for _, rule in getattr(rules, kind) for scope in rule.scopes)
    return frozenset(found)


def hiding_kinds(rules: AccessRules) -> list[str]:
    """Returns the kinds of which some callers see others than the rest: those with a rule that names groups."""
    return [kind for kind in KINDS if any(rule.groups for _, rule in getattr(rules, kind))]


def changed_kinds(rules: AccessRules, before: Grants, after: Grants) -> list[str]:
    """Returns the kinds of which a caller sees others than before, now that its grants are these: those with a rule
    that hid something from it then, or does now, but not both."""
    if before.groups == after.groups:
        return []
    return [
        kind for kind in KINDS if any(may_see(rule, before) != may_see(rule, after) for _, rule in getattr(rules, kind))
    ]
