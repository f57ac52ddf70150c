"""Tests of what `connect-info` prints: each client's own form is read as the URL and the name that it is about."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml
from isthmus.app.commands.client_entries import PLACEHOLDER, TARGETS, Endpoint, command_line, file_of, snippet
from isthmus.app.config.dialects.clients import CLIENTS
from isthmus.app.config.dialects.surroundings import Surroundings
from isthmus.app.config.load import Source

URL = "https://here.test:8443/mcp/notes.v1"
READ = {target.title for target in TARGETS.values()} & {client.title for client in CLIENTS}


@pytest.mark.parametrize("asks", [False, True], ids=["open", "token"])
@pytest.mark.parametrize("client", TARGETS)
def test_what_is_printed_is_read_as_that_url_and_name(client: str, asks: bool) -> None:
    target = TARGETS[client]
    text = snippet(target, Endpoint("notes.v1", URL, asks))
    assert (PLACEHOLDER in text) is asks
    source = Source(text, target.ending, Surroundings(f"/home/ann/{file_of(target).split()[0].strip('~/,')}", {}))
    if target.title in READ and not target.files[0].startswith("librechat"):
        assert source.title == target.title
    (server,) = source.settings().servers
    assert server.id == "notes.v1"
    upstream = server.upstream
    if upstream.command is None:
        assert upstream.url == URL
        assert upstream.headers == ({"Authorization": f"Bearer {PLACEHOLDER}"} if asks else {})
    else:
        assert client in ("claude-desktop", "mcp-remote")
        assert URL in upstream.command
        assert any(word.endswith(f"Bearer {PLACEHOLDER}") for word in upstream.command) is asks


def test_most_clients_are_known_by_their_files() -> None:
    assert len(READ) >= 12


def test_a_name_is_quoted_where_it_must_be() -> None:
    to = Endpoint("my server's", URL, True)
    words = shlex.split(command_line(TARGETS["claude-code"], to))
    assert words[-4:] == [to.name, URL, "--header", f"Authorization: Bearer {PLACEHOLDER}"]
    assert '[mcp_servers."my server\'s"]' in snippet(TARGETS["codex"], to)
    assert json.loads(snippet(TARGETS["vscode"], to))["servers"][to.name]["type"] == "http"


@pytest.mark.parametrize("asks", [False, True], ids=["open", "token"])
@pytest.mark.parametrize("client", ["claude-code", "gemini", "copilot", "codex"])
def test_a_command_adds_the_same_server_as_the_snippet(client: str, asks: bool) -> None:
    words = shlex.split(command_line(TARGETS[client], Endpoint("notes", URL, asks)))
    assert words.index("notes") < words.index(URL)
    if client == "codex":  # which takes no header
        assert words[4:] == ["--url", URL] + (["--bearer-token-env-var", "ISTHMUS_TOKEN"] if asks else [])
    else:
        assert words[words.index("--transport") + 1] == "http"
        assert words[-2:] == (["--header", f"Authorization: Bearer {PLACEHOLDER}"] if asks else ["notes", URL])


def test_a_file_of_continue_has_the_keys_without_which_it_is_refused() -> None:
    document = yaml.safe_load(snippet(TARGETS["continue"], Endpoint("notes", URL)))
    assert list(document) == ["name", "version", "schema", "mcpServers"]
    assert all(isinstance(document[key], str) for key in ("name", "version", "schema"))


def test_each_system_has_its_own_path() -> None:
    found = {system: file_of(TARGETS["claude-desktop"], system) for system in ("linux", "darwin", "win32")}
    assert len(set(found.values())) == 3
    assert found["darwin"].startswith("~/Library/")
    assert file_of(TARGETS["cursor"], "win32") == file_of(TARGETS["cursor"], "linux")
