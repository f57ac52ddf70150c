"""Tests of which IP addresses are those of the public internet."""

from __future__ import annotations

import ipaddress

import pytest
from each_row import each_row
from isthmus.core.wire.http.public_addresses import explain_address, is_loopback_name


@each_row(
    ("text", "kind"),
    [
        ("93.184.216.34", ""),
        ("2606:4700::1111", ""),
        ("64:ff9b::5db8:d822", ""),
        ("2002:5db8:d822::1", ""),
        ("127.0.0.1", "a loopback address"),
        ("127.255.0.9", "a loopback address"),
        ("::1", "a loopback address"),
        ("0.0.0.0", "the unspecified address"),
        ("::", "the unspecified address"),
        ("10.0.0.1", "a private address"),
        ("172.16.3.4", "a private address"),
        ("192.168.1.1", "a private address"),
        ("100.64.0.1", "a private address"),
        ("0.1.2.3", "a private address"),
        ("240.0.0.1", "a private address"),
        ("255.255.255.255", "a private address"),
        ("fd00::1", "a private address"),
        ("fec0::1", "a private address"),
        ("2001:db8::1", "a private address"),
        ("64:ff9b:1::7f00:1", "a private address"),
        ("169.254.169.254", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("224.0.0.1", "a multicast address"),
        ("233.252.0.1", "a multicast address"),
        ("ff02::1", "a multicast address"),
        ("ff0e::1", "a multicast address"),
        ("::ffff:127.0.0.1", "an IPv4-mapped address"),
        ("::ffff:93.184.216.34", "an IPv4-mapped address"),
        ("64:ff9b::7f00:1", "a loopback address inside an IPv6 address"),
        ("64:ff9b::a9fe:a9fe", "a link-local address inside an IPv6 address"),
        ("::7f00:1", "a loopback address inside an IPv6 address"),
        ("2002:a00:1::1", "a private address inside an IPv6 address"),
    ],
)
def test_kinds_of_addresses(text: str, kind: str) -> None:
    assert explain_address(ipaddress.ip_address(text)) == kind


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("LocalHost.", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("127.1", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_names_of_this_machine(host: str, is_loopback: bool) -> None:
    assert is_loopback_name(host) is is_loopback
