"""The options of `isthmus login`, `logout` and `auth`, up to where a browser would be opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import told

SERVERS = [
    {"id": "notes", "upstream": {"url": "https://mcp.example/mcp", "auth": {"type": "oauth"}}},
    {
        "id": "robot",
        "upstream": {
            "url": "https://mcp.example/mcp",
            "auth": {"type": "client_credentials", "client_id": "c", "client_secret": "s"},
        },
    },
    {"id": "files", "upstream": {"command": ["x"]}},
]


def run(folder: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    """Runs a command in a folder with a configuration, and a store of its own. Returns its code and output."""
    (folder / "isthmus.json").write_text(json.dumps({"servers": SERVERS}), encoding="utf-8")
    env = {**environ, "XDG_STATE_HOME": str(folder / "state"), "BROWSER": "/bin/false"}
    return told(*arguments, cwd=folder, env=env)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("login",), "[CONFIG] ID | URL"),
        (("login", "a", "b", "c"), "got 3 words, expected [CONFIG] ID, or a URL"),
        (("login", "note"), "isthmus.json has no server note, expected one of notes, robot, files"),
        (("login", "other.json", "notes"), "other.json"),
        (("login", "files"), "files has no http or ws URL"),
        (("login", "robot"), "which needs no login of a person"),
        (("login", "http://mcp.example/mcp"), "expected https://, or http:// on this machine"),
        (("login", "unix:///run/x"), "expected https://, or http:// on this machine"),
        (("login", "--scope", "a b", "notes"), "for more, write it again"),
        (("login", "--port", "0", "notes"), "expected 1 to 65535"),
        (("login", "--device", "--paste", "notes"), "got --device with --paste or --port"),
        (("login", "--device", "--port", "5", "notes"), "got --device with --paste or --port"),
        (("login", "notes", "--", "x"), "got a command after --"),
        (("logout", "files"), "files has no http or ws URL"),
        (("auth", "show"), "unknown command show, expected one of ls, "),
        (("auth", "export"), "FILE"),
        (("auth", "export", "logins"), "no terminal to ask for a passphrase on: set ISTHMUS_EXPORT_KEY"),
        (("auth", "import", "logins"), "no terminal to ask for a passphrase on: set ISTHMUS_EXPORT_KEY"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    code, said = run(tmp_path, *arguments)
    assert code == 2
    assert text in said
    assert "Traceback" not in said
    assert not (tmp_path / "state").exists()


def test_a_server_that_is_not_there_ends_a_login_with_one_line(tmp_path: Path) -> None:
    code, said = run(tmp_path, "login", "http://127.0.0.1:9/mcp")
    assert code == 1
    assert said.startswith("isthmus: http://127.0.0.1:9: ")
    assert len(said.splitlines()) == 1


def test_a_store_without_logins(tmp_path: Path) -> None:
    assert run(tmp_path, "auth", "ls") == (0, "nobody is logged in\n")
    assert run(tmp_path, "auth", "ls", "--json") == (0, "[]\n")
    key = {"ISTHMUS_EXPORT_KEY": "correct horse battery"}
    assert run(tmp_path, "auth", "export", "logins", **key) == (1, "isthmus: nobody is logged in\n")
    assert run(tmp_path, "auth", "import", "logins", **key) == (
        1,
        "isthmus: cannot read logins: No such file or directory\n",
    )
    assert run(tmp_path, "logout", "notes") == (1, "isthmus: nobody is logged in at https://mcp.example\n")
