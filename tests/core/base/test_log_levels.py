"""Log levels are those of the specification, in its order."""

from __future__ import annotations

from isthmus.core.base.log_levels import LEVELS


def test_the_levels_are_those_of_rfc_5424_least_severe_first() -> None:
    """Source: 2025-11-25 server/utilities/logging, "Log Levels"."""
    assert list(LEVELS) == ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
