"""Tests of the part of a configuration that says who may call."""

from __future__ import annotations

import hashlib

import pytest
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.access import MANAGEMENT, shared_address, to_gate_settings, who_may
from isthmus.app.config.access_settings import Auth
from isthmus.app.config.load import loads
from isthmus.app.config.plan import affinity_of
from isthmus.app.config.settings import Core, Settings
from isthmus.core.base.plan import Affinity

SERVER = "servers: [{id: a, upstream: {url: 'http://h/mcp'}}]\n"
HASH = hashlib.sha256(b"x").hexdigest()
TOKEN = f"{{name: ci, sha256: {HASH}}}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "auth: {tokens: [{name: ci, sha256: secret}]}",
            "auth.tokens[0].sha256: got another text, expected 64",
        ),
        (f"auth: {{tokens: [{TOKEN}, {TOKEN}]}}", "auth.tokens[1].name: got 'ci', expected a name of its own"),
        (f"auth: {{tokens: [{TOKEN}, {TOKEN.replace('ci', 'cd')}]}}", "auth.tokens[1].sha256"),
        (f"auth: {{tokens: [{{name: ci, sha256: {HASH}, expires: soon}}]}}", "auth.tokens[0].expires: got 'soon', exp"),
        ("auth: {proxy: {peers: [nginx]}}", "auth.proxy.peers[0]: got 'nginx', expected an address, a network"),
        ("auth: {proxy: {peers: [unix], user: 'X User'}}", "auth.proxy.user"),
        ("core: {trusted_proxies: [unix, 10.0.0.1/8]}", "core.trusted_proxies[1]: got '10.0.0.1/8', expected an addr"),
        ("auth: {issuers: [{url: idp}]}", "auth.issuers[0].url"),
        ("auth: {issuers: [{url: 'https://i'}, {url: 'https://i'}]}", "auth.issuers[1].url"),
        (
            "auth: {issuers: [{url: 'https://i', algorithms: [HS256]}]}",
            "auth.issuers[0].algorithms: got 'HS256'",
        ),
        ("auth: {issuers: [{url: 'https://i', jwks_url: keys}]}", "auth.issuers[0].jwks_url"),
        (
            "auth: {client_certificates: {ca_file: ca.pem}}",
            "auth.client_certificates: got keys with values, expected core.tls beside it: clients show certificates",
        ),
        (
            "auth: {client_certificates: {ca_file: ca.pem, groups: {admin: ['*.example.com']}}}",
            "auth.client_certificates.groups.admin[0]: got '*.example.com', expected a URI, a DNS name in lower case",
        ),
        (
            "auth: {client_certificates: {ca_file: ca.pem, groups: {admin: [a@example.com, CI.example.com]}}}",
            "auth.client_certificates.groups.admin[1]: got 'CI.example.com', expected a URI, a DNS name in lower case",
        ),
        ("auth: {client_certificates: {ca_file: '~/ca.pem'}}", "auth.client_certificates.ca_file"),
        ("core: {tls: {certificate: a.pem}}", "core.tls"),
        ("core: {tls: {certificate: '~/a.pem', key: a.key}}", "core.tls.certificate"),
        ("core: {tls: {certificate: a.pem, key: ' '}}", "core.tls.key"),
        (
            "core: {port: null, unix_socket: /s, tls: {certificate: a.pem, key: a.key}}",
            "core.tls: got keys with values, expected a core.port beside it: unix_socket has no TLS",
        ),
        (
            "auth: {issuers: [{url: 'https://i', introspect: &i {client_id: a, client_secret: s3cret}}, "
            "{url: 'https://j', introspect: *i}]}",
            "auth.issuers: got introspect at several, expected one issuer with it at most",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(SERVER + text, "yaml", "/", {})
    assert said in caught.value.message
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("upstream: {url: 'http://h/mcp', pass_headers: [authorization]}", "servers[0].upstream.pass_headers"),
        (
            "upstream: {url: 'http://h/mcp'}, inspect: false, forwarding: {allow: [Authorization]}",
            "servers[0].forwarding.allow",
        ),
        (
            "upstream: {url: 'http://h/mcp'}, inspect: false, access: {tools: {x: {scope: [a]}}}",
            "servers[0].access: got keys with values, expected scope and groups alone",
        ),
    ],
)
def test_a_token_for_the_gateway_stays_there_and_rules_can_be_kept(server: str, said: str) -> None:
    """2026-07-28 basic/authorization, "Token Handling"."""
    with pytest.raises(ConfigError) as caught:
        loads(f"servers: [{{id: a, {server}}}]\nauth: {{tokens: [{TOKEN}]}}", "yaml", "/", {})
    assert said in caught.value.message


def test_another_header_for_the_servers_token_is_taken() -> None:
    passed = "upstream: {url: 'http://h/mcp', pass_headers: {X-Upstream-Authorization: Authorization}}"
    assert loads(f"servers: [{{id: a, {passed}}}]\nauth: {{tokens: [{TOKEN}]}}", "yaml", "/", {}).auth.tokens


