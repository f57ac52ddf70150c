"""Shares: the rules by which replicas keep a limit together.

The record of a limit holds the share of each replica, and the sum of all shares is at most the limit. A replica uses no
more than its own share, so it asks nobody while that is enough. It changes the record by compare-and-swap, so of two
replicas that want the last place one gets it.

A share ends at a time which is no earlier than the end of everything that it was taken for. So the share of a replica
that was killed covers the files and tasks that it left for as long as they exist, and is free after that. Nobody has to
find out that the replica is gone, or what it left. The owner uses a share until its end; others count it for `SKEW_S`
longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

SKEW_S: Final = 120.0
"""Time for which the share of another replica counts beyond its end. The clocks of replicas differ by less."""


class Limit(msgspec.Struct, frozen=True):
    """A limit that replicas keep together.

    Attributes:
        amounts: the most that all of them may use, for each thing that is counted, such as bytes and files.
        blocks: a share is a multiple of the limit divided by this, while much is left, so that it suffices for more
            than one use. 0: a share is exactly what is used.
    """

    amounts: tuple[int, ...]
    blocks: int = 0


class Share(msgspec.Struct, frozen=True):
    """The share of one replica: `amounts` as in `Limit`, and its end."""

    amounts: tuple[int, ...]
    until_unix: float

    @property
    def is_empty(self) -> bool:
        return not any(self.amounts)


Shares = Mapping[str, Share]
"""The shares in one record, by the names of their owners (`ReplicaName.owner`)."""


def read(value: bytes | None, limit: Limit) -> Shares:
    """Returns the shares in a record; none if there is no record.

    Raises:
        ValueError: the record is of another release.
    """
    if value is None:
        return {}
    try:
        shares = msgspec.json.decode(value, type=dict[str, Share])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"got a record of shares that cannot be read: {error}") from None
    if any(len(share.amounts) != len(limit.amounts) or min(share.amounts) < 0 for share in shares.values()):
        raise ValueError("got a record of shares of another form")
    return shares


def ends_at_unix(shares: Shares, now_unix: float) -> float:
    """Returns when the record of these shares may go."""
    return max((share.until_unix for share in shares.values()), default=now_unix) + SKEW_S


def taken(
    shares: Shares, owner: str, limit: Limit, needed: tuple[int, ...], *, now_unix: float, until_unix: float
) -> Shares:
    """Returns the shares once the owner's own is as near to `needed` as the limit allows, and ends no earlier than
    `until_unix`. Shares that are over go, and so does an empty one."""
    kept = {name: share for name, share in shares.items() if name != owner and now_unix <= share.until_unix + SKEW_S}
    own = shares.get(owner)
    amounts = tuple(
        _amount(most, most - sum(share.amounts[place] for share in kept.values()), wanted, limit.blocks)
        for place, (most, wanted) in enumerate(zip(limit.amounts, needed, strict=True))
    )
    until_unix = until_unix if own is None else max(until_unix, own.until_unix)
    if any(needed) and any(amounts):
        kept[owner] = Share(amounts, until_unix)
    return kept


def _amount(most: int, left: int, needed: int, blocks: int) -> int:
    if blocks and needed > 0:
        block = max(1, most // blocks)
        rounded = -(-needed // block) * block
        if left - rounded >= most // 4:
            return rounded
    return max(0, min(needed, left))


def extended(shares: Shares, owner: str, until_unix: float) -> Shares:
    """Returns the shares once the owner's ends no earlier than `until_unix`, because something that it covers lives
    longer. It stays as it is if the owner has none."""
    share = shares.get(owner)
    if share is None or share.until_unix >= until_unix:
        return shares
    return {**shares, owner: Share(share.amounts, until_unix)}
