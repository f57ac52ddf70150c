"""The mistakes that new users make, each made for real, and the message that each brings.

A message says what was seen, what is right, and what mends it. The table is `mistakes.yaml`. Configurations and command
lines are read in this process; one `isthmus check` meets all servers that do not work, and one gateway all wrong
requests.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import yaml
from command import INITIALIZE, Json, Run, Session, call_message, request, run
from each_row import each_row
from in_process import Inside
from issuing import Authority
from isthmus.core.base.setting_names import LARGER_FILES
from mistaken_peers import serving

HERE: Final = Path(__file__).parent
TOOLBOX: Final = [sys.executable, str(HERE / "peers" / "toolbox.py")]
TABLE: Final = yaml.load((HERE / "mistakes.yaml").read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


# --- Files and command lines ----------------------------------------------------------------------------------------


@each_row("row", TABLE["files"])
def test_a_file_with_a_mistake(row: Json, inside: Inside, tmp_path: Path) -> None:
    """The fault is named, with its line, and nothing that only follows from it."""
    if row["text"] is not None:
        (tmp_path / row["file"]).write_text(row["text"])
    code, _, err = inside("check", row["file"])
    assert (code, err) == (2, f"isthmus: {row['message']}")


READ: Final = {
    "comments": '{\n // mine\n "mcpServers": {"a": {"command": "x",}, /* b */}\n}',
    "VS Code": '{"servers": {"a": {"type": "stdio", "command": "x"}}}',
    "a list for a command": '{"mcpServers": {"a": {"command": ["x", "y"]}}}',
    "a time with its unit": '{"sessions": {"idle_ttl_seconds": "30m"}, "mcpServers": {"a": {"command": "x"}}}',
}


@each_row("text", READ.values())
def test_what_looks_like_a_mistake_is_read(text: str, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(text)
    code, out, _ = inside("convert", "mcp.json")
    assert code == 0 and "command" in out


@each_row("row", TABLE["command_lines"])
def test_a_command_line_with_a_mistake(row: Json, inside: Inside) -> None:
    code, _, err = inside(*row["arguments"])
    assert code in (1, 2) and f"isthmus: {row['message']}" in err


def test_ps_of_another_program(inside: Inside) -> None:
    with serving() as port:
        url = f"http://127.0.0.1:{port}"
        _, _, err = inside("ps", "--url", url)
    assert err == f"isthmus: what listens at {url} is no isthmus: it answers with HTTP status 404"


# --- Servers --------------------------------------------------------------------------------------------------------


def squeezed(text: str) -> str:
    """Text without its spaces and line ends: a screen may break a message anywhere."""
    return re.sub(r"\s", "", text)


def servers_of(ports: Json) -> Iterator[Json]:
    """Yields a server for each mistake, and one that works, with adapters that do not fit it."""
    for row in TABLE["processes"]:
        command = [part.format(python=sys.executable) for part in row["upstream"]["command"]]
        is_silent = row["mistake"] == "silence"
        yield {"upstream": {**row["upstream"], "command": command}, "start_timeout_seconds": 0.5 if is_silent else 20}
    for row in TABLE["urls"]:
        yield {"upstream": {"url": row["url"].format_map(ports)}}
    adapters = [{"type": "upload_consumer", **row["adapter"]} for row in TABLE["adapters"]]
    yield {"upstream": {"command": TOOLBOX}, "adapters": adapters}


def test_servers_with_mistakes(tmp_path: Path) -> None:
    """One check meets all of them, and says of each what mends it. No credential that a server repeats is shown."""
    with ExitStack() as stack:
        ports = {"plain": stack.enter_context(serving())}
        ports["tls"] = stack.enter_context(serving(Authority(tmp_path).server()))
        servers = [{"id": f"s{i}", **server} for i, server in enumerate(servers_of(ports))]
        (tmp_path / "isthmus.json").write_text(json.dumps({"servers": servers}))
        code, out, err = run("check", cwd=tmp_path, env={"BRAVE_API_KEY": "4711"})
    assert (code, re.sub(r"(?m)^starting .*\n?", "", err)) == (1, ""), "each failure is told once"
    messages = [row["message"] for kind in ("processes", "urls", "adapters") for row in TABLE[kind]]
    assert [message for message in messages if squeezed(message) not in squeezed(out)] == []
    assert "4711" not in out


# --- Requests -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with adapters, behind a gateway that takes small files only."""
    folder = tmp_path_factory.mktemp("gateway")
    adapter = {"type": "upload_consumer", "tools": ["echo"], "file_path_argument": "text"}
    document = {
        "core": {"port": 0},
        "uploads": {"max_file_bytes": 1000},
        "servers": [{"id": "box", "upstream": {"command": TOOLBOX}, "adapters": [adapter]}],
    }
    (folder / "isthmus.json").write_text(json.dumps(document))
    with Run("serve", cwd=folder) as served:
        yield served.wait_url()


