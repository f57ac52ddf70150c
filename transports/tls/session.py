"""The server's side of one TLS connection, without sockets: bytes in, bytes out.

A driver hands over what arrives and sends what `take` returns. Nothing here waits.

An end in order is the alert `close_notify` (RFC 8446, 6.1), in either direction. Without it the peer can tell that
something is missing, so a connection that is to look cut off ends without one.
"""

from __future__ import annotations

import ssl
from typing import Final

from ...core.access.identity import ClientCertificate
from ...core.base.limits import KIB
from ...core.wire.client_tls_faults import explain_handshake

READ_BYTES: Final = 16 * KIB
"""The most that one record holds. Source: RFC 8446, 5.1."""


class TlsFailed(Exception):
    """Raised when the peer broke the protocol, or refused ours. What `take` returns tells it; nothing follows. The
    message says why."""


class TlsSession:
    """One connection of a server.

    Attributes:
        is_open: the handshake is complete.
        is_ended: the client has ended its side in order.
        certificate: what the client has shown, verified; None: nothing, or nothing that was asked for.
    """

    __slots__ = ("_incoming", "_is_closed", "_outgoing", "_tls", "certificate", "is_ended", "is_open")

    def __init__(self, context: ssl.SSLContext) -> None:
        self.is_open = False
        self.is_ended = False
        self.certificate: ClientCertificate | None = None
        self._is_closed = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def receive(self, data: bytes) -> bytes:
        """Takes received bytes. Returns what the client has sent in them, which may be nothing.

        Raises:
            TlsFailed: the connection is to be closed.
        """
        if self.is_ended:
            return b""
        self._incoming.write(data)
        try:
            if not self.is_open:
                self._tls.do_handshake()
                self.is_open = True
                self.certificate = _certificate_of(self._tls)
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLCertVerificationError as error:
            raise TlsFailed(explain_handshake(error.reason or "", error.verify_message)) from error
        except ssl.SSLError as error:
            raise TlsFailed(explain_handshake(error.reason or "")) from error

    def _read(self) -> bytes:
        pieces: list[bytes] = []
        while not self.is_ended:
            try:
                piece = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:  # after our own close_notify
                piece = b""
            if piece:
                pieces.append(piece)
            else:
                self.is_ended = True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypts bytes to send. Does nothing after `close`."""
        if self._is_closed:
            return
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]

    def close(self) -> None:
        """Ends the sending side in order, once. What the client sends can still be received."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.is_open:
            try:
                self._tls.unwrap()
            except ssl.SSLError:  # SSLWantReadError: the client's own close_notify is not waited for
                pass

    def cut(self) -> None:
        """Ends the sending side without a `close_notify`: what was sent is incomplete."""
        self._is_closed = True

    @property
    def has_output(self) -> bool:
        """True if there is something to send: after `receive`, what TLS itself answers."""
        return self._outgoing.pending > 0

    def take(self) -> bytes:
        """Returns the bytes to send to the peer, and keeps them no more."""
        return self._outgoing.read()


def _certificate_of(tls: ssl.SSLObject) -> ClientCertificate | None:
    shown = tls.getpeercert()  # empty where no certificate was asked for, or it was not verified
    if not shown:
        return None
    names = shown.get("subjectAltName", ())
    assert isinstance(names, tuple)

    def of_kind(wanted: str) -> tuple[str, ...]:
        return tuple(str(name) for kind, name in names if kind == wanted)

    ends = shown["notAfter"]
    assert isinstance(ends, str)
    return ClientCertificate(
        float(ssl.cert_time_to_seconds(ends)),
        uris=of_kind("URI"),
        dns_names=of_kind("DNS"),
        emails=of_kind("email"),
    )
