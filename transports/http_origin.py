"""Where the connections to one upstream origin lead, and why one may not come about."""

from __future__ import annotations

import socket
import ssl
from typing import Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from .http_endpoint import Address, Endpoint

LOST: Final = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.BusyResourceError,  # the TLS layer wants to write from both tasks at once
    OSError,  # TimeoutError and ssl.SSLError among them
)
"""What it looks like when a connection is gone, or does not come about."""


class Origin:
    """Connects to the host of an endpoint."""

    def __init__(self, endpoint: Endpoint, address: Address, *, connect_timeout_s: float) -> None:
        self.address = address
        self.connect_timeout_s = connect_timeout_s
        self.ca_file = endpoint.ca_file
        self._is_verified = endpoint.verify_tls
        self._tls: ssl.SSLContext | None = None

    async def connect(self) -> ByteStream:
        """A new connection.

        Raises:
            Exception: none came about; `describe_failure` says why. Nothing is left of it.
        """
        tls = self.tls()
        with anyio.fail_after(self.connect_timeout_s):
            stream = await anyio.connect_tcp(self.address.host, self.address.port)
            if tls is None:
                return stream
            try:
                # Not standard_compatible: HTTP's framing tells a cut from an end, and few servers say goodbye.
                return await TLSStream.wrap(
                    stream, hostname=self.address.host, ssl_context=tls, standard_compatible=False
                )
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise

    def tls(self) -> ssl.SSLContext | None:
        """How to secure a connection to this origin; None where it is not.

        Raises:
            OSError: the file of certificate authorities cannot be read or used.
        """
        if self._tls is None and self.address.scheme in ("https", "wss"):
            context = ssl.create_default_context(cafile=self.ca_file)
            context.set_alpn_protocols(["http/1.1"])
            if not self._is_verified:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._tls = context
        return self._tls

    def describe_failure(self, error: Exception) -> str:
        """Why no connection came about, and what to look at."""
        cause: BaseException | None = error
        while isinstance(cause, Exception):
            error = cause
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error.__cause__
        where = f"{self.address.host}:{self.address.port}"
        match error:
            case ssl.SSLCertVerificationError():
                reason = f"{where} did not prove its identity: {error.verify_message}"
                return f"{reason}; check the host name, or name the authority in ca_file"
            case ssl.SSLError():
                return f"no TLS with {where}: {error.reason or error}; is it an http:// server?"
            case socket.gaierror():
                return f"cannot resolve {self.address.host}: {error.strerror}; is the host name right?"
            case TimeoutError():
                return f"no connection to {where} within {self.connect_timeout_s:g} s"
            case ConnectionRefusedError():
                return f"connection refused by {where}; is the server running?"
            case OSError():
                return f"no connection to {where}: {error.strerror or error}"
        return f"{where} closed the connection during set-up; does it speak {self.address.scheme}?"