def test_rules_need_callers_who_are_recognised() -> None:
    rules = "access: {tools: {x: {scope: [a]}}}"
    text = f"servers: [{{id: a, upstream: {{url: 'http://h/mcp'}}, {rules}}}]\n"
    with pytest.raises(ConfigError, match=r"servers\[0\].access: got .*, expected a way to recognise callers"):
        loads(text, "yaml", "/", {})
    assert loads(f"{text}auth: {{unix_peers: true}}", "yaml", "/", {}).servers[0].access.tools


@pytest.mark.parametrize(
    ("core", "auth", "is_open"),
    [
        (Core(), Auth(), False),
        (Core(host="0.0.0.0"), Auth(), True),
        (Core(public_base_url="https://gate.example"), Auth(), True),
        (Core(host="0.0.0.0"), Auth(anonymous="allow"), False),
        (Core(host="0.0.0.0"), Auth(anonymous="deny"), False),
        (Core(host="0.0.0.0"), Auth(unix_peers=True), False),
    ],
)
def test_who_may_must_be_said_before_other_machines_reach_it(core: Core, auth: Auth, is_open: bool) -> None:
    said = who_may(Settings(core=core, auth=auth))
    assert bool(said) is is_open
    assert not is_open or "set auth.tokens (isthmus token new NAME makes one)" in said


def test_the_token_of_management_is_one_of_the_group_admin() -> None:
    text = f"core: {{management: {{token: abc}}}}\nauth: {{tokens: [{TOKEN.replace('ci', MANAGEMENT)}]}}"
    gate = to_gate_settings(loads(SERVER + text, "yaml", "/", {}))
    assert gate is not None
    own, management = gate.tokens
    assert own.name != management.name
    assert management.sha256 == hashlib.sha256(b"abc").digest()
    assert management.groups == {"admin"}


def test_without_auth_nobody_is_asked() -> None:
    assert to_gate_settings(Settings()) is None
    assert to_gate_settings(Settings(auth=Auth(anonymous="allow"))) is None
    denying = to_gate_settings(Settings(auth=Auth(anonymous="deny")))
    assert denying is not None
    assert not denying.allows_anonymous


def test_requests_of_one_principal_share_a_session_also_beyond_this_machine() -> None:
    open_core = Core(host="0.0.0.0")
    assert affinity_of(Settings(core=open_core, auth=Auth(anonymous="allow"))) is Affinity.REQUEST
    assert affinity_of(Settings(core=open_core, auth=Auth(unix_peers=True))) is Affinity.SHARED
    some = Auth(unix_peers=True, anonymous="allow")
    assert affinity_of(Settings(core=open_core, auth=some)) is Affinity.REQUEST


def test_certificates_are_found_from_the_folder_of_the_configuration() -> None:
    text = (
        "core: {tls: {certificate: tls/a.pem, key: /k/a.key, key_password: '${PASSWORD}'}}\n"
        "auth: {client_certificates: {ca_file: ../ca.pem, groups: {admin: [a@b, 'urn:x'], robots: ['urn:x']}}}\n"
    )
    settings = loads(SERVER + text, "yaml", "/etc/isthmus", {"PASSWORD": "s3cret"})
    tls, clients = settings.core.tls, settings.auth.client_certificates
    assert tls is not None and clients is not None
    assert (tls.certificate, tls.key, tls.key_password) == ("/etc/isthmus/tls/a.pem", "/k/a.key", "s3cret")
    assert "s3cret" not in repr(settings)
    assert (clients.ca_file, clients.required) == ("/etc/ca.pem", False)
    gate = to_gate_settings(settings)
    assert gate is not None
    assert gate.certificates == {"a@b": frozenset({"admin"}), "urn:x": frozenset({"admin", "robots"})}


def test_check_warns_of_a_proxy_whose_address_all_anonymous_clients_have() -> None:
    public, anyone = Core(public_base_url="https://mcp.example.com"), Auth(anonymous="allow")
    assert "name its address in core.trusted_proxies" in shared_address(Settings(core=public, auth=anyone))
    trusting = Core(public_base_url="https://mcp.example.com", trusted_proxies=("10.0.0.1",))
    assert not shared_address(Settings(core=trusting, auth=anyone))
    assert not shared_address(Settings(core=public, auth=Auth(unix_peers=True)))
    assert not shared_address(Settings(core=Core(host="0.0.0.0"), auth=anyone))


def test_client_certificates_say_who_may_call() -> None:
    text = "core: {host: 0.0.0.0, tls: {certificate: a, key: a}}\nauth: {client_certificates: {ca_file: ca}}\n"
    settings = loads(SERVER + text, "yaml", "/", {})
    assert who_may(settings) == ""
    gate = to_gate_settings(settings)
    assert gate is not None
    assert (gate.certificates, gate.allows_anonymous) == ({}, False)
    assert to_gate_settings(loads(SERVER, "yaml", "/", {})) is None
