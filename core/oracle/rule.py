"""The rule type, and the places in the specification that many rules are based on."""

from __future__ import annotations

from typing import Final

import msgspec

from .methods import ALL, HANDSHAKE, V1, V2, V3, V4, V5
from .observations import Role, Severity


class Rule(msgspec.Struct, frozen=True):
    """One thing that a peer must or should do.

    Attributes:
        id: stays the same from version to version.
        says: the rule in one sentence.
        who: the roles that can break it.
        clauses: revision → page and section. The keys are the revisions in which the rule holds.
        only_should: those of these revisions in which it is a SHOULD.
    """

    id: str
    says: str
    who: tuple[Role, ...]
    clauses: dict[str, str]
    only_should: frozenset[str] = frozenset()

    def severity(self, revision: str) -> Severity:
        return Severity.SHOULD if revision in self.only_should else Severity.MUST


CLIENT, SERVER, EITHER = (Role.CLIENT,), (Role.SERVER,), (Role.CLIENT, Role.SERVER)
BY_SESSION: Final = (V2, V3, V4)
"""Revisions whose Streamable HTTP has sessions."""


def within(revisions: tuple[str, ...], place: str) -> dict[str, str]:
    """Returns the clauses of a rule that stands at one place in several revisions."""
    return dict.fromkeys(revisions, place)


def page(handshake: str, stateless: str = "") -> dict[str, str]:
    """Returns the clauses of a rule with one place in all handshake-era revisions and another in the stateless era."""
    return within(HANDSHAKE, handshake) | (within((V5,), stateless) if stateless else {})


BASIC = {V1: "basic/messages"} | within((V2, V3, V4, V5), "basic")
REQUESTS = {revision: f'{where}, "Requests"' for revision, where in BASIC.items()}
RESPONSES = {V1: 'basic/messages, "Responses"'} | within(ALL[1:], 'basic, "Responses"')
MESSAGES = {V1: "basic/messages"} | within(ALL[1:], 'basic, "Messages"')
PROGRESS = page('basic/utilities/progress, "Progress Flow"', 'basic/patterns/progress, "Progress Flow"')
PROGRESS_RULES = page(
    'basic/utilities/progress, "Behavior Requirements"', 'basic/patterns/progress, "Behavior Requirements"'
)
CANCEL = page(
    'basic/utilities/cancellation, "Behavior Requirements"', 'basic/patterns/cancellation, "Behavior Requirements"'
)
INITIALIZATION = 'basic/lifecycle, "Initialization"'
SESSIONS = 'basic/transports, "Session Management"'
SENDING = 'basic/transports, "Sending Messages to the Server"'
STREAMABLE = "basic/transports/streamable-http"
RESUMING = 'basic/transports, "Resumability and Redelivery"'
MRTR_SERVER = 'basic/patterns/mrtr, "Server Requirements (Basic Workflow)"'
MRTR_CLIENT = 'basic/patterns/mrtr, "Client Requirements (Basic Workflow)"'
ACK = 'basic/patterns/subscriptions, "Acknowledgment"'
RECEIVING = 'basic/patterns/subscriptions, "Receiving Notifications"'
TASKS = "basic/utilities/tasks"
EXTENSION = "ext-tasks, specification/draft/tasks"
