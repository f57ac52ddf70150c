"""Errors that end a command before it has done its work."""

from __future__ import annotations

from .output import plain


class ConfigError(Exception):
    """A configuration that cannot be used.

    Attributes:
        message: a line for each fault: file, dotted key, what was seen, what was expected.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class StartError(Exception):
    """The proxy cannot start; the message says why and what would help."""


class Failed(Exception):
    """A running isthmus cannot be reached or refuses what is asked of it; the message says why and what would help.

    The message may have text of a peer, so it is made `plain`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))
