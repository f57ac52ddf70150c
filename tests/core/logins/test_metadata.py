"""Documents of servers: what is read of them, and what is left out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from isthmus.core.logins.metadata import (
    ISSUERS_MAX,
    SCOPES_MAX,
    is_issuer,
    is_requestable,
    read_authorization_server,
    read_object,
    read_protected_resource,
)
from login_world import ISSUER, URL, server_metadata


def server(**changes: Any) -> Any:
    return read_authorization_server(msgspec.json.encode({**server_metadata(ISSUER), **changes}))


def test_so_many_authorization_servers_and_scopes_are_read() -> None:
    issuers = [f"https://as{number}.example" for number in range(ISSUERS_MAX + 1)]
    scopes = [f"s{number}" for number in range(SCOPES_MAX + 1)]
    document = {"resource": URL, "authorization_servers": issuers, "scopes_supported": scopes}
    found = read_protected_resource(msgspec.json.encode(document))
    assert found is not None
    assert found.issuers == tuple(issuers[:ISSUERS_MAX])
    assert found.scopes == tuple(scopes[:SCOPES_MAX])


@pytest.mark.parametrize("value", [None, "S256", {"S256": True}, ["S256", 1], [["S256"]]])
def test_a_list_of_other_values_is_none(value: Any) -> None:
    assert server(code_challenge_methods_supported=value).challenge_methods is None


@pytest.mark.parametrize("value", [1, "true", [True], None])
def test_only_true_is_true(value: Any) -> None:
    found = server(client_id_metadata_document_supported=value, authorization_response_iss_parameter_supported=value)
    assert (found.takes_documents, found.says_issuer) == (False, False)


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"{", b"\xff{}", b'{"a":"\xff"}', b"[" * 100_000])
def test_what_is_no_object_is_none(body: bytes) -> None:
    assert read_object(body) is None


@pytest.mark.parametrize(
    ("url", "requestable", "issuer"),
    [
        ("https://a.example", True, True),
        ("https://a.example/b?c", True, False),
        ("http://127.0.0.1:1/b", True, True),
        ("http://[::1]/b", True, True),
        ("http://localhost", True, True),
        ("http://localhost.example", False, False),
        ("http://10.0.0.1", False, False),
        ("ws://localhost", False, False),
        ("https://a.example#", False, False),
        ("https://user@a.example", False, False),
        ("https://a.example/ b", False, False),
        ("https://ä.example", False, False),
        (None, False, False),
    ],
)
def test_urls_that_a_document_may_name(url: Any, requestable: bool, issuer: bool) -> None:
    assert is_requestable(url) is requestable
    assert url is None or is_issuer(url) is issuer
