"""The severities of log messages."""

from __future__ import annotations

from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""All severities, least severe first (2025-11-25 and 2026-07-28 server/utilities/logging, "Log Levels")."""
