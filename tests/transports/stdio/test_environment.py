"""The variables of our environment that a server's process gets."""

from __future__ import annotations

import pytest
from isthmus.transports.stdio.server_process import ChildSpec, environment_for

OURS = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "TZ": "UTC", "SECRET": "s", "LCX": "1"}


@pytest.mark.parametrize(
    "spec, expected",
    [
        (ChildSpec(("x",)), {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "TZ": "UTC"}),
        (ChildSpec(("x",), env={"PATH": "/p", "A": "1"}, inherit_env=True), OURS | {"PATH": "/p", "A": "1"}),
    ],
)
def test_a_child_inherits_what_is_harmless(spec: ChildSpec, expected: dict[str, str]) -> None:
    assert environment_for(spec, OURS) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "http://proxy:3128"),
        ("https_proxy", "http://me:password@proxy:3128"),
        ("ALL_PROXY", "socks5://proxy"),
        ("no_proxy", "localhost"),
        ("SSL_CERT_FILE", "/ca.pem"),
        ("NODE_EXTRA_CA_CERTS", "/ca.pem"),
        ("npm_config_registry", "https://registry.test/"),
        ("NPM_CONFIG_STRICT_SSL", "false"),
        ("npm_config_strict-ssl", "false"),
        ("npm_config_https_proxy", "http://me:password@proxy:3128"),
        ("UV_INDEX", "https://one.test/simple https://two.test/simple"),
        ("PIP_INDEX_URL", "https://index.test/simple"),
        ("PIP_PROXY", "http://me:password@proxy:3128"),
    ],
)
def test_a_child_inherits_what_the_network_takes(name: str, value: str) -> None:
    """The server's own environment takes precedence."""
    assert environment_for(ChildSpec(("x",)), {name: value}) == {name: value}
    assert environment_for(ChildSpec(("x",), env={name: ""}), {name: value}) == {name: ""}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("npm_config__authToken", "s"),
        ("NPM_CONFIG__AUTH", "s"),
        ("npm_config_//registry.test/:_authToken", "s"),
        ("npm_config_otp", "1"),
        ("npm_config_key", "s"),
        ("npm_config_", "s"),
        ("NPM_TOKEN", "s"),
        ("NODE_AUTH_TOKEN", "s"),
        ("UV_INDEX_INTERNAL_PASSWORD", "s"),
        ("UV_INDEX_INTERNAL_USERNAME", "s"),
        ("UV_PUBLISH_TOKEN", "s"),
        ("UV_INDEX_URL", "https://me:token@index.test/simple"),
        ("UV_INDEX", "https://index.test/simple https://token@index.test/simple"),
        ("PIP_EXTRA_INDEX_URL", "https://token@index.test/simple"),
        ("npm_config_registry", "https://me:token@registry.test/"),
        ("Http_Proxy", "http://proxy"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("DOCKER_AUTH_CONFIG", "s"),
    ],
)
def test_a_child_inherits_no_credentials_of_registries(name: str, value: str) -> None:
    assert environment_for(ChildSpec(("x",)), {name: value}) == {}
