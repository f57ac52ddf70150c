"""The sessions of clients without sessions, by what their requests have in common."""

from __future__ import annotations

from ..state.session import Affinities, Session


class AffinityTable:
    """The open sessions that requests of such clients share.

    Attributes:
        sessions: the session of each affinity.
    """

    def __init__(self) -> None:
        self.sessions: dict[Affinities, Session] = {}

    def find(self, affinity: Affinities | None) -> Session | None:
        """Returns the session for requests of that affinity; None if there is none."""
        return None if affinity is None else self.sessions.get(affinity)

    def find_merged(self, affinity: Affinities) -> Session | None:
        """Returns the session that serves clients of all capabilities, for requests that agree in all else.

        The first request came before it was known that the server is told the capabilities with each request. The
        session that it began becomes the one for all.
        """
        merged = merged_affinity(affinity)
        if merged not in self.sessions and (first := self.sessions.pop(affinity, None)) is not None:
            first.merge(merged)
            self.sessions[merged] = first
        return self.sessions.get(merged)

    def add(self, session: Session) -> None:
        """Adds a session."""
        assert session.affinity is not None
        self.sessions[session.affinity] = session

    def move(self, session: Session, affinity: Affinities) -> None:
        """Has a session found by another affinity from now on."""
        self.remove(session)
        session.merge(affinity)
        self.add(session)

    def remove(self, session: Session) -> None:
        """Removes a session that ends."""
        if session.affinity is not None:
            self.sessions.pop(session.affinity, None)

    def is_current(self, session: Session) -> bool:
        """True if new requests are sent to that session."""
        return session.affinity is not None and self.sessions.get(session.affinity) is session

    def is_for_one(self, session: Session) -> bool:
        """True if the session is for one request alone."""
        return session.affinity is not None and session.affinity.is_for_one and self.is_current(session)

    def of_group(self, group: int) -> list[Session]:
        """Returns the sessions of one pipe."""
        return [session for affinity, session in self.sessions.items() if affinity.group == group]


def merged_affinity(affinity: Affinities) -> Affinities:
    """Returns the affinity that stands for clients of all capabilities."""
    return affinity._replace(fingerprint="")
