"""The abilities of each revision, written the other way round: for each ability, the revisions that have it."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from isthmus.core.base.revisions import (
    DEFAULT_HTTP_REVISION,
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY,
    MODERN,
    Era,
    Features,
    features_of,
    is_known_legacy,
    is_known_modern,
    is_older,
)

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
ABLE = {  # 1: this revision is able to do so
    "sessions":        (1, 1, 1, 1, 0),
    "batching":        (1, 1, 0, 0, 0),
    "version_header":  (0, 0, 1, 1, 1),
    "resource_links":  (0, 0, 1, 1, 1),
    "elicitation":     (0, 0, 1, 1, 1),
    "url_elicitation": (0, 0, 0, 1, 1),
    "rich_forms":      (0, 0, 0, 1, 1),
    "audio":           (0, 1, 1, 1, 1),
    "structured":      (0, 0, 1, 1, 1),
    "any_structure":   (0, 0, 0, 0, 1),
    "completions":     (0, 1, 1, 1, 1),
    "sampling_tools":  (0, 0, 0, 1, 1),
    "tasks":           (0, 0, 0, 1, 0),
    "event_ids":       (0, 1, 1, 1, 0),
    "priming":         (0, 0, 0, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_abilities_of_a_revision(revision: str) -> None:
    able = {name: bool(row[REVISIONS.index(revision)]) for name, row in ABLE.items()}
    assert msgspec.structs.asdict(features_of(revision)) == {"revision": revision, **able}


def test_the_revisions_are_in_order_and_of_one_era_each() -> None:
    """The last revision of each era is the one that is offered first."""
    assert (*LEGACY, *MODERN) == REVISIONS
    assert [era.value for era in Era] == ["handshake", "stateless"], "as reports call them"
    assert list(MODERN) == ["2026-07-28"]
    assert ([*LEGACY][-1], [*MODERN][-1]) == (LATEST_LEGACY, LATEST_MODERN)
    for revision in (*REVISIONS, "2025-11-26", "", "DRAFT"):
        assert is_known_legacy(revision) is (revision in REVISIONS[:4])
        assert is_known_modern(revision) is (revision == "2026-07-28")


def test_a_revision_without_abilities_has_sessions_only() -> None:
    """Sessions are the default, as only the newest revisions lack them."""
    assert Features(revision="x") == msgspec.structs.replace(features_of("2024-11-05"), revision="x", batching=False)


@pytest.mark.parametrize(
    ("revision", "like"),
    [
        ("2024-10-07", "2024-11-05"),
        ("", "2024-11-05"),
        ("2024-11-06", "2024-11-05"),
        ("2025-03-25", "2024-11-05"),
        ("2025-03-27", "2025-03-26"),
        ("2025-06-19", "2025-06-18"),
        ("2025-11-26", "2025-11-25"),
        ("2026-07-29", "2025-11-25"),
        ("DRAFT-2026", "2025-11-25"),
    ],
)
def test_an_unknown_date_is_like_the_newest_revision_before_it(revision: str, like: str) -> None:
    """The newest earlier handshake revision stands for it, under the unknown date."""
    assert features_of(revision) == msgspec.structs.replace(features_of(like), revision=revision)


def test_an_http_client_without_a_revision_has_the_second() -> None:
    assert features_of(None) == features_of("2025-03-26")
    assert DEFAULT_HTTP_REVISION == "2025-03-26"


def test_revisions_are_ordered_by_date() -> None:
    for (at, one), (other_at, other) in itertools.product(enumerate(REVISIONS), repeat=2):
        assert is_older(one, other) is (at < other_at)
