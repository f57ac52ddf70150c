"""Fixtures of several files."""

from __future__ import annotations

from conforming import command, conform, replay

__all__ = ["command", "conform", "replay"]
