"""The addresses of one server that has several: which are well, and which sessions are at each.

A link is placed at an address when its handshake begins, and stays there until its upstream session is lost or over.
The address is the one with the fewest links among those that are well; of several such, the one that has not been
chosen for longest.

An address that fails is ill: it is left alone for `Limits.crash_loop_pause_s`, which doubles with each further failure
up to `Limits.crash_loop_pause_max_s`. After the pause one link tries it; until that has an outcome, or as long again
has passed, others leave it alone. Where no address is well, the ones that are ill are tried too, as a server with a
single address would be.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from ..base.events import Cause, End
from ..base.limits import Limits
from ..base.revisions import Era

UNAVAILABLE: Final = (502, 503, 504)
"""The HTTP statuses that say that a server cannot be had at an address, whatever is asked of it."""


def is_of_address(cause: Cause, era: Era) -> bool:
    """True if a handshake that ended so may succeed at another address: this one cannot be connected to, or answers for
    a server that cannot be.

    A server that ends the connection at `server/discover` may not know that method, as it would not at any address.
    """
    if cause.is_ours:
        return False
    if cause.end is End.REFUSED:
        return cause.status in UNAVAILABLE
    is_cut = cause.end in (End.BROKEN, End.GONE, End.TIMED_OUT)
    return cause.end is End.UNREACHABLE or (is_cut and era is Era.HANDSHAKE)


class Address:
    """One address of a server. Only its `Addresses` change it.

    Attributes:
        name: as people are shown it.
        links: the links that are placed at it.
        failures: failures in a row, those within one pause counted once.
        last_error: the latest failure; "" if it has worked since.
        has_outcome: a handshake has succeeded there, or failed.
    """

    __slots__ = ("failures", "has_outcome", "is_tried", "last_error", "left_until", "links", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.links = 0
        self.failures = 0
        self.last_error = ""
        self.has_outcome = False
        self.left_until = float("-inf")
        self.is_tried = False

    def is_well(self, now: float) -> bool:
        """True if it works as far as is known, or may be tried again."""
        return now >= self.left_until

    def receive_link(self, now: float, pause_s: float) -> None:
        """Places a link. One that is ill is left alone by others until that link has come through, or has failed."""
        self.links += 1
        if self.failures and self.is_well(now):
            self.is_tried, self.left_until = True, now + pause_s

    def receive_left(self) -> None:
        """Handles a link that has left."""
        self.links -= 1
        assert self.links >= 0

    def receive_failure(self, reason: str, now: float) -> bool:
        """Handles a failure. True if it begins a pause, and is not one more within a pause."""
        self.last_error, self.has_outcome = reason, True
        begins = self.is_tried or self.is_well(now)
        self.is_tried = False
        self.failures += begins
        return begins

    def pause(self, now: float, pause_s: float) -> None:
        """Begins a pause."""
        self.left_until = now + pause_s

    def receive_success(self) -> None:
        """Handles the success of a handshake: earlier failures are forgotten."""
        self.forget()
        self.has_outcome = True

    def forget(self) -> None:
        """Forgets all that is known."""
        self.failures, self.last_error, self.has_outcome = 0, "", False
        self.left_until, self.is_tried = float("-inf"), False


class Addresses:
    """All addresses of one server.

    Args:
        names: the addresses as people are shown them; at least one.

    Attributes:
        all: the addresses, in the order of the plan. Their place is what `Link.address` holds.
    """

    def __init__(self, names: Sequence[str], limits: Limits) -> None:
        assert names
        self.all = tuple(map(Address, names))
        self._limits = limits
        self._order = list(range(len(names)))  # longest not chosen first
        self._places: dict[str, int] = {}  # by the ids of the links that are placed

    def place(self, link: str, now: float, *, besides: Container[int] = ()) -> int | None:
        """Chooses the address for a link, which leaves the one that it was placed at.

        Args:
            link: the link's id.
            besides: places that are not chosen, as this attempt has been there.

        Returns:
            the place of the address; None if there is none left. The link then stays where it is.
        """
        left = [place for place in self._order if place not in besides]
        well = [place for place in left if self.all[place].is_well(now)]
        if not left:
            return None
        if well:
            chosen = min(well, key=lambda place: self.all[place].links)
        else:
            chosen = min(left, key=lambda place: self.all[place].left_until)
        self.leave(link)
        self._put(link, chosen, now)
        return chosen

    def keep(self, link: str, name: str, now: float) -> int:
        """Places a link at the address of that name, where its session was begun by an earlier run. Returns its place,
        or that of the first address if the server does not have that one any more."""
        names = [address.name for address in self.all]
        place = names.index(name) if name in names else 0
        self._put(link, place, now)
        return place

    def leave(self, link: str) -> None:
        """Handles a link whose upstream session is lost or over. Nothing happens if it was not placed."""
        place = self._places.pop(link, None)
        if place is not None:
            self.all[place].receive_left()

    def _put(self, link: str, place: int, now: float) -> None:
        assert link not in self._places
        self._places[link] = place
        self._order.remove(place)
        self._order.append(place)
        self.all[place].receive_link(now, self._pause_s(place))

    def receive_failure(self, place: int, reason: str, now: float) -> None:
        """Records that an address cannot be connected to, or answers for a server that cannot be. A failure within a
        pause makes that no longer."""
        if self.all[place].receive_failure(reason, now):
            self.all[place].pause(now, self._pause_s(place))

    def receive_success(self, place: int) -> None:
        """Records that a handshake has succeeded at an address."""
        self.all[place].receive_success()

    def receive_order(self) -> None:
        """Forgets earlier failures, for an operator who has started the server again."""
        for address in self.all:
            address.forget()

    def is_left_for_good(self, place: int, now: float, *, has_session: bool) -> bool:
        """True if a link had better leave an address that has failed: another one is well, and either there is no
        session to be lost, or the address has failed again after a whole pause."""
        others = any(address.is_well(now) for other, address in enumerate(self.all) if other != place)
        return others and (not has_session or self.all[place].failures > 1)

    def _pause_s(self, place: int) -> float:
        pause_s = self._limits.crash_loop_pause_s * 2.0 ** min(max(self.all[place].failures - 1, 0), 16)
        return min(pause_s, self._limits.crash_loop_pause_max_s)
