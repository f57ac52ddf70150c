"""Tests of the keys of `telemetry.audit`: what is accepted, and what a refusal says."""

from __future__ import annotations

import pytest
from each_row import each_row
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.audit_settings import Audit
from isthmus.app.config.load import loads

SERVERS = "servers:\n  - {id: a, upstream: {command: [x]}}\n"


def read(audit: str, servers: str = SERVERS) -> Audit | None:
    return loads(f"telemetry: {{audit: {audit}}}\n{servers}", "yaml", "/etc/isthmus", {}).telemetry.audit


def test_a_file_is_relative_to_that_of_the_configuration() -> None:
    assert read("{file: log/audit.jsonl}") == Audit(file="/etc/isthmus/log/audit.jsonl")
    assert read("{file: /var/log/audit.jsonl, arguments: full, on_failure: refuse}") == Audit(
        file="/var/log/audit.jsonl", arguments="full", on_failure="refuse"
    )
    assert read("{syslog: 'unix:/dev/log', arguments: never}") == Audit(syslog="unix:/dev/log", arguments="never")
    assert read("null") is None


REFUSED = {
    "{}": "telemetry.audit: got neither, expected file or syslog, one of them; for example file: /var/log",
    "{file: x, syslog: 'udp://h:514'}": "telemetry.audit: got both, expected file or syslog, one of them",
    "{file: ''}": 'telemetry.audit.file: got "", expected the path of a file or folder',
    "{syslog: /dev/log}": 'telemetry.audit.syslog: got "/dev/log", expected udp://HOST:PORT, tcp://HOST:PORT, or unix:',
    "{syslog: 'udp://h:514', on_failure: refuse}": (
        'telemetry.audit.on_failure: got "refuse", expected it beside file only: nobody tells whether a syslog server'
    ),
    "{file: x, arguments: values}": 'telemetry.audit.arguments: got "values", expected one of',
    "{path: x}": "telemetry.audit.path: unknown key",
}


@each_row("audit, expected", REFUSED.items())
def test_a_refusal_names_the_key_and_what_would_be_right(audit: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(audit)
    assert expected in refused.value.message


def test_requests_that_pass_unread_cannot_have_records() -> None:
    transparent = "servers:\n  - {id: a, upstream: {url: 'http://h/mcp'}, inspect: false}\n"
    assert read("{file: x}", transparent) is not None
    with pytest.raises(ConfigError, match="requests that pass unread have no record"):
        read("{file: x, on_failure: refuse}", transparent)
