"""The table of what servers said of themselves and listed, for clients that come while another process of theirs
starts. It is kept in memory alone, and bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ..state.early_start import EarlyKey, Introduction

LEARNED_MAX: Final = 1024
"""Answers that are kept for clients that come while a server starts: clients choose what tells them apart. At it: the
one that was used least lately is dropped, and its next client waits for the server."""
LEARNED_MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of all these answers. At it: as with their number."""
ANSWER_MAX_BYTES: Final = 1024 * 1024
"""Bytes of one of them. The largest lists that are known have half of that. At it: it is not kept."""
EVERYBODY: Final = b""
"""The audience of what a process said that was started for no client."""


class Learned(NamedTuple):
    """An answer of a server.

    Attributes:
        result: as the server sent it; of an introduction, in the form that clients get.
        expires_at: until then it may be given to others.
        introduction: the rest of what the handshake showed, if it was one.
    """

    result: bytes
    expires_at: float
    introduction: Introduction | None = None


class LearnedAnswers:
    """The answers of all servers."""

    def __init__(self) -> None:
        self._answers: dict[EarlyKey, Learned] = {}  # the latest use is the last
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def keep(self, key: EarlyKey, learned: Learned) -> None:
        """Keeps an answer in place of an earlier one, if it is not too large."""
        self.drop(key)
        if len(learned.result) > ANSWER_MAX_BYTES:
            return
        self._answers[key] = learned
        self._size_bytes += len(learned.result)
        while len(self._answers) > LEARNED_MAX or self._size_bytes > LEARNED_MAX_BYTES:
            self.drop(next(iter(self._answers)))

    def find(self, key: EarlyKey, now: float) -> Learned | None:
        """Returns an answer that this audience was given, or that everybody may have; None if there is none."""
        for each in (key, key._replace(audience=EVERYBODY)):
            learned = self._answers.get(each)
            if learned is None:
                continue
            if now < learned.expires_at:
                self._answers[each] = self._answers.pop(each)
                return learned
            self.drop(each)
        return None

    def find_alike(self, key: EarlyKey, now: float) -> Learned | None:
        """Returns the latest answer that the audience may have and that differs from `key` in its digest alone."""
        for each, learned in reversed(self._answers.items()):
            is_alike = each._replace(audience=key.audience, digest=key.digest) == key
            if is_alike and each.audience in (key.audience, EVERYBODY) and now < learned.expires_at:
                return learned
        return None

    def drop(self, key: EarlyKey) -> None:
        """Drops one answer, if it is there."""
        learned = self._answers.pop(key, None)
        if learned is not None:
            self._size_bytes -= len(learned.result)

    def drop_methods(self, server: str, methods: Iterable[str]) -> None:
        """Drops the answers of a server to these methods, for all audiences."""
        dropped = frozenset(methods)
        for key in [key for key in self._answers if key.server == server and key.method in dropped]:
            self.drop(key)

    def forget(self, server: str) -> None:
        """Drops all that a server said."""
        for key in [key for key in self._answers if key.server == server]:
            self.drop(key)
