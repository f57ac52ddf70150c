"""Reads responses whose body has a content coding: between the HTTP framing and the reader of the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...base.budget import Share
from ...base.errors import LocalProtocolError, RemoteProtocolError
from ...base.limits import Limits
from ..headers import Headers
from .codings import BodyDecoder, Coding, codings_for, without_codings
from .response import Ended, ReplyEvent


class Reader(Protocol):
    """A parser of responses; see `ResponseReader`."""

    @property
    def is_gathering(self) -> bool: ...
    def receive_head(self, status: int, headers: Headers) -> list[ReplyEvent]: ...
    def receive_body(self, data: bytes | bytearray) -> list[ReplyEvent]: ...
    def receive_eof(self, is_complete: bool, problem: str = "") -> list[ReplyEvent]: ...


class CodedReader:
    """A `Reader` that decodes the body for another one.

    It takes one piece of the body at a time: while `is_behind`, `receive_body` is called with b"" for what is left of
    the last piece, and nothing else arrives but the loss of the connection. A body that is malformed, beyond a limit or
    cut off ends the response like a broken connection.
    """

    def __init__(self, reader: Reader, decoder: BodyDecoder) -> None:
        self._reader = reader
        self._decoder = decoder
        self._is_over = False

    @classmethod
    def for_head(
        cls,
        reader: Reader,
        headers: Headers,
        limits: Limits,
        *,
        added: Callable[[str], Coding | None],
        share: Share | None = None,
    ) -> CodedReader | None:
        """Returns a reader for a response with these headers. None if its body has no coding, or none that can be
        decoded: `reader` itself then reports that."""
        codings = codings_for(headers, added)
        return cls(reader, BodyDecoder(codings, limits, share)) if codings else None

    @property
    def is_behind(self) -> bool:
        """True if the last piece of the body is not decoded in full."""
        return self._decoder.is_behind and not self._is_over

    @property
    def is_gathering(self) -> bool:
        return self._reader.is_gathering

    def receive_head(self, status: int, headers: Headers) -> list[ReplyEvent]:
        """See `ResponseReader.receive_head`."""
        return self._note_end(self._reader.receive_head(status, without_codings(headers)))

    def receive_body(self, data: bytes | bytearray) -> list[ReplyEvent]:
        """Takes a piece of the body as it was sent, or decodes more of the last one.

        Raises:
            LocalProtocolError: called after `Ended`, or with another piece while `is_behind`. The state is unchanged.
        """
        if self._is_over:
            raise LocalProtocolError("got a piece of the body after `Ended`, expected none")
        if data and self.is_behind:
            raise LocalProtocolError(
                'got a piece of the body while is_behind, expected b"" until the last one is decoded'
            )
        try:
            text = self._decoder.decode(bytes(data))
        except RemoteProtocolError as error:
            return self._note_end(self._reader.receive_eof(False, error.message))
        return self._note_end(self._reader.receive_body(text)) if text else []

    def receive_eof(self, is_complete: bool, problem: str = "") -> list[ReplyEvent]:
        """See `ResponseReader.receive_eof`."""
        if is_complete and self.is_behind:
            raise LocalProtocolError("got the end of a coded body, expected what is left of it to be decoded before")
        if is_complete:
            try:
                self._decoder.finish()
            except RemoteProtocolError as error:
                is_complete, problem = False, error.message
        return self._note_end(self._reader.receive_eof(is_complete, problem))

    def release(self) -> None:
        """Gives back the memory that the decoder had, because nothing follows."""
        self._is_over = True
        self._decoder.release()

    def _note_end(self, facts: list[ReplyEvent]) -> list[ReplyEvent]:
        if facts and isinstance(facts[-1], Ended):
            self.release()
        return facts
