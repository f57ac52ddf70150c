"""The shares of this replica in limits that all replicas keep together (`base.shares`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from ..base.shares import Limit, Share, Shares, ends_at_unix, extended, read, taken
from ..base.storage import Conflicted, Load, Loaded, Save, Saved, StorageAnswer
from .context import Context
from .storage_orders import StorageOrders, reason_of

RETURNED_AFTER_S: Final = 5.0
"""Time after which what is no longer used of a share is given back, so that many ends cost one order."""
RETRIED_AFTER_S: Final = 60.0
"""Time after which a change that the storage failed is looked at again."""
RESERVE_S: Final = 900.0
"""Time by which a share ends later than it has to, so that it is not extended for each use."""
SHARES_MAX: Final = 1024
"""Shares in one record: far more than there are replicas. At it: a replica without one gets none."""
CONFLICTS_MAX: Final = 64
"""Times that a change is tried again because another replica was faster. At it: it fails."""

N = TypeVar("N", bound=Hashable)
Then = Callable[[str], None]
"""A callback that takes the problem; "" if there is none."""


class _Claim(NamedTuple):
    """More of a share for one use, and the end of that."""

    more: tuple[int, ...]
    until_unix: float
    then: Then


class _Extension(NamedTuple):
    """A later end of the share of `owner`."""

    owner: str
    until_unix: float
    then: Then


class _Record:
    """One record of shares as it was last seen, and the changes that wait for it.

    Attributes:
        shares, version: the record as it was last seen; version None: it is to be loaded.
        is_new: it was seen since the present change began.
        own: the share that may be used.
        is_returning: what is not used is to be given back.
        is_short: the last claim got less than it needed.
        is_unsure: the record may hold another share of this replica than was seen.
        is_busy: an order is open, or those are called that waited for it.
    """

    __slots__ = (
        "claims", "conflicts", "extensions", "is_busy", "is_new", "is_returning", "is_short", "is_unsure",
        "key", "limit", "own", "shares", "version",
    )  # fmt: skip

    def __init__(self, key: str, limit: Limit) -> None:
        self.key = key
        self.limit = limit
        self.shares: Shares = {}
        self.version: int | None = None
        self.own: Share | None = None
        self.claims: list[_Claim] = []
        self.extensions: list[_Extension] = []
        self.is_new = False
        self.is_returning = False
        self.is_short = False
        self.is_unsure = False
        self.is_busy = False
        self.conflicts = 0

    @property
    def is_waiting(self) -> bool:
        return bool(self.claims or self.extensions or self.is_returning)


class SharedLimits(Generic[N]):
    """The shares of this replica, each under the name of what is limited. There is one for each name that something is
    used of, and for `RETURNED_AFTER_S` after that.

    Args:
        timer: the name of the timer that `handle_timeout` is for.
        describe: returns the key of the record and the limit.
        used: returns what this replica uses, what is reserved included.
    """

    def __init__(
        self,
        context: Context,
        storage_orders: StorageOrders,
        timer: str,
        describe: Callable[[N], tuple[str, Limit]],
        used: Callable[[N], tuple[int, ...]],
    ) -> None:
        assert context.plan.replica is not None
        self._context = context
        self._storage_orders = storage_orders
        self._owner = context.plan.replica.owner
        self._timer = timer
        self._describe = describe
        self._count = used
        self._held: dict[N, list[tuple[int, ...]]] = {}  # claimed, while more is claimed under other names
        self._records: dict[N, _Record] = {}

    def __len__(self) -> int:
        return len(self._records) + len(self._held)

    def _used(self, name: N) -> tuple[int, ...]:
        return tuple(map(sum, zip(self._count(name), *self._held.get(name, ()), strict=True)))

    def share(self, name: N) -> tuple[int, ...]:
        """Returns how much this replica may use."""
        record = self._records.get(name)
        if record is None or record.own is None or record.own.until_unix < self._context.now_unix:
            return tuple(0 for _ in self._describe(name)[1].amounts)
        return record.own.amounts

    def claim(self, name: N, more: tuple[int, ...], until_unix: float, then: Then) -> None:
        """Gets a share that allows `more` beside what is used, as far as the limit does, and lasts until `until_unix`.

        Calls `then` at the end, at once if the share suffices. What it has reserved when it returns is counted.
        """
        record = self._record(name)
        claim = _Claim(more, until_unix, then)
        if not record.is_busy and not record.claims and self._suffices(name, record, claim):
            then("")
            return
        record.claims.append(claim)
        self._advance(name, record)

    def claim_each(self, claims: Sequence[tuple[N, tuple[int, ...]]], until_unix: float, then: Then) -> None:
        """Gets shares under several names, one after the other. What it has got of one stays its own while it asks for
        the next.

        Calls `then` as `claim` does.
        """
        (name, more), rest = claims[0], claims[1:]

        def claimed(problem: str) -> None:
            if problem or not rest:
                then(problem)
                return
            self._held.setdefault(name, []).append(more)
            self.claim_each(rest, until_unix, claimed_rest)

        def claimed_rest(problem: str) -> None:
            self._held[name].remove(more)
            if not self._held[name]:
                del self._held[name]
            then(problem)
            self.receive_less(name)

        self.claim(name, more, until_unix, claimed)

    def extend(self, name: N, owner: str, until_unix: float, then: Then) -> None:
        """Lets the share of any replica last until `until_unix`, since something that it covers does."""
        record = self._record(name)
        share = record.own if owner == self._owner else record.shares.get(owner)
        if share is not None and share.until_unix >= until_unix:
            then("")
            return
        record.extensions.append(_Extension(owner, until_unix, then))
        self._advance(name, record)

    def receive_less(self, name: N) -> None:
        """Schedules giving back what is no longer used."""
        if name in self._records:
            self._return_at(name, self._context.now + RETURNED_AFTER_S)

    def _return_at(self, name: N, at: float) -> None:
        self._context.timers.set((self._timer, (name,)), at, "unused shares")

    def handle_timeout(self, name: N) -> None:
        record = self._records[name]
        record.is_returning = True
        self._advance(name, record)

    def _record(self, name: N) -> _Record:
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = _Record(*self._describe(name))
            if not record.limit.blocks:  # of few users, so probably nobody uses anything of it
                record.version = 0
        return record

    def _suffices(self, name: N, record: _Record, claim: _Claim) -> bool:
        if record.own is None or record.own.until_unix < claim.until_unix:
            return False
        pairs = zip(self._needed(name, [claim]), record.own.amounts, strict=True)
        return all(needed <= amount for needed, amount in pairs)

    def _needed(self, name: N, claims: list[_Claim]) -> tuple[int, ...]:
        return tuple(map(sum, zip(self._used(name), *(claim.more for claim in claims), strict=True)))

    # --- Changes of a record ----------------------------------------------------------------------------------------

    def _advance(self, name: N, record: _Record) -> None:
        """Gives the next order for a record, unless one is open or nothing waits."""
        if record.is_busy:
            return
        if not record.is_waiting:
            if record.own is None and not record.is_unsure:
                self._context.timers.cancel((self._timer, (name,)))
                del self._records[name]
            return
        if record.version is None:
            record.is_busy = True
            self._storage_orders.order(
                lambda ticket: Load(ticket=ticket, key=record.key), lambda answer: self._receive_loaded(name, answer)
            )
            return
        claims, extensions = record.claims.copy(), record.extensions.copy()
        changed = self._changed(name, record, claims, extensions)
        own = changed.get(self._owner)
        is_short = own is None or any(
            amount < needed for amount, needed in zip(own.amounts, self._needed(name, claims), strict=True)
        )
        is_lost = any(extension.owner not in changed for extension in extensions)
        if ((claims and is_short) or is_lost) and not record.is_new:
            record.version = None  # others may have given something back since
            self._advance(name, record)
            return
        record.is_returning = False
        if changed == record.shares and not record.is_unsure:
            self._finish(name, record, claims, extensions, is_short=is_short)
        else:  # also to get ahead of an earlier change that may still be carried out
            self._save(name, record, changed, claims, extensions, is_short=is_short)

    def _changed(self, name: N, record: _Record, claims: list[_Claim], extensions: list[_Extension]) -> Shares:
        shares, now_unix = record.shares, self._context.now_unix
        for extension in extensions:
            shares = extended(shares, extension.owner, extension.until_unix + RESERVE_S)
        own = record.shares.get(self._owner)
        if claims or (record.is_returning and own is not None):
            until_unix = max((claim.until_unix + RESERVE_S for claim in claims), default=0.0)
            if own is not None and all(claim.until_unix <= own.until_unix for claim in claims):
                until_unix = 0.0
            needed = self._needed(name, claims)
            is_over = own is not None and own.until_unix < now_unix  # as far as is known: others may have extended it
            if record.limit.blocks and not (claims or record.is_short or is_over):  # the next use is to cost nothing
                needed = tuple(max(1, amount) for amount in needed)
            changed = taken(shares, self._owner, record.limit, needed, now_unix=now_unix, until_unix=until_unix)
            if own is not None or len(changed) <= SHARES_MAX:
                shares = changed
        return shares

    def _receive_loaded(self, name: N, answer: StorageAnswer) -> None:
        record = self._records[name]
        record.is_busy = False
        if not isinstance(answer, Loaded):
            self._fail(name, record, reason_of(answer))
            return
        try:
            record.shares = read(answer.value, record.limit)
        except ValueError as error:
            self._fail(name, record, str(error))
            return
        record.version, record.is_new = answer.version, True
        self._advance(name, record)

    def _save(
        self,
        name: N,
        record: _Record,
        changed: Shares,
        claims: list[_Claim],
        extensions: list[_Extension],
        *,
        is_short: bool,
    ) -> None:
        version, own, is_return, was_unsure = record.version, changed.get(self._owner), not claims, record.is_unsure
        record.own = _lesser(record.own, own)  # whether the order is carried out or not
        record.is_busy, record.is_unsure, record.version = True, True, None

        def saved(answer: StorageAnswer) -> None:
            record.is_busy = False
            if isinstance(answer, Saved):
                record.shares, record.version, record.is_unsure = changed, answer.version, False
                self._finish(name, record, claims, extensions, is_short=is_short, is_saved=True)
            elif isinstance(answer, Conflicted) and record.conflicts < CONFLICTS_MAX:
                record.conflicts += 1
                record.is_unsure = was_unsure
                record.is_returning = record.is_returning or is_return
                self._advance(name, record)
            else:
                is_busy = isinstance(answer, Conflicted)
                self._fail(name, record, "too many replicas want room at once" if is_busy else reason_of(answer))

        value, expires_at_unix = msgspec.json.encode(changed), ends_at_unix(changed, self._context.now_unix)
        self._storage_orders.order(
            lambda ticket: Save(
                ticket, key=record.key, value=value, expires_at_unix=expires_at_unix, if_version=version
            ),
            saved,
        )

    def _finish(
        self,
        name: N,
        record: _Record,
        claims: list[_Claim],
        extensions: list[_Extension],
        *,
        is_short: bool,
        is_saved: bool = False,
    ) -> None:
        """Reports a change that is made, to those that it was made for."""
        del record.claims[: len(claims)], record.extensions[: len(extensions)]
        record.own = record.shares.get(self._owner)
        record.is_new, record.conflicts = False, 0
        record.is_busy = True  # until all have reserved what was claimed for them
        for claim in claims:
            claim.then("")
        for extension in extensions:
            extension.then("" if extension.owner in record.shares else "its replica has given it up")
        record.is_busy = False
        record.is_short = bool(claims) and is_short
        if record.is_short:
            self._return_at(name, self._context.now)  # what is of no use here may be enough elsewhere
        elif record.own is not None and (claims or extensions or is_saved) and self._used(name) != record.own.amounts:
            self._return_at(name, self._context.now + RETURNED_AFTER_S)  # less is used than when it was changed
        elif record.own is not None and not any(self._used(name)):
            self._return_at(name, record.own.until_unix - self._context.unix_at_zero + 1.0)
        self._advance(name, record)

    def _fail(self, name: N, record: _Record, problem: str) -> None:
        """Reports to all that wait that nothing has changed. The record may hold a greater share than is used here, so
        it is looked at again later."""
        waiting: list[_Claim | _Extension] = [*record.claims, *record.extensions]
        record.claims, record.extensions = [], []
        record.is_new, record.conflicts, record.version = False, 0, None
        if record.is_unsure or record.is_returning:
            record.is_unsure, record.is_returning = True, False
            self._return_at(name, self._context.now + RETRIED_AFTER_S)
        record.is_busy = True
        for entry in waiting:
            entry.then(problem)
        record.is_busy = False
        self._advance(name, record)


def _lesser(one: Share | None, other: Share | None) -> Share | None:
    if one is None or other is None:
        return None
    amounts = tuple(map(min, one.amounts, other.amounts))
    return Share(amounts, min(one.until_unix, other.until_unix))
