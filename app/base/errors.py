"""Errors that end a command before it has done its work."""

from __future__ import annotations


class StartError(Exception):
    """The proxy cannot start; the message says why and what would help."""


class Failed(Exception):
    """A running isthmus cannot be reached or refuses what is asked of it; the message says why and what would help."""
