"""Tests of `isthmus wrap --files`: files cross without a configuration, over HTTP and on stdio."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from command import Json, Run, Session, call_message, request, run
from screens import unwrapped

FILER = str(Path(__file__).parents[1] / "peers" / "filer.py")
ANY_PORT = ("--listen", "127.0.0.1:0")


def result(session: Session, tool: str, **arguments: object) -> Json:
    answer: Json = session.post(call_message(2, tool, **arguments))["result"]
    return answer


def text_of(answer: Json) -> str:
    text: str = answer["content"][0]["text"]
    return text


def test_files_cross_without_a_configuration(tmp_path: Path) -> None:
    """A file goes in as a handle in any argument, comes out as an artifact, and goes in again. The storage is at the
    chosen place."""
    (tmp_path / "filer.py").write_text(Path(FILER).read_text())
    outside = tmp_path / "outside"
    outside.mkdir()
    options = ("--files", "--artifact-root", "outside", "--storage", "kept")
    with Run("wrap", *ANY_PORT, *options, "--", sys.executable, "filer.py", cwd=tmp_path) as wrapped:
        session = Session(wrapped.wait_url())
        assert f"filer.py is handed on as {tmp_path / 'filer.py'}, for the command runs" in wrapped.stderr
        assert "auto: every tool takes handles in any argument (from filer_py_put_file)" in unwrapped(wrapped.stdout)
        url = result(session, "filer_py_get_upload_url")["structuredContent"]["upload_url"]
        body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--b--\r\n'
        status, reply = request("POST", url, body, {"Content-Type": "multipart/form-data; boundary=b"})
        assert status == 200
        handle = reply["upload_handle"]
        assert text_of(result(session, "read", options={"deep": [handle]})) == "hello"
        assert text_of(result(session, "plain", path=handle)) == json.dumps({"path": handle}), (
            "no path of ours is revealed"
        )

        answer = result(session, "write", at="made.txt", text="made", say="wrote made.txt")
        uri = answer["_meta"]["artifact"]["artifact_uri"]
        assert text_of(answer) == f"wrote {uri}", "the working directory is the session's"
        assert not (tmp_path / "made.txt").exists()
        assert text_of(result(session, "read", options={"deep": [uri]})) == "made"
        at = str(outside / "there.txt")
        assert result(session, "write", at=at, say=f"wrote {at}")["_meta"]["artifact"]["filename"] == "there.txt"
    assert (tmp_path / "kept" / "state").is_dir()


def test_on_stdio_what_tools_write_is_read_and_handed_back(tmp_path: Path) -> None:
    with Run("wrap", "--listen", "stdio", "--files", "--", sys.executable, FILER, cwd=tmp_path) as wrapped:
        session = Pipe(wrapped)
        answer = session.exchange(call_message(2, "write", at="{made}.txt", text="made", say="wrote {made}.txt"))
        artifact = answer["_meta"]["artifact"]
        assert "download_url" not in artifact
        assert text_of(answer) == f"wrote {artifact['artifact_uri']}"
        read = {"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": {"uri": artifact["artifact_uri"]}}
        assert session.exchange(read)["contents"][0]["text"] == "made"
        again = call_message(4, "read", options={"deep": [artifact["artifact_uri"]]})
        assert text_of(session.exchange(again)) == "made"
        tool = f"{Path(FILER).stem}_py_put_file"
        begun = session.exchange(call_message(5, tool, filename="a.txt", text="one, ", more=True))
        token = begun["structuredContent"]["upload_id"]
        put = session.exchange(call_message(6, tool, filename="a.txt", base64="dHdv", append_to=token))
        read_put = call_message(7, "read", options={"deep": [put["structuredContent"]["upload_handle"]]})
        assert text_of(session.exchange(read_put)) == "one, two"
        wrapped.write(end=True)
        assert wrapped.wait_exit() == 0
    assert list(tmp_path.iterdir()) == [], "nothing is left in the folder that it was started in"


class Pipe:
    """A client on the wrapped server's stdin and stdout."""

    def __init__(self, wrapped: Run) -> None:
        self.wrapped = wrapped
        version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        self.exchange({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": version})
        wrapped.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def exchange(self, message: Json) -> Json:
        self.wrapped.write(message)
        line = self.wrapped.wait_line(rf'^{{.*"id": ?{message["id"]}[,}}].*$')[0]
        answer: Json = json.loads(line)["result"]
        return answer


def test_check_says_what_auto_does(tmp_path: Path) -> None:
    config = {"servers": [{"id": "a", "upstream": {"command": [sys.executable, FILER]}, "files": "auto"}]}
    (tmp_path / "isthmus.json").write_text(json.dumps(config))
    code, out, err = run("check", str(tmp_path / "isthmus.json"))
    assert (code, err) == (0, "")
    assert "files   auto: every tool takes handles in any argument (from a_put_file)" in out
    assert "artifact:// resources of files it names or changes in the session's folders" in unwrapped(out)
