"""A bounded amount that many holders share: bytes of memory, connections or sessions.

Holders belong to owners: a principal, or, where clients are not authenticated, an address. One owner cannot use up the
whole amount.
"""

from __future__ import annotations

import ipaddress
from typing import Final

UNCOUNTED_MAX_BYTES: Final = 64 * 1024
"""Size up to which a message takes nothing of a budget: ordinary calls are served however much large ones use. The
number of connections bounds them."""

_NETWORK_BITS: Final = 64
"""The part of an IPv6 address that names a network. One machine has all the addresses within it."""


def owner_of(principal: str, address: str) -> str:
    """Returns the owner of what a client uses: its principal, or else its `address`, as `address_owner` gives it. ""
    stands for a client whose use only the whole amount bounds, such as one on stdio."""
    return f"principal {principal}" if principal else address


def address_owner(host: str) -> str:
    """Returns the owner that a peer's IP address stands for: the address itself, or the network of an IPv6 address. ""
    for all other text, such as that of a Unix socket."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return ""
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return host
    return str(ipaddress.IPv6Network((address, _NETWORK_BITS), strict=False))


class Budget:
    """An amount that is taken and given back.

    Args:
        limit: the most that all owners together may take.
        owner_limit: the most that one owner may take. It does not apply to the owner "".

    Attributes:
        used: the amount that is taken.
    """

    __slots__ = ("_by_owner", "_limit", "_owner_limit", "used")

    def __init__(self, limit: int, owner_limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._owner_limit = owner_limit
        self._by_owner: dict[str, int] = {}

    def is_full_for(self, owner: str, amount: int = 1) -> bool:
        """True if `amount` cannot be taken because one owner has too much, not because all have."""
        return bool(owner) and self._by_owner.get(owner, 0) + amount > self._owner_limit

    def has_room(self, owner: str, amount: int = 1) -> bool:
        """True if `amount` can be taken."""
        return self.used + amount <= self._limit and not self.is_full_for(owner, amount)

    def take(self, owner: str, amount: int = 1) -> bool:
        """Takes an amount for an owner. Returns False, and takes nothing, if there is no room for it."""
        if not amount:
            return True  # an owner of nothing is not remembered
        of_owner = self._by_owner.get(owner, 0) + amount
        if self.used + amount > self._limit or (owner and of_owner > self._owner_limit):
            return False
        self.used += amount
        self._by_owner[owner] = of_owner
        return True

    def give_back(self, owner: str, amount: int = 1) -> None:
        """Gives back what `take` took."""
        if not amount:
            return
        left = self._by_owner[owner] - amount
        assert left >= 0
        self.used -= amount
        if left:
            self._by_owner[owner] = left
        else:
            del self._by_owner[owner]


class OwnerUse:
    """The use that one owner makes of all its sessions together.

    Attributes:
        sessions: its sessions.
        calls: its requests in flight.
        streams: its GET streams and subscriptions.
    """

    __slots__ = ("calls", "is_bounded", "sessions", "streams")

    def __init__(self, owner: str) -> None:
        self.is_bounded = bool(owner)
        self.sessions = self.calls = self.streams = 0

    def count_sessions(self, change: int) -> None:
        """Counts sessions that begin or end."""
        self.sessions += change

    def count_calls(self, change: int) -> None:
        """Counts requests that come or are answered."""
        self.calls += change

    def count_streams(self, change: int) -> None:
        """Counts streams that open or end."""
        self.streams += change


class Share:
    """The part of a budget that one holder has: a session, or a connection that is receiving a message.

    Args:
        limit: the most that this holder may take; None: as much as its owner.
    """

    __slots__ = ("_budget", "_limit", "_owner", "amount")

    def __init__(self, budget: Budget, owner: str, limit: int | None = None) -> None:
        self.amount = 0
        self._budget = budget
        self._owner = owner
        self._limit = limit

    def has_room(self, amount: int) -> bool:
        """True if `amount` more can be taken."""
        is_full = self._limit is not None and self.amount + amount > self._limit
        return not is_full and self._budget.has_room(self._owner, amount)

    def take(self, amount: int) -> bool:
        """Takes more. Returns False, and takes nothing, if there is no room for it."""
        if self._limit is not None and self.amount + amount > self._limit:
            return False
        if not self._budget.take(self._owner, amount):
            return False
        self.amount += amount
        return True

    def hold(self, size_bytes: int) -> bool:
        """Takes what a message has of which `size_bytes` have arrived: nothing up to `UNCOUNTED_MAX_BYTES`. Returns
        False, and changes nothing, if there is no room for it."""
        more = (size_bytes if size_bytes > UNCOUNTED_MAX_BYTES else 0) - self.amount
        if more > 0:
            return self.take(more)
        self.give_back(-more)
        return True

    def give_back(self, amount: int) -> None:
        """Gives back a part."""
        self._budget.give_back(self._owner, amount)
        self.amount -= amount

    def give_all_back(self) -> None:
        """Gives back all of it."""
        if self.amount:
            self.give_back(self.amount)
