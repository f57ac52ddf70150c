"""Errors of tools over files of the client's machine: the agent is told how to pass them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from file_scenes import Scene, texts
from isthmus.core.base.plan import AutoFiles, Kind, ServerPlan, UploadConsumer
from isthmus.core.base.storage import StorageFailed, Survey

AUTO = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())
ADVICE = "To pass a file that you have: call s_put_file with its content, or s_get_upload_url and POST the file"


def failing(text: str = "[Errno 2] No such file or directory", tool: str = "read", **arguments: object) -> list[str]:
    """Returns the texts of the result of a call that fails."""
    scene = Scene(AUTO)
    channel, _ = scene.begin(tool, **arguments)
    return [block["text"] for block in scene.end(channel, text, isError=True)["content"]]


@each_row(
    "value",
    [
        "/home/me/a.pdf",
        "~/a.pdf",
        "C:\\Users\\me\\a b.pdf",
        "file:///Users/me/a.pdf",
        "report.pdf",
        "./docs/report.pdf",
        "/mnt/data/x.csv",
        "sandbox:/mnt/data/x.csv",
        "attachment://a.pdf",
        "upload://a.pdf",
    ],
)
def test_a_file_that_the_server_cannot_read_is_explained(value: str) -> None:
    told, advice = failing(path=value)
    assert told == "[Errno 2] No such file or directory", "the server's own text stays"
    assert advice.startswith(f"This server cannot read {value}. {ADVICE}")


@each_row(
    "text",
    [
        "File not found: a.pdf",
        "ENOENT: no such file or directory, open '/home/me/a.pdf'",
        "Error: path does not exist",
        "Access denied - path outside allowed directories",
        "Could not open the document",
        "The file doesn't exist.",
    ],
)
def test_errors_that_speak_of_a_missing_file(text: str) -> None:
    assert len(failing(text, path="/home/me/a.pdf")) == 2


@each_row("value", ["sandbox:/mnt/data/x.csv", "attachment://a.pdf", "upload://a.pdf"])
def test_a_name_that_no_server_knows_is_explained_whatever_the_error_says(value: str) -> None:
    assert failing("Unsupported URI scheme", uri=value)[1].startswith(f"This server cannot read {value}. ")


@each_row(
    ("text", "tool", "arguments"),
    [
        ("Division by zero", "read", {"path": "/home/me/a.pdf"}),
        ("not found", "read", {}),
        ("not found", "read", {"id": "42", "query": "quarterly numbers", "url": "https://h/a.pdf"}),
        ("not found", "read", {"output": "/home/me/a.pdf"}),
        ("not found", "write_file", {"path": "/home/me/a.pdf"}),
        ("not found", "read", {"path": "data:,a"}),
    ],
)
def test_other_errors_stay_as_they_are(text: str, tool: str, arguments: dict[str, Any]) -> None:
    assert failing(text, tool, **arguments) == [text]


def test_a_good_result_stays_as_it_is() -> None:
    scene = Scene(AUTO)
    channel, _ = scene.begin("read", path="/home/me/a.pdf")
    assert len(scene.end(channel, "no such file")["content"]) == 1


def test_a_file_that_is_there_is_no_reason() -> None:
    scene = Scene(AUTO, roots=("/data",))
    scene.disk.write("/data/a.pdf", b"x")
    scene.disk.write(f"{scene.ws}/b.pdf", b"x")
    channel, _ = scene.begin("read", path="/data/a.pdf", other=["b.pdf"])
    assert texts(scene.end(channel, "font not found", isError=True)) == "font not found"
    channel, _ = scene.begin("read", path="/data/a.pdf", other=["c.pdf", {"deep": "d.pdf"}])
    told = texts(scene.end(channel, "file not found", isError=True))
    assert "cannot read c.pdf, d.pdf. To pass" in told


def test_a_handle_is_no_reason() -> None:
    scene = Scene(AUTO)
    scene.client.request('"tools"', "tools/list")
    scene.world.answer(scene.world.take_sent("tools/list"), '{"tools":[]}')
    channel, _ = scene.begin("read", path=scene.upload("a.txt", b"one"))
    assert texts(scene.end(channel, "the sheet was not found", isError=True)) == "the sheet was not found"


def test_only_some_paths_are_named() -> None:
    _, advice = failing(paths=[f"/home/{number}.txt" for number in range(9)])
    assert "/home/2.txt. " in advice and "/home/3.txt" not in advice


def test_an_adapter_has_its_own_refusals() -> None:
    consumer = UploadConsumer(tools=("read",), file_path_argument="path", accept_other=True)
    scene = Scene(ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles(), consumers=(consumer,)))
    channel, _ = scene.begin("read", path="/home/me/a.pdf")
    assert texts(scene.end(channel, "not found", isError=True)) == "not found"


def test_without_uploads_there_is_no_advice() -> None:
    scene = Scene(AUTO, uploads_enabled=False)
    channel, _ = scene.begin("read", path="/home/me/a.pdf")
    assert texts(scene.end(channel, "not found", isError=True)) == "not found"


def test_a_disk_that_cannot_be_looked_at_loses_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(AUTO)
    channel, _ = scene.begin("read", path="/home/me/a.pdf")
    carry_out = scene.disk._carry_out
    monkeypatch.setattr(
        scene.disk, "_carry_out", lambda order: StorageFailed("no") if isinstance(order, Survey) else carry_out(order)
    )
    assert texts(scene.end(channel, "not found", isError=True)) == "not found"


@each_row(
    ("value", "uri"),
    [
        ("reports/x.txt", "artifact://new/reports/x.txt"),
        ("./reports/x.txt", "artifact://new/reports/x.txt"),
        ("/home/me/x.txt", "artifact://new/x.txt"),
    ],
)
def test_a_path_that_cannot_be_written_is_explained(value: str, uri: str) -> None:
    scene = Scene(AUTO)
    tool = {"name": "save", "inputSchema": {"properties": {"output_path": {"type": "string"}}}}
    scene.client.request('"tools"', "tools/list")
    scene.world.answer(scene.world.take_sent("tools/list"), json.dumps({"tools": [tool]}))
    channel, _ = scene.begin("save", output_path=value)
    found = scene.end(channel, "ENOENT: no such file or directory", isError=True)["content"]
    assert [block["text"] for block in found[1:]] == [f"To write a new file, pass {uri} in place of {value}."]
