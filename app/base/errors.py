"""What ends a command without its having done what it is for."""

from __future__ import annotations


class StartError(Exception):
    """The proxy cannot start; the message says why and what would help."""


class Failed(Exception):
    """An isthmus cannot be asked, or does not do what it is asked for; the message says why and what would help."""
