"""Tests of configurations of rusted-tools: they mean here what they mean there, and unsupported settings are named."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.governance_settings import Pins
from isthmus.app.config.load import loads
from isthmus.app.config.settings import Core, Server, Settings, Storage, ToolFilter, Upstream

WHOLE = """
[http]
host = "0.0.0.0"
port = 8080

[logging]
level = "trace"
format = "json"

[mcp]
request_timeout_secs = 45
restart_delay_ms = 500

[[endpoints]]
name = "time"
type = "local"
command = "docker"
args = ["run", "--rm", "-i", "mcp/time"]
auto_start = true
env = {ZONE = "${ZONE:-UTC}"}
tools = {include = ["get_*", "convert_time"], exclude = ["get_secret"]}

[[endpoints]]
name = "learn"
type = "remote"
url = "https://learn.example/api/mcp"
auto_start = false
"""


def read(text: str) -> Settings:
    return loads(text, "toml", "/etc", {})


def endpoint(*lines: str) -> str:
    return "\n".join(["[http]", "[[endpoints]]", 'name = "a"', *lines])


LOCAL = ('type = "local"', 'command = "x"')


def test_a_whole_file_is_read() -> None:
    assert read(WHOLE) == Settings(
        core=Core(host="0.0.0.0", port=8080, log_level="debug"),
        storage=Storage(root="/etc/data"),
        pins=Pins(file="/etc/isthmus.lock"),
        servers=(
            Server(
                id="time",
                upstream=Upstream(command=("docker", "run", "--rm", "-i", "mcp/time"), env={"ZONE": "UTC"}),
                share="concurrent",
                tools=ToolFilter(include=("get_*", "convert_time"), exclude=("get_secret",)),
                call_timeout_seconds=45,
            ),
            Server(
                id="learn",
                upstream=Upstream(url="https://learn.example/api/mcp", transport="auto"),
                call_timeout_seconds=45,
            ),
        ),
    )


def test_what_is_left_out_has_the_default_it_has_there() -> None:
    settings = read(endpoint(*LOCAL))
    assert (settings.core.host, settings.core.port, settings.core.log_level) == ("127.0.0.1", 3000, "info")
    (server,) = settings.servers
    assert server == Server(id="a", upstream=Upstream(command=("x",)), share="concurrent")


@pytest.mark.parametrize(
    "there, here", [("trace", "debug"), ("debug", "debug"), ("info", "info"), ("warn", "warning"), ("error", "error")]
)
def test_each_level_has_its_like(there: str, here: str) -> None:
    assert read(f'[logging]\nlevel = "{there}"\n{endpoint(*LOCAL)}').core.log_level == here


def test_keys_without_a_meaning_here_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="isthmus"):
        read(WHOLE)
        lines = [record.getMessage() for record in caplog.records]
        assert [line.partition(" is not used: ")[0] for line in lines] == [
            "logging.format",
            "mcp.restart_delay_ms",
            "endpoints[0].auto_start (and 1 more)",
        ]
        caplog.clear()
        read(endpoint(*LOCAL))
        assert not caplog.records


@pytest.mark.parametrize(
    "text, complaint",
    [
        (endpoint(*LOCAL) + "\n" + endpoint(*LOCAL).removeprefix("[http]"), "endpoints[1].name: got the id 'a'"),
        (endpoint(*LOCAL).replace('"a"', '"a/b"'), "endpoints[0].name: got the id 'a/b'"),
        (endpoint('type = "local"'), "endpoints[0].command: missing"),
        (endpoint('type = "local"', 'command = ""'), "endpoints[0].command: got"),
        (endpoint('type = "other"'), 'endpoints[0].type: got "other", expected one of local, remote'),
        (endpoint('type = "remote"', 'url = "ftp://h/"'), 'endpoints[0].url: got "ftp://h/", expected'),
        (endpoint('type = "remote"', 'url = "http://h/"', 'command = "x"'), "endpoints[0].command: unknown key"),
        (endpoint(*LOCAL, "argz = []"), "endpoints[0].argz: unknown key; did you mean args?"),
        (endpoint(*LOCAL, 'tools = {include = [""]}'), "endpoints[0].tools.include[0]: got"),
        (endpoint(*LOCAL) + "\n[mcp]\nrequest_timeout_secs = 4", "mcp.request_timeout_secs: got 4, expected"),
        (endpoint(*LOCAL) + '\n[logging]\nlevel = "loud"', 'logging.level: got "loud", expected one of trace, debug'),
        (endpoint(*LOCAL).replace("[http]", "[http]\nport = 70000"), "http.port: got 70000, expected"),
        (endpoint(*LOCAL).replace("[http]", '[http]\nhost = ""'), 'http.host: got "", expected'),
        ("[http]\n", "endpoints: no server here"),
        ("[http]\n[[servers]]\nid = 'a'", "servers: unknown key, expected one of http, logging, mcp, endpoints"),
    ],
)
def test_faults_are_named_as_they_stand_there(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(text)
    assert complaint in raised.value.message


def test_the_page_s_example_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [server.id for server in read(example).servers] == ["time", "learn"]


def test_the_form_is_of_toml_only() -> None:
    with pytest.raises(ConfigError, match="http: unknown key"):
        loads("{http: {}, endpoints: []}", "yaml", "/etc", {})
