"""Fixtures of several files."""

from __future__ import annotations

from conforming import command, conform, replay
from in_process import inside

__all__ = ["command", "conform", "inside", "replay"]
