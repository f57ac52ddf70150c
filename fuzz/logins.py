"""Any text of servers and providers about logins is read within its bounds, and only URLs to be asked come out.

The first byte says what the rest is: challenges, metadata of a resource, metadata of an authorization server, a token
response, or a stored record. Accepted outcomes: nothing is read, `LoginFailed`; or what an independent rule allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from isthmus.core.logins.challenges import find_bearer, format_challenge, parse_challenges
from isthmus.core.logins.credentials import decode_record, encode_record
from isthmus.core.logins.metadata import (
    covers,
    is_issuer,
    issuer_metadata_urls,
    read_authorization_server,
    read_object,
    read_protected_resource,
    resource_metadata_urls,
)
from isthmus.core.logins.requests import LoginFailed
from isthmus.core.logins.token_requests import read_tokens

URL: Final = "https://mcp.example/mcp"


def check_challenges(data: bytes) -> None:
    text = data.decode("latin-1")
    for challenge in parse_challenges(text):
        assert re.fullmatch(r"[-!#$%&'*+.^_`|~0-9a-z]+", challenge.scheme)
        assert parse_challenges(format_challenge(challenge)) == [challenge]
    found = find_bearer([text])
    if found is not None and found.scope is not None:
        assert all(re.fullmatch(r"[!#-\[\]-~]+", scope) for scope in found.scope)


def check_resource(data: bytes) -> None:
    found = read_protected_resource(data)
    if found is None:
        return
    if covers(found.resource, URL):
        assert urlsplit(found.resource).hostname == "mcp.example"
        for url in resource_metadata_urls(found.resource):
            check_url(url)
    for issuer in filter(is_issuer, found.issuers):
        for url in issuer_metadata_urls(issuer):
            check_url(url)


def check_server(data: bytes) -> None:
    found = read_authorization_server(data)
    if found is not None:
        endpoints = (
            found.token_endpoint,
            found.authorization_endpoint,
            found.registration_endpoint,
            found.device_endpoint,
        )
        assert endpoints[0]
        for url in filter(None, endpoints):
            check_url(url)


def check_url(url: str) -> None:
    parts = urlsplit(url)
    assert parts.scheme.lower() == "https" or (parts.scheme.lower(), is_loopback(parts.hostname or "")) == (
        "http",
        True,
    )
    assert "@" not in parts.netloc
    assert not parts.fragment


def is_loopback(host: str) -> bool:
    return host.rstrip(".") == "localhost" or host.startswith("127.") or host.endswith(":1") or ":127." in host


def check_tokens(data: bytes) -> None:
    found = read_object(data)
    if found is not None:
        tokens = read_tokens(found, URL)
        assert re.fullmatch(r"[!-~]+", tokens.access_token)
        assert re.fullmatch(r"[!-~]*", tokens.refresh_token)
        assert tokens.access_token not in repr(tokens) or len(tokens.access_token) < 16
        assert tokens.expires_in_s is None or tokens.expires_in_s >= 0


def check_record(data: bytes) -> None:
    found = decode_record(data)
    if found is not None:
        assert decode_record(encode_record(found)) == found


CHECKS: Final[tuple[Callable[[bytes], None], ...]] = (
    check_challenges,
    check_resource,
    check_server,
    check_tokens,
    check_record,
)


def test_one_input(data: bytes) -> None:
    try:
        CHECKS[(data[0] if data else 0) % len(CHECKS)](data[1:])
    except LoginFailed as error:
        assert str(error).isprintable()
