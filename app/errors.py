"""What keeps the proxy from starting."""

from __future__ import annotations


class StartError(Exception):
    """The proxy cannot start; the message says why and what would help."""
