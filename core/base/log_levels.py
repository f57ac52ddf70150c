"""How severe a log message is."""

from __future__ import annotations

from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""2025-11-25 and 2026-07-28 server/utilities/logging, "Log Levels", least severe first."""
