"""Tests of explanations of failed TLS set-up, and of replies that are not HTTP/1.1."""

from __future__ import annotations

import pytest
from isthmus.core.base.setting_names import OPTIONS
from isthmus.core.wire.http.foreign_reply import explain_foreign, is_http2, may_become_http2
from isthmus.core.wire.tls_faults import REASONS, Trust, explain_certificate, explain_handshake, reason_of


@pytest.mark.parametrize(
    ("code", "message", "trust", "words"),
    [
        (18, "self-signed certificate", Trust(), ["upstream.ca_file", "SSL_CERT_FILE", "self-signed certificate"]),
        (20, "unable to get local issuer certificate", Trust(names=OPTIONS), ["--ca-file or the", "; --insecure goes"]),
        (19, "self-signed certificate in certificate chain", Trust(missing="/x.pem"), ["names /x.pem", "not there"]),
        (21, "unable to verify the first certificate", Trust("/c.pem"), ["in /c.pem", "upstream.verify_tls: false"]),
        (10, "certificate has expired", Trust(), ["of a.example:443 has expired", "renew", "clock"]),
        (9, "certificate is not yet valid", Trust(), ["is not valid yet", "clock"]),
        (62, "Hostname mismatch, certificate is not valid for 'a.example'.", Trust(), ["other names", "in the URL"]),
        (64, "IP address mismatch, certificate is not valid for '::1'.", Trust(), ["other names", "in the URL"]),
        (23, "certificate revoked", Trust(), ["refused: certificate revoked", "replace it"]),
    ],
)
def test_certificates_that_are_refused(code: int, message: str, trust: Trust, words: list[str]) -> None:
    said = explain_certificate("a.example", 443, code, message, trust)
    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize(("scheme", "plain"), [("https", "http"), ("wss", "ws")])
def test_each_reason_says_what_mends_it(scheme: str, plain: str) -> None:
    reasons = [reason for reasons, _ in REASONS for reason in reasons]
    assert len(reasons) == len(set(reasons))
    for reason in (*reasons, "", "SOMETHING_NEW"):
        said = explain_handshake("a.example", 443, scheme, reason)
        assert said.startswith("no TLS with a.example:443: ") and reason in said and "; " in said and "{" not in said
    assert f"write {plain}:// in its URL" in explain_handshake("h", 1, scheme, "WRONG_VERSION_NUMBER")
    assert f"write {plain}:// in its URL" in explain_handshake("h", 1, scheme, "")
    assert "HTTP/2 alone" in explain_handshake("h", 1, scheme, "TLSV1_ALERT_NO_APPLICATION_PROTOCOL")


@pytest.mark.parametrize(
    ("data", "scheme", "words"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", "http", "https://"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "ws", "wss://"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "https", ""),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "https", "HTTP/2 alone"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18, "http", "HTTP/2 alone"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00", "http", ""),
        (b"HTTP/1.1 200 OK\r\n", "http", ""),
        (b"", "http", ""),
    ],
)
def test_replies_that_are_no_http_1(data: bytes, scheme: str, words: str) -> None:
    said = explain_foreign(data, scheme)
    assert words in said and bool(said) == bool(words)


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("NO_SHARED_CIPHER", "[SSL: NO_SHARED_CIPHER] no shared cipher (_ssl.c:1000)", "NO_SHARED_CIPHER"),
        (None, "[SSL] tlsv1 alert no application protocol (_ssl.c:1006)", "TLSV1_ALERT_NO_APPLICATION_PROTOCOL"),
        (None, "something else", "something else"),
    ],
)
def test_a_reason_that_python_does_not_know_is_read_from_the_message(
    reason: str | None, message: str, expected: str
) -> None:
    assert reason_of(reason, message) == expected


def test_a_server_that_refused_both_versions_of_http_is_not_told_to_enable_one() -> None:
    said = explain_handshake("h", 1, "https", "TLSV1_ALERT_NO_APPLICATION_PROTOCOL", offers_http2=True)
    assert "HTTP/2 as well as HTTP/1.1" in said and "enable" not in said
    assert explain_handshake("h", 1, "https", "", offers_http2=True) == explain_handshake("h", 1, "https", "")


def test_without_its_package_http_2_is_told_how_to_install_it() -> None:
    data = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"
    assert "pip install 'isthmus[http2]'" in explain_foreign(data, "http", has_http2=False)
    assert "pip install" not in explain_foreign(data, "http")


def test_the_beginning_of_a_frame_of_settings_is_waited_for() -> None:
    data = b"\x00\x01\x12\x04\x00\x00\x00\x00\x00"
    assert [is_http2(data[:size]) for size in range(10)] == [False] * 9 + [True]
    assert [may_become_http2(data[:size]) for size in range(10)] == [False] + [True] * 8 + [False]
    for other in (b"\x01", b"\x00\x00\x12\x05", b"HTTP", b"\x00\x00\x12\x04\x01"):
        assert not may_become_http2(other)
