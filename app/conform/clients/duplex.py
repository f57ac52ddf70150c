"""What is said on a two-way stream of messages, whatever carries it, and what is still owed there."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from ....core.base.revisions import LEGACY
from ....core.oracle.observations import AnyObservation, Ended, Head, Opened, Role, Said
from ..script.answers import Answering
from ..script.steps import Conversation, Json, decoded, is_id
from ..script.survey import Played

OBSERVATIONS_MAX: Final = 5_000
"""Kept of one conversation, which has some dozens."""
MESSAGE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above what a server says to small questions; after a longer message nothing more is kept."""
LATE_S: Final = 1.0
"""How long each answer is waited for after one that never came, instead of the full time again."""
QUIET_S: Final = 0.05
"""Waited at the end for what nobody asked for, such as a second answer."""


def reason_of(error: Exception) -> str:
    """Why nobody could be reached, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error}; SSL_CERT_FILE in the environment can name a file of certificates to be trusted"
    return str(error) or type(error).__name__


class Link(Protocol):
    """A two-way stream of messages."""

    def send(self, text: str) -> Sequence[AnyObservation]:
        """Say a message, or as much of it as the server takes in time. Returns what there was to see of that."""

    def receive(self, patience_s: float) -> AnyObservation:
        """What came next.

        Raises:
            TimeoutError: nothing came.
            EOFError: nothing will come any more.
        """


class Talk:
    """A conversation on a link.

    Attributes:
        seen: what was seen of it, in the order it happened.
        is_cut: there was more than is kept.
    """

    def __init__(self, link: Link, conversation: Conversation, timeout_s: float) -> None:
        self.seen: list[AnyObservation] = []
        self.is_cut = False
        self._link = link
        self._conversation = conversation
        self._timeout_s = timeout_s
        self._answering = Answering(conversation)
        self._owed: Counter[str | int] = Counter()
        self._posted: dict[int, list[str | int]] = {}
        """Of each POST that was not replied to yet: what was asked in it."""
        self._batched: list[str | int] = []
        """What was asked in arrays, which may be refused as a whole."""
        self._is_over = False
        self._is_late = False

    def play(self) -> Played:
        for step in self._conversation.steps:
            self._hear(0)
            self._say(step.body)
            if step.waits:
                self._wait_answered()
        self._wait_answered()
        self._hear(QUIET_S)
        return Played([(0, seen) for seen in self.seen], self.is_cut)

    def _say(self, text: str) -> None:
        self._answering.note(text)
        seen = self._link.send(text)
        self.seen += seen
        asked: list[str | int] = []
        for message in decoded(text):
            id = message.get("id")
            if "method" in message and is_id(id) and self._is_owed(message, text):
                asked.append(id)
            elif message.get("method") == "notifications/cancelled" and isinstance(message.get("params"), dict):
                if is_id(target := message["params"].get("requestId")):
                    self._owed.pop(target, None)
        self._owed.update(asked)
        if text.lstrip().startswith("["):
            self._batched += asked
        if isinstance(seen[0], Opened):
            self._posted[seen[0].channel] = asked

    def _is_owed(self, message: Json, text: str) -> bool:
        """Whether to wait for an answer: some servers drop what they cannot take for a message."""
        features = LEGACY.get(self._conversation.revision)
        has_arrays = features is not None and features.batching
        is_message = message.get("jsonrpc") == "2.0" and isinstance(message.get("params", {}), dict)
        return is_message and (has_arrays or not text.lstrip().startswith("["))

    def _wait_answered(self) -> None:
        """Until nothing is owed and all has arrived, the time is up, or the server has gone."""
        until = time.monotonic() + (min(LATE_S, self._timeout_s) if self._is_late else self._timeout_s)
        while (self._posted or any(count > 0 for count in self._owed.values())) and not self._is_over:
            if not self._hear(until - time.monotonic()):
                self._owed.clear()  # it was waited for once
                self._posted.clear()
                self._is_late = True
                return

    def _hear(self, patience_s: float) -> bool:
        """Take in what has come, waiting for the first of it. Whether there was something."""
        has_heard = False
        while not self._is_over:
            try:
                seen = self._link.receive(max(0.0, patience_s))
            except TimeoutError:
                break
            except EOFError:
                self._is_over = True
                break
            has_heard, patience_s = True, 0
            if len(self.seen) >= OBSERVATIONS_MAX or (isinstance(seen, Said) and len(seen.message) > MESSAGE_MAX_BYTES):
                self._is_over = self.is_cut = True
                break
            self.seen.append(seen)
            self._take(seen)
        return has_heard

    def _take(self, seen: AnyObservation) -> None:
        if isinstance(seen, Head | Ended):
            asked = self._posted.pop(seen.channel, [])
            if isinstance(seen, Ended) or seen.status >= 400:
                self._owed.subtract(asked)  # it has not arrived
        elif isinstance(seen, Said) and seen.sender is Role.SERVER:
            for message in decoded(seen.message):
                if "method" not in message and is_id(id := message.get("id")):
                    self._owed[id] -= 1
                elif "error" in message:
                    self._owed.subtract(self._batched)
                    self._batched.clear()
            for step in self._answering.answers_to(seen.message):
                self._say(step.body)
