"""Explanations of failed TLS set-up with a server: what was seen, and what mends it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ..base.setting_names import KEYS, SettingNames

# Source: OpenSSL, include/openssl/x509_vfy.h: X509_V_ERR_*.
_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})  # no issuer, or self-signed, alone or at the end of the chain
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_NAMES: Final = frozenset({62, 63, 64})  # host name, email, IP address

ALPN_REFUSED: Final = frozenset({"TLSV1_ALERT_NO_APPLICATION_PROTOCOL", "NO_APPLICATION_PROTOCOL"})
"""Reasons of `ssl.SSLError`: the server speaks none of the protocols that it was offered. Source: RFC 7301, 3.2."""

REASONS: Final[tuple[tuple[frozenset[str], str], ...]] = (
    (
        frozenset(
            {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
            | {"UNKNOWN_PROTOCOL", "UNEXPECTED_RECORD"}
        ),
        "it answered, but not in TLS; if it speaks none, write {plain}:// in its URL",
    ),
    (
        ALPN_REFUSED,
        "it refused HTTP/1.1 (ALPN), so it most likely speaks HTTP/2 alone; "
        "enable HTTP/1.1 there, or put a reverse proxy that speaks both in front of it",
    ),
    (
        frozenset({"TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "WRONG_SSL_VERSION"}),
        "it has no version of TLS in common with this machine; enable TLS 1.2 or 1.3 there",
    ),
    (
        frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE"}),
        "it wants a certificate of its client, and none is ever sent; put a proxy that has one in between",
    ),
    (
        frozenset({"SSLV3_ALERT_HANDSHAKE_FAILURE", "NO_SHARED_CIPHER"}),
        "it has no cipher in common with this machine, or wants a certificate of its client, and none is ever sent; "
        "look at the server's settings of TLS",
    ),
    (
        frozenset({"TLSV1_UNRECOGNIZED_NAME", "TLSV1_ALERT_UNRECOGNIZED_NAME"}),
        "it has no certificate for {host}; use the name in the URL that the server goes by",
    ),
)
"""Reasons of `ssl.SSLError`, with their meaning and what mends them."""


class Trust(msgspec.Struct, frozen=True):
    """The authorities that a server's certificate was checked against.

    Attributes:
        ca_file: the file that a setting names; None: the system's, or those in SSL_CERT_FILE.
        missing: the file that SSL_CERT_FILE names, if it is not there.
        names: the names of the settings.
    """

    ca_file: str | None = None
    missing: str = ""
    names: SettingNames = KEYS


_MESSAGE: Final = re.compile(r"\[SSL\] ([^(]+?) \(")


def reason_of(reason: str | None, message: str) -> str:
    """Returns the reason of a failed set-up of TLS, as `REASONS` has it.

    Args:
        reason: `ssl.SSLError.reason`. None where Python does not know OpenSSL's number for it.
        message: the text of the error, which has OpenSSL's words for it.
    """
    if reason:
        return reason
    matched = _MESSAGE.match(message)
    return message if matched is None else matched[1].upper().replace(" ", "_")


def explain_certificate(host: str, port: int, code: int, message: str, trust: Trust) -> str:
    """Explains why a certificate was refused.

    Args:
        code: OpenSSL's verify_code.
        message: OpenSSL's words for it.
    """
    name = f"the certificate of {host}:{port}"
    if code == _EXPIRED:
        return f"{name} has expired; renew it at the server, or set this machine's clock right"
    if code == _NOT_YET_VALID:
        return f"{name} is not valid yet; set this machine's clock right, or replace it at the server"
    if code in _OTHER_NAMES:
        reason = f"{name} is for other names: {message.rstrip('.')}"
        return f"{reason}; write a name that it has in the URL, or get one for {host}{_without_check(trust)}"
    if code not in _UNTRUSTED:
        return f"{name} was refused: {message}; replace it at the server"
    by_name = f"{trust.names.ca_file} or the environment variable SSL_CERT_FILE"
    mend = f"name the PEM file of the authority that issued it in {by_name}"
    if trust.ca_file is not None:
        return f"{name} is not of an authority in {trust.ca_file}: {message}; {mend}{_without_check(trust)}"
    unread = f"; now SSL_CERT_FILE names {trust.missing}, which is not there" if trust.missing else ""
    reason = f"{name} is not of an authority that this machine trusts: {message}; {mend}"
    return f"{reason}{_without_check(trust)}{unread}"


def _without_check(trust: Trust) -> str:
    unchecked = trust.names.unchecked
    return f"; {unchecked} goes without, and anybody on the way can then read and change all" if unchecked else ""


def explain_handshake(host: str, port: int, scheme: str, reason: str, *, offers_http2: bool = False) -> str:
    """Explains why there is no TLS with a server.

    Args:
        scheme: of the URL, https or wss.
        offers_http2: it was offered HTTP/2, after it had refused HTTP/1.1.
        reason: see `reason_of`, or any other words; empty: the server closed the connection.
    """
    plain = {"https": "http", "wss": "ws"}[scheme]
    start = f"no TLS with {host}:{port}"
    if not reason:
        return f"{start}: it closed the connection meanwhile; if it speaks no TLS, write {plain}:// in its URL"
    if offers_http2 and reason in ALPN_REFUSED:
        return f"{start}: it refused HTTP/2 as well as HTTP/1.1 (ALPN); ask who runs it what it speaks ({reason})"
    for reasons, meaning in REASONS:
        if reason in reasons:
            return f"{start}: {meaning.format(host=host, plain=plain)} ({reason})"
    return f"{start}: {reason}; ask who runs it"
