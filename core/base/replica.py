"""Replicas: processes that share a storage and serve the same clients, and the names of what lives in one of them.

A name of something that lives in the memory of one replica begins with that replica's tag: `a.` and the rest. So a
balancer, or another replica, finds the owner without looking it up. The tag is a hint and no credential: what may be
done is decided by the owner's own tables.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from .ids import is_minted

LEASE_PREFIX: Final = "replica/"
"""The beginning of the keys of the replicas' leases; the tag follows. A replica whose lease has no record any more, or
that of another run, is gone for good."""

_TAG: Final = re.compile(r"[a-z0-9]{1,8}")
_TAGGED: Final = re.compile(r"([a-z0-9]{1,8})\.")


class ReplicaName(msgspec.Struct, frozen=True):
    """The name of one replica.

    Attributes:
        tag: the beginning of the names of what lives in it: 1 to 8 of [a-z0-9].
        run: the random name of this start of it (`ids.mint`).
    """

    tag: str
    run: str

    @property
    def owner(self) -> str:
        """The tag and the run: the name of one process, which is never used again."""
        return f"{self.tag}.{self.run}"


def is_tag(text: str) -> bool:
    return _TAG.fullmatch(text) is not None


def tag_of(name: str) -> str:
    """Returns the tag that a name begins with; "" if it has none."""
    match = _TAGGED.match(name)
    return "" if match is None else match[1]


def is_minted_or_tagged(name: str) -> bool:
    """True if `name` has the form that `ids.mint` gives, with or without a tag before it."""
    tag = tag_of(name)
    return is_minted(name[len(tag) + 1 :] if tag else name)
