"""The latest handshake with a server: what was tried and said so far, and its result."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.empty import NONE
from ..base.events import Cause, Headers
from ..base.revisions import Era
from ..jsonrpc.envelope import Frame


class Handshake:
    """The handshake of a link.

    Attributes:
        dialled_with: the client's headers that it was begun with.
        denial: the refusal of the client's credentials.
        result: the last result, in the form that clients get; it outlives the upstream session.
        replaying: settings that the server has yet to confirm.
        noise: the start of the first line that was no message, while `initialize` was not answered.
        was_asked_again: the server refused a revision, and was asked in one that it named.
        refusal: the refusal over Streamable HTTP, if HTTP+SSE is tried after it.
        answered: the response to `initialize`, while `server/discover` is tried.
        refused_initialize: how `initialize` was refused over Streamable HTTP, if `server/discover` is tried after it.
        tried: eras that failed; True: the server said so, False: it was silent.
        error: the error that the first of them failed with.
        words: what the server said in its first refusal.
        failed_addresses: the addresses that failed in this attempt, by their places, and how.
    """

    __slots__ = (
        "answered",
        "denial",
        "dialled_with",
        "error",
        "failed_addresses",
        "noise",
        "refusal",
        "refused_initialize",
        "replaying",
        "result",
        "tried",
        "was_asked_again",
        "words",
    )

    def __init__(self) -> None:
        self.result: bytes | None = None
        self.replaying = 0
        self.noise = ""
        self.begin(())

    def begin(self, headers: Headers) -> None:
        """Begins a handshake, with the headers of the client that it is for."""
        self.dialled_with = headers
        self.denial: Cause | None = None
        self.refusal: Cause | None = None
        self.refused_initialize: Cause | None = None
        self.error: bytes | None = None
        self.words = ""
        self.tried: Mapping[Era, bool] = NONE
        self.was_asked_again = False
        self.answered: Frame | None = None
        self.failed_addresses: Mapping[int, str] = NONE

    def receive_failed_addresses(self, failed: Mapping[int, str]) -> None:
        """Records further addresses that failed in this attempt."""
        self.failed_addresses = {**self.failed_addresses, **failed}

    def receive_denial(self, denial: Cause | None) -> None:
        """Handles a refusal: of the client's credentials, or, for None, for another reason."""
        self.denial = denial

    @property
    def wants_login(self) -> bool:
        """True if it was refused, and a login of ours would end that."""
        return self.denial is not None and bool(self.denial.login)

    def receive_words(self, words: str) -> None:
        """Records what the server said in a refusal. Only the first counts."""
        self.words = self.words or words

    def receive_refusal(self, refusal: Cause) -> None:
        """Handles a refusal over Streamable HTTP: HTTP+SSE is tried next."""
        self.refusal = refusal

    def receive_refused_initialize(self, cause: Cause) -> None:
        """Handles a refusal of `initialize` over Streamable HTTP: the other era is tried next."""
        self.refused_initialize = cause

    def receive_failed_era(self, era: Era, error: bytes | None, *, is_said: bool) -> None:
        """Handles an era that failed, with the server's `error` if it sent one."""
        self.tried = {**self.tried, era: is_said}
        self.error = self.error or error

    def try_stateless_again(self) -> None:
        """Tries the stateless era once more, after the server denied the other one."""
        self.tried = {Era.HANDSHAKE: True}

    def try_handshake_again(self) -> None:
        """Tries the era of `initialize` once more, over HTTP+SSE, after the server denied the other one."""
        self.tried = {Era.STATELESS: True}
        self.refused_initialize = None

    def ask_again(self) -> None:
        """Asks once more, in a revision that the server named."""
        self.was_asked_again = True

    def put_aside(self, frame: Frame) -> None:
        """Keeps the response to `initialize` while the other era is tried."""
        self.answered = frame

    def take_answered(self) -> Frame | None:
        """Removes and returns the response that was put aside; None if there is none."""
        frame, self.answered = self.answered, None
        return frame

    def receive_noise(self, beginning: str) -> None:
        """Records the beginning of a line that is no message. Only the first counts."""
        self.noise = self.noise or beginning

    def take_noise(self) -> str:
        """Removes and returns that beginning; "" if there is none. A server that answers has made up for it."""
        noise, self.noise = self.noise, ""
        return noise

    def receive_result(self, shown: bytes) -> None:
        """Handles the result. `shown` is the form that clients get."""
        self.result = shown
        self.refusal = self.error = None
        self.words = ""
        self.failed_addresses = NONE

    def begin_replay(self, count: int) -> None:
        """Begins to restore `count` settings."""
        self.replaying = count

    def receive_replayed(self) -> bool:
        """Handles the end of one of them. True if it was the last."""
        self.replaying -= 1
        return self.replaying == 0