@pytest.fixture(scope="module")
def token(gateway: str) -> str:
    """The local token of that gateway."""
    code, shown, _ = run("token", "show", gateway.removesuffix("/mcp"))
    assert code == 0
    return shown


BODIES: Final = {"initialize": INITIALIZE, "tools/list": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}


@each_row("row", TABLE["requests"])
def test_a_request_with_a_mistake(row: Json, gateway: str, token: str) -> None:
    body = json.dumps(BODIES[row["body"]]) if row["body"] in BODIES else row["body"]
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    given = {**usual, **row.get("headers", {})}
    headers = {name: value.replace("TOKEN", token) for name, value in given.items() if value is not None}
    url = gateway.removesuffix("/mcp") + row["at"] if "at" in row else gateway + row.get("path", "")
    status, answer = request("POST", url, body.encode(), headers)
    error = answer.get("error", answer.get("detail", ""))
    said = error["message"] if isinstance(error, dict) else error
    assert (status, said[: len(row["message"])]) == (row["status"], row["message"]), answer


def form(field: str = "file", size: int = 5) -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{field}"; filename="a.txt"\r\n\r\n'
    return head.encode() + b"x" * size + b"\r\n--b--\r\n"


def upload(url: str, body: bytes, content_type: str = "multipart/form-data; boundary=b") -> str:
    """Returns the complaint about an upload; empty if it was taken."""
    return str(request("POST", url, body, {"Content-Type": content_type})[1].get("detail", ""))


def test_uploads_with_mistakes(gateway: str) -> None:
    session = Session(gateway)

    def link() -> str:
        answer = session.post(call_message(3, "box_get_upload_url"))
        return str(answer["result"]["structuredContent"]["upload_url"])

    assert upload(link(), form("upload")) == "got a field 'upload', expected only file and sha256"
    as_json = upload(link(), b'{"file": "x"}', "application/json")
    assert as_json == "got Content-Type 'application/json', expected multipart/form-data; with curl write -F file=@PATH"
    for size in (1001, 20_000):
        assert upload(link(), form(size=size)).endswith(f" bytes a file may have; {LARGER_FILES}")
    url = link()
    assert upload(url, form()) == ""
    gone = "this link was used already: call the tool box_get_upload_url for a new one"
    assert upload(url, form()) == gone


def test_arguments_with_mistakes(gateway: str) -> None:
    session = Session(gateway)
    mends = "box_get_upload_url and POST the file to the upload_url it gives"
    unknown = f"upload://sessions/{session.id}/{'0' * 32}"
    for given, seen in (
        ("/etc/hosts", 'Argument text: got "/etc/hosts", expected an upload handle'),
        ("upload://sessions/x/y", 'Argument text: got "upload://sessions/x/y", expected an upload handle'),
        (unknown, f"Unknown upload handle {unknown}: it has expired"),
    ):
        said = session.call("echo", text=given)
        assert said.startswith(seen) and mends in said
