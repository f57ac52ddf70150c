"""Fixtures of several files."""

from __future__ import annotations

from conforming import conform

__all__ = ["conform"]
