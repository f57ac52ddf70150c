"""Tests of access rules: what is allowed, what can be asked for, and what is hidden."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.access.metadata import metadata_url, resource_path, resource_paths
from isthmus.core.access.policy import Verdict, all_scopes, verdict
from isthmus.core.base.grants import NO_GRANTS, Grants
from isthmus.core.base.plan import AccessRule, AccessRules

RULES = AccessRules(
    AccessRule(scopes=("read",)),
    tools=(
        ("delete_all", AccessRule(groups=("admins",))),
        ("delete_*", AccessRule(scopes=("write",))),
        ("audit_*", AccessRule(scopes=("audit",), groups=("admins", "auditors"))),
    ),
    resources=(("secret://*", AccessRule(groups=("admins",))),),
)
READ = Grants(frozenset({"read"}))
AUDITOR = Grants(frozenset({"read"}), frozenset({"auditors"}))
NAMES = st.sampled_from(["delete_all", "delete_one", "audit_x", "list", "secret://a"])
GRANTS = st.builds(
    Grants,
    st.frozensets(st.sampled_from(["read", "write", "audit"])),
    st.frozensets(st.sampled_from(["admins", "auditors", "others"])),
)


@pytest.mark.parametrize(
    ("kind", "name", "grants", "expected", "scopes"),
    [
        ("tools", "list", READ, Verdict.ALLOWED, {"read"}),
        ("tools", "list", NO_GRANTS, Verdict.NEEDS_SCOPES, {"read"}),
        ("tools", "delete_one", READ, Verdict.NEEDS_SCOPES, {"read", "write"}),
        ("tools", "delete_one", Grants(frozenset({"write"})), Verdict.NEEDS_SCOPES, {"read", "write"}),
        ("tools", "delete_one", Grants(frozenset({"read", "write"})), Verdict.ALLOWED, {"read", "write"}),
        ("tools", "delete_all", Grants(frozenset({"read", "write"})), Verdict.HIDDEN, {"read"}),
        ("tools", "delete_all", Grants(frozenset({"read"}), frozenset({"admins"})), Verdict.ALLOWED, {"read"}),
        ("tools", "audit_x", AUDITOR, Verdict.NEEDS_SCOPES, {"read", "audit"}),
        ("prompts", "delete_all", READ, Verdict.ALLOWED, {"read"}),
        ("resources", "secret://a", READ, Verdict.HIDDEN, {"read"}),
        ("resources", "open://a", READ, Verdict.ALLOWED, {"read"}),
    ],
)
def test_who_may_use_what(kind: str, name: str, grants: Grants, expected: Verdict, scopes: set[str]) -> None:
    assert verdict(RULES, kind, name, grants) == (expected, frozenset(scopes))


@given(st.sampled_from(["tools", "prompts", "resources"]), NAMES, GRANTS, GRANTS)
def test_more_grants_never_take_anything_away(kind: str, name: str, one: Grants, other: Grants) -> None:
    both = Grants(one.scopes | other.scopes, one.groups | other.groups)
    order = [Verdict.HIDDEN, Verdict.NEEDS_SCOPES, Verdict.ALLOWED]
    assert order.index(verdict(RULES, kind, name, both)[0]) >= order.index(verdict(RULES, kind, name, one)[0])


@given(st.sampled_from(["tools", "prompts", "resources"]), NAMES, GRANTS)
def test_the_scopes_of_a_challenge_are_enough(kind: str, name: str, grants: Grants) -> None:
    """2026-07-28 basic/authorization, "Scope Challenge Handling": all scopes that the operation needs, at once."""
    found, scopes = verdict(RULES, kind, name, grants)
    assert scopes <= all_scopes(RULES)
    if found is Verdict.NEEDS_SCOPES:
        assert verdict(RULES, kind, name, Grants(grants.scopes | scopes, grants.groups))[0] is Verdict.ALLOWED


def test_the_resources_of_a_server() -> None:
    assert resource_paths("a", "") == ["/mcp/a", "/sse/a", "/ws/a"]
    assert resource_paths("a", "a") == ["/mcp/a", "/sse/a", "/ws/a", "/mcp", "/sse", "/ws"]
    for path in resource_paths("a", "a"):
        assert resource_path(f"{path}/", ["a"], "a") == path
    assert resource_path("", ["a", "b"], "") == ""
    for path in ("/mcp", "/mcp/c", "/upload/a", "/mcp/a/tools"):
        assert resource_path(path, ["a", "b"], "") is None
    for path in ("//mcp/a", "mcp/a", "/mcp//a", "/mcp/a//", "//"):
        assert resource_path(path, ["a", "b"], "") is None, "the URL would be another one (RFC 9728, 3.3)"


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("https://h", "https://h/.well-known/oauth-protected-resource/mcp/a"),
        ("https://h:1/pre/fix", "https://h:1/.well-known/oauth-protected-resource/pre/fix/mcp/a"),
    ],
)
def test_the_address_of_metadata_has_the_well_known_path_first(base: str, expected: str) -> None:
    """RFC 9728, 3.1."""
    assert metadata_url(base, "/mcp/a") == expected
