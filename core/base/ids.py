"""Identifiers shared by the engine and its driver: small integers for channels and storage orders, random names for the
rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType

ChannelId = NewType("ChannelId", int)
"""The number of one reply path: a pipe, a socket, one POST, one GET stream. Never used twice."""

Ticket = NewType("Ticket", int)
"""Pairs a storage order with its answer. Never used twice."""

Entropy = Callable[[int], bytes]
"""A source of randomness: `entropy(n)` returns n random bytes. `os.urandom` in production,
`random.Random(seed).randbytes` in tests."""

NAME_BYTES = 16
"""Length of the random names of sessions, handles and workspaces: 128 bits, so that no name can be guessed."""


def mint(entropy: Entropy) -> str:
    """Returns a fresh unguessable name: 32 lower-case hexadecimal digits."""
    return entropy(NAME_BYTES).hex()


def is_minted(name: str) -> bool:
    """True if `name` has exactly the form that `mint` gives. Such a name is safe as a path component."""
    return len(name) == 2 * NAME_BYTES and all(c in "0123456789abcdef" for c in name)
