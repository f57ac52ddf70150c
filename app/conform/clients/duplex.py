"""Plays a conversation on a two-way stream of messages, whatever carries it, and tracks unanswered requests."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from ....core.base.revisions import LEGACY
from ....core.oracle.observations import AnyObservation, Ended, Head, Opened, Role, Said
from ..script.answers import ClientAnswers
from ..script.steps import Conversation, Json, decoded, is_id
from ..script.survey import Played

OBSERVATIONS_MAX: Final = 5_000
"""Observations kept of one conversation, which has some dozens."""
MESSAGE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above the size of a response to a small request; after a longer message nothing more is kept."""
LATE_S: Final = 1.0
"""Timeout of a response once another one never came, instead of the full time again."""
QUIET_S: Final = 0.05
"""Seconds to wait at the end for unexpected messages, such as a second response."""


def reason_of(error: Exception) -> str:
    """Describes for people why a connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error}; SSL_CERT_FILE in the environment can name a file of certificates to be trusted"
    return str(error) or type(error).__name__


class Link(Protocol):
    """A two-way stream of messages."""

    def send(self, text: str) -> Sequence[AnyObservation]:
        """Sends a message, or as much of it as the server reads in time. Returns the observations of that."""

    def receive(self, patience_s: float) -> AnyObservation:
        """Returns the next observation.

        Raises:
            TimeoutError: nothing came within `patience_s`.
            EOFError: the server has closed the stream.
        """


class ScriptedClient:
    """A client that plays a conversation on a link.

    Attributes:
        seen: the observations, in order.
        is_cut: there was more than is kept.
    """

    def __init__(self, link: Link, conversation: Conversation, timeout_s: float) -> None:
        self.seen: list[AnyObservation] = []
        self.is_cut = False
        self._link = link
        self._conversation = conversation
        self._timeout_s = timeout_s
        self._answers = ClientAnswers(conversation)
        self._owed: Counter[str | int] = Counter()
        self._posted: dict[int, list[str | int]] = {}
        """Channel of each POST without a response → the ids of the requests in it."""
        self._batched: list[str | int] = []
        """Ids of requests in arrays, which a server may refuse as a whole."""
        self._is_over = False
        self._is_late = False

    def play(self) -> Played:
        for step in self._conversation.steps:
            self._receive(0)
            self._send(step.body)
            if step.waits:
                self._wait_answered()
        self._wait_answered()
        self._receive(QUIET_S)
        return Played([(0, seen) for seen in self.seen], self.is_cut)

    def _send(self, text: str) -> None:
        self._answers.note(text)
        seen = self._link.send(text)
        self.seen += seen
        ids: list[str | int] = []
        for message in decoded(text):
            id = message.get("id")
            if "method" in message and is_id(id) and self._is_owed(message, text):
                ids.append(id)
            elif message.get("method") == "notifications/cancelled" and isinstance(message.get("params"), dict):
                if is_id(target := message["params"].get("requestId")):
                    self._owed.pop(target, None)
        self._owed.update(ids)
        if text.lstrip().startswith("["):
            self._batched += ids
        if isinstance(seen[0], Opened):
            self._posted[seen[0].channel] = ids

    def _is_owed(self, message: Json, text: str) -> bool:
        """True if a response can be expected: some servers drop malformed messages."""
        features = LEGACY.get(self._conversation.revision)
        has_arrays = features is not None and features.batching
        is_message = message.get("jsonrpc") == "2.0" and isinstance(message.get("params", {}), dict)
        return is_message and (has_arrays or not text.lstrip().startswith("["))

    def _wait_answered(self) -> None:
        """Waits until every request and POST is answered, or the time is up, or the server has closed the stream."""
        until = time.monotonic() + (min(LATE_S, self._timeout_s) if self._is_late else self._timeout_s)
        while (self._posted or any(count > 0 for count in self._owed.values())) and not self._is_over:
            if not self._receive(until - time.monotonic()):
                self._owed.clear()  # each response is waited for once
                self._posted.clear()
                self._is_late = True
                return

    def _receive(self, patience_s: float) -> bool:
        """Takes in all that has come, and waits for the first of it. True if something came."""
        has_received = False
        while not self._is_over:
            try:
                seen = self._link.receive(max(0.0, patience_s))
            except TimeoutError:
                break
            except EOFError:
                self._is_over = True
                break
            has_received, patience_s = True, 0
            if len(self.seen) >= OBSERVATIONS_MAX or (isinstance(seen, Said) and len(seen.message) > MESSAGE_MAX_BYTES):
                self._is_over = self.is_cut = True
                break
            self.seen.append(seen)
            self._note(seen)
        return has_received

    def _note(self, seen: AnyObservation) -> None:
        if isinstance(seen, Head | Ended):
            ids = self._posted.pop(seen.channel, [])
            if isinstance(seen, Ended) or seen.status >= 400:
                self._owed.subtract(ids)  # the POST failed, so no response will come
        elif isinstance(seen, Said) and seen.sender is Role.SERVER:
            for message in decoded(seen.message):
                if "method" not in message and is_id(id := message.get("id")):
                    self._owed[id] -= 1
                elif "error" in message:
                    self._owed.subtract(self._batched)
                    self._batched.clear()
            for step in self._answers.answers_to(seen.message):
                self._send(step.body)
