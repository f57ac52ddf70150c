"""Explanations of failed TLS handshakes with clients: what was seen, and what is right."""

from __future__ import annotations

from typing import Final

_NOT_TLS: Final = "what it sent is not TLS"
_TOO_OLD: Final = "it has no version of TLS or cipher in common with this listener, which needs TLS 1.2 or 1.3"
_NOT_TRUSTED: Final = "it does not trust the certificate of this listener"

# Reasons of `ssl.SSLError`. Source: OpenSSL, include/openssl/sslerr.h.
_REASONS: Final[dict[str, str]] = {
    "HTTP_REQUEST": "it spoke plain HTTP, expected https:// in its URL",
    "HTTPS_PROXY_REQUEST": "it took this listener for a proxy",
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "UNKNOWN_PROTOCOL": _NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "UNEXPECTED_MESSAGE": _NOT_TLS,
    "UNSUPPORTED_PROTOCOL": _TOO_OLD,
    "NO_SHARED_CIPHER": _TOO_OLD,
    "TLSV1_ALERT_PROTOCOL_VERSION": _TOO_OLD,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _TOO_OLD,
    "TLSV1_ALERT_UNKNOWN_CA": _NOT_TRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": _NOT_TRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NOT_TRUSTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_NOT_TRUSTED}, which has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has shown no certificate, expected one of an authority in "
    "auth.client_certificates.ca_file",
}


def explain_handshake(reason: str, verification: str = "") -> str:
    """Returns why a handshake failed.

    Args:
        reason: that of `ssl.SSLError`; "" if it has none.
        verification: what is wrong with the client's certificate; "" if that is not the reason.
    """
    if verification:
        return f"its certificate is refused: {verification}"
    return _REASONS.get(reason) or (reason.replace("_", " ").lower() if reason else "the handshake failed")
