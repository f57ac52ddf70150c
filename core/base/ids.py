"""The small integers and random names by which the engine and its driver speak of things."""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType

ChannelId = NewType("ChannelId", int)
"""One reply path: a pipe, a socket, one POST, one GET stream. Never used twice."""

Ticket = NewType("Ticket", int)
"""Pairs a storage order with its answer. Never used twice."""

Entropy = Callable[[int], bytes]
"""`entropy(n)` gives n random bytes: `os.urandom` in production, `random.Random(seed).randbytes` in tests."""

NAME_BYTES = 16
"""128 bits: what sessions, handles and workspaces are named with, so that no name can be guessed."""


def mint(entropy: Entropy) -> str:
    """A fresh unguessable name: 32 lower-case hexadecimal digits."""
    return entropy(NAME_BYTES).hex()


def is_minted(name: str) -> bool:
    """Whether `name` has exactly the form `mint` gives. What has, can safely be a path component."""
    return len(name) == 2 * NAME_BYTES and all(c in "0123456789abcdef" for c in name)
