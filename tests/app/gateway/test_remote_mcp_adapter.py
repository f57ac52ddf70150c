"""Tests of the promises of remote-mcp-adapter to clients and operators: its configuration, run as it is, against a
server that thinks in paths. Promises beyond these are tested elsewhere."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio.from_thread
import msgspec
import pytest
from command import Json, Session, call_message, request
from isthmus.app.config.load import loads
from isthmus.app.config.settings import Core, Server, Settings, Upstream
from isthmus.app.gateway import Gateway, running

FILER = str(Path(__file__).parents[1] / "peers" / "filer.py")
ADAPTER = """
core: {{host: 127.0.0.1, port: 8932, allow_artifacts_download: true, upload_path: /hand-in}}
storage: {{root: {root}}}
uploads: {{max_file_bytes: 1k}}
artifacts: {{ttl_seconds: 600}}
servers:
  - id: files-1
    mount_path: /tools/files
    upstream: {{url: "{upstream}"}}
    disabled_tools: [secret, "internal_.*", plain_but_not_there]
    adapters:
      - {{type: upload_consumer, tools: [see], file_path_argument: path}}
      - {{type: upload_consumer, tools: [see_uri], file_path_argument: path, uri_prefix: true}}
      - {{type: upload_consumer, tools: [see_deep], file_path_argument: options.file}}
      - {{type: artifact_producer, tools: [write], output_path_argument: at}}
      - {{type: artifact_producer, tools: [say], output_locator: {{mode: regex}}}}
      - type: artifact_producer
        tools: [tell_deep]
        output_locator: {{mode: structured, output_path_key: file.path}}
      - {{type: artifact_producer, tools: [show], output_locator: {{mode: embedded}}, allow_raw_output: true}}
      - {{type: artifact_producer, tools: [tell], output_locator: {{mode: regex}}, persist: false}}
"""
STRICT = """
uploads: {{require_sha256: true}}
artifacts: {{expose_as_resources: false}}
storage: {{root: {root}}}
servers:
  - id: x-._
    mount_path: /mcp/one
    upstream: {{url: "{upstream}"}}
    adapters:
      - {{type: upload_consumer, tools: [see], file_path_argument: path}}
      - {{type: artifact_producer, tools: [write], output_path_argument: at}}
"""


class Gateways(msgspec.Struct):
    root: Path
    usual: Gateway
    strict: Gateway

    @property
    def url(self) -> str:
        return f"{self.usual.base_url}/tools/files"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    folder = tmp_path_factory.mktemp("adapter")
    with ExitStack() as stack:
        portal = stack.enter_context(anyio.from_thread.start_blocking_portal())

        def start(settings: Settings) -> Gateway:
            core = msgspec.structs.replace(settings.core, host="127.0.0.1", port=0)
            settings = msgspec.structs.replace(settings, core=core)
            context = running(settings, listen=True, is_lasting=True)
            return stack.enter_context(portal.wrap_async_context_manager(context))

        filer = Server(id="filer", upstream=Upstream(command=(sys.executable, FILER)))
        inner = Settings(core=Core(), servers=(filer,))
        inner = msgspec.structs.replace(
            inner, storage=msgspec.structs.replace(inner.storage, root=str(folder / "inner"))
        )
        upstream = f"{start(inner).base_url}/mcp"
        gateways = []
        for name, text in (("shared", ADAPTER), ("strict", STRICT)):
            text_of_file = text.format(root=folder / name, upstream=upstream)
            gateways.append(start(loads(text_of_file, "yaml", str(folder), {})))
        yield Gateways(folder / "shared", *gateways)


@pytest.fixture(scope="module")
def client(gateway: Gateways) -> Session:
    return Session(gateway.url)


@pytest.fixture(scope="module")
def strict(gateway: Gateways) -> Session:
    return Session(f"{gateway.strict.base_url}/mcp/one")


def result(session: Session, tool: str, **arguments: object) -> Json:
    answer: Json = session.post(call_message(2, tool, **arguments))["result"]
    return answer


def rpc(session: Session, method: str, **params: object) -> Json:
    return session.post({"jsonrpc": "2.0", "id": 3, "method": method, "params": params})


def offer(session: Session, prefix: str = "files_1") -> Json:
    offered: Json = result(session, f"{prefix}_get_upload_url")["structuredContent"]
    return offered


def form(*files: tuple[str, bytes], sha256: tuple[str, ...] = ()) -> tuple[bytes, dict[str, str]]:
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + data
        for name, data in files
    ]
    parts += [f'--b\r\nContent-Disposition: form-data; name="sha256"\r\n\r\n{digest}'.encode() for digest in sha256]
    return b"\r\n".join([*parts, b"--b--\r\n"]), {"Content-Type": "multipart/form-data; boundary=b"}


def upload(
    session: Session, *files: tuple[str, bytes], sha256: tuple[str, ...] = (), prefix: str = "files_1"
) -> tuple[int, Json]:
    body, headers = form(*files, sha256=sha256)
    return request("POST", offer(session, prefix)["upload_url"], body, headers)


def handle_of(session: Session, name: str = "a.txt", data: bytes = b"hello") -> str:
    status, reply = upload(session, (name, data))
    assert status == 200, reply
    handle: str = reply["upload_handle"]
    return handle


def seen(answer: Json) -> Json:
    """The arguments that the server got."""
    arguments: Json = json.loads(answer["content"][0]["text"])
    return arguments


def refused(answer: Json) -> str:
    assert answer["isError"] is True
    text: str = answer["content"][0]["text"]
    return text


def artifact(answer: Json) -> Json:
    found: Json = answer["_meta"]["artifact"]
    return found


# --- The helper tool ------------------------------------------------------------------------------------------------


def test_the_mount_path_is_where_clients_connect(gateway: Gateways, client: Session) -> None:
    assert client.hello["result"]["serverInfo"]["name"] == "filer"
    assert Session(f"{gateway.url}/").id != client.id
    assert Session(f"{gateway.usual.base_url}/mcp/files-1").id is not None


def test_the_helper_is_named_after_the_server(client: Session, strict: Session) -> None:
    names = [tool["name"] for tool in rpc(client, "tools/list")["result"]["tools"]]
    assert "files_1_get_upload_url" in names
    assert "x_get_upload_url" in [tool["name"] for tool in rpc(strict, "tools/list")["result"]["tools"]]


def test_the_helper_tells_how_to_upload(client: Session) -> None:
    answer = result(client, "files_1_get_upload_url")
    offered = answer["structuredContent"]
    assert json.loads(answer["content"][0]["text"]) == offered
    keys = {
        *("server_id", "tool_name", "upload_url", "method", "headers", "auth_mode", "credential_ttl_seconds"),
        *("field_name", "supports_multiple_files", "sha256_required", "sha256_field_name", "sha256_per_file"),
        *("session_id", "example_curl", "example_curl_multiple", "note", "integrity_note"),
    }
    assert keys <= set(offered)
    assert (offered["server_id"], offered["method"], offered["field_name"]) == ("files-1", "POST", "file")
    assert (offered["auth_mode"], offered["credential_ttl_seconds"]) == ("signed_upload_credentials", 120)
    assert offered["headers"] == {"Mcp-Session-Id": offered["session_id"]} and not offered["sha256_required"]
    assert "sha256" not in offered["example_curl"]


def test_the_helper_asks_for_hashes_where_they_are_required(strict: Session) -> None:
    offered = offer(strict, "x")
    assert offered["sha256_required"] and "sha256=" in offered["example_curl"]


def test_the_workflow_is_a_resource(client: Session) -> None:
    uris = [entry["uri"] for entry in rpc(client, "resources/list")["result"]["resources"]]
    assert "doc://upload_workflow.md" in uris and "file:///own" in uris
    [contents] = rpc(client, "resources/read", uri="doc://upload_workflow.md")["result"]["contents"]
    assert contents["mimeType"] == "text/markdown" and "files_1_get_upload_url" in contents["text"]


def test_hidden_tools_are_neither_listed_nor_called(client: Session) -> None:
    names = [tool["name"] for tool in rpc(client, "tools/list")["result"]["tools"]]
    assert "plain" in names and not {"secret", "internal_wipe"} & set(names)
    for tool in ("secret", "internal_wipe"):
        assert "error" in client.post(call_message(2, tool))


def test_tools_that_take_files_say_so(client: Session) -> None:
    tools = {tool["name"]: tool for tool in rpc(client, "tools/list")["result"]["tools"]}
    assert tools["see"]["description"].startswith("Does it.\n\n") and "upload://" in tools["see"]["description"]
    path = tools["see"]["inputSchema"]["properties"]["path"]
    assert path["type"] == "string" and path["description"].startswith("A path.") and "upload://" in path["description"]
    assert tools["see"]["annotations"] == {"readOnlyHint": True}
    assert tools["plain"]["description"] == "Does it."


# --- Uploads --------------------------------------------------------------------------------------------------------


def test_an_upload_is_answered_with_its_handle(client: Session) -> None:
    digest = hashlib.sha256(b"hello").hexdigest()
    status, reply = upload(client, ("a b.txt", b"hello"), sha256=(digest.upper(),))
    assert status == 200
    assert (reply["server_id"], reply["count"]) == ("files-1", 1)
    assert reply["upload_handles"] == [reply["upload_handle"]]
    assert reply["upload_handle"] == f"upload://sessions/{reply['session_id']}/{reply['upload']['upload_id']}"
    assert (reply["upload"]["size_bytes"], reply["upload"]["sha256"]) == (5, digest)
    assert reply["uploads"] == [{**reply["upload"], "upload_handle": reply["upload_handle"]}]


def test_several_files_keep_their_order_and_have_no_short_form(client: Session) -> None:
    status, reply = upload(client, ("b.txt", b"b"), ("a.txt", b""))
    assert (status, reply["count"]) == (200, 2)
    assert [entry["filename"] for entry in reply["uploads"]] == ["b.txt", "a.txt"]
    assert "upload_handle" not in reply and "upload" not in reply


def test_uploads_are_taken_at_the_path_of_the_file(gateway: Gateways, client: Session) -> None:
    url = urlsplit(offer(client)["upload_url"])
    body, headers = form(("a.txt", b"a"))
    assert request("POST", f"{gateway.usual.base_url}/hand-in/files-1?{url.query}", body, headers)[0] == 200


@pytest.mark.parametrize(
    ("digests", "code"),
    [(("0" * 64,), "sha256_mismatch"), (("0" * 64, "0" * 64), "sha256_count"), ((), "sha256_required")],
)
def test_hashes_are_held_against_the_files(strict: Session, digests: tuple[str, ...], code: str) -> None:
    status, reply = upload(strict, ("a.txt", b"a"), sha256=digests, prefix="x")
    assert (status, reply["code"]) == (400, code)


def test_a_file_that_is_too_large_is_refused(client: Session) -> None:
    assert upload(client, ("a.bin", b"a" * 1001))[0] == 413
    assert upload(client, ("a.bin", b"a" * 1000))[0] == 200


def test_of_several_files_all_are_taken_or_none(client: Session, gateway: Gateways) -> None:
    def stored() -> int:
        return sum(len(files) for _, _, files in os.walk(gateway.root / "blobs"))

    before = stored()
    assert upload(client, ("a.txt", b"a"), ("b.bin", b"b" * 1001))[0] == 413
    assert stored() == before


def test_a_form_without_a_file_is_refused(client: Session) -> None:
    body, headers = form(sha256=("0" * 64,))
    assert request("POST", offer(client)["upload_url"], body, headers)[0] == 400


def test_an_unknown_server_is_one(gateway: Gateways) -> None:
    body, headers = form(("a.txt", b"a"))
    assert request("POST", f"{gateway.usual.base_url}/upload/nobody", body, headers)[0] == 404


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("résumé файл.pdf", "résumé файл.pdf"),
        ("x" * 300 + ".txt", None),
        ("....", None),
    ],
)
def test_names_are_made_safe_and_stay_readable(client: Session, gateway: Gateways, name: str, safe: str | None) -> None:
    status, reply = upload(client, (name, b"data"))
    assert status == 200
    path = Path(seen(result(client, "see", path=reply["upload_handle"]))["path"])
    assert path.name == reply["upload"]["filename"] and len(path.name.encode()) <= 255
    assert safe is None or path.name == safe
    assert path.read_bytes() == b"data" and path.is_relative_to(gateway.root)


# --- Signed uploads -------------------------------------------------------------------------------------------------


def test_a_link_is_used_once(client: Session) -> None:
    url = offer(client)["upload_url"]
    body, headers = form(("a.txt", b"a"))
    assert request("POST", url, body, headers)[0] == 200
    status, reply = request("POST", url, body, headers)
    assert (status, reply["code"]) == (403, "bad_credential")


def test_a_link_outlives_an_upload_that_was_refused(client: Session) -> None:
    url = offer(client)["upload_url"]
    body, headers = form(("a.txt", b"a"), sha256=("0" * 64,))
    assert request("POST", url, body, headers)[0] == 400
    body, headers = form(("a.txt", b"a"))
    assert request("POST", url, body, headers)[0] == 200


@pytest.mark.parametrize("change", ["grant", "signature", "server", "none"])
def test_a_changed_link_is_refused(gateway: Gateways, client: Session, change: str) -> None:
    url = offer(client)["upload_url"]
    if change in ("grant", "signature"):
        at = -22 if change == "signature" else -24
        url = url[:at] + ("1" if url[at] != "1" else "2") + url[at + 1 :]
    elif change == "server":
        url = f"{gateway.strict.base_url}/upload/x-._?{urlsplit(url).query}"
    else:
        url = url.partition("?")[0]
    body, headers = form(("a.txt", b"a"))
    status, reply = request("POST", url, body, headers)
    assert (status, reply["code"]) == (403, "bad_credential")


def test_the_session_header_must_be_that_of_the_link(client: Session) -> None:
    offered = offer(client)
    body, headers = form(("a.txt", b"a"))
    assert request("POST", offered["upload_url"], body, {**headers, "Mcp-Session-Id": "other"})[0] == 403
    assert request("POST", offered["upload_url"], body, {**headers, **offered["headers"]})[0] == 200


# --- Tools that take files ------------------------------------------------------------------------------------------


def test_a_handle_becomes_a_path(client: Session) -> None:
    handle = handle_of(client, data=b"here")
    for written in (handle, f"{handle}/other-name.txt"):
        answer = result(client, "see", path=written, other=[1])
        assert Path(seen(answer)["path"]).read_bytes() == b"here"
        assert (seen(answer)["other"], answer["_meta"]["seen"]) == ([1], "see")


def test_a_list_of_handles_becomes_a_list_of_paths(client: Session) -> None:
    paths = seen(result(client, "see", path=[handle_of(client, "a.txt"), handle_of(client, "b.txt")]))["path"]
    assert [Path(path).name for path in paths] == ["a.txt", "b.txt"]


def test_a_handle_becomes_a_file_uri_where_that_is_wanted(client: Session) -> None:
    uri = seen(result(client, "see_uri", path=handle_of(client, "a b.txt")))["path"]
    assert uri.startswith("file:///") and uri.endswith("/a%20b.txt")


def test_a_handle_may_stand_below_the_top(client: Session) -> None:
    options = seen(result(client, "see_deep", options={"file": handle_of(client), "n": 1}))["options"]
    assert Path(options["file"]).read_bytes() == b"hello" and options["n"] == 1


@pytest.mark.parametrize("value", ["/etc/hostname", "https://h/x", "other://sessions/a/b", 7, {"a": 1}, ["/etc/hosts"]])
def test_what_is_no_handle_is_refused_with_advice(client: Session, value: object) -> None:
    text = refused(result(client, "see", path=value))
    assert "upload://" in text and "files_1_get_upload_url" in text


def test_an_unknown_handle_is_refused(client: Session) -> None:
    session_id = offer(client)["session_id"]
    for handle in (f"upload://sessions/{session_id}/{uuid.uuid4().hex}", "upload://sessions/a/b", "upload://x"):
        assert "files_1_get_upload_url" in refused(result(client, "see", path=handle))


def test_a_handle_of_another_session_is_unknown(gateway: Gateways, client: Session) -> None:
    assert "Unknown upload handle" in refused(result(Session(gateway.url), "see", path=handle_of(client)))


def test_a_server_without_an_adapter_for_a_tool_gets_its_arguments_as_they_are(client: Session) -> None:
    handle = handle_of(client)
    assert seen(result(client, "plain", path=handle)) == {"path": handle}


# --- Tools that make files ------------------------------------------------------------------------------------------


def test_a_tool_gets_a_path_to_write_to(client: Session, gateway: Gateways) -> None:
    answer = result(client, "write", at="my report.txt", text="body")
    found = artifact(answer)
    assert (found["filename"], found["mime_type"], found["size_bytes"]) == ("my report.txt", "text/plain", 4)
    session_id = offer(client)["session_id"]
    assert found["artifact_uri"].startswith(f"artifact://sessions/{session_id}/{found['artifact_id']}/")
    assert found["expose_as_resource"] is True and answer["content"][0] == {"type": "text", "text": "done"}


def test_a_path_in_the_text_is_found_below_the_shared_root(client: Session, gateway: Gateways) -> None:
    at = str(gateway.root / "made" / "out.txt")
    answer = result(client, "say", at=at, say=f"Saved to '{at}'. See https://example.com/x.png")
    assert artifact(answer)["filename"] == "out.txt"
    assert answer["content"][0]["text"].startswith("Saved to '"), "the text of the server is kept"


def test_a_path_in_the_structured_result_is_found(client: Session, gateway: Gateways) -> None:
    at = str(gateway.root / "made" / "deep.json")
    answer = result(client, "tell_deep", at=at, say=at, text="{}")
    assert artifact(answer)["mime_type"] == "application/json"
    assert answer["structuredContent"] == {"file": {"path": at}}


def test_an_embedded_picture_is_taken_in_and_given_as_it_was(client: Session) -> None:
    answer = result(client, "show")
    assert artifact(answer)["mime_type"] == "image/png"
    assert [block["type"] for block in answer["content"]][:3].count("image") == 2, "allow_raw_output"


def test_files_elsewhere_are_not_taken(client: Session, tmp_path: Path) -> None:
    for at in (str(tmp_path / "out.txt"), "/etc/hostname"):
        answer = result(client, "say", say=f"saved to {at}")
        assert "artifact" not in answer.get("_meta", {}) and "isError" not in answer


def test_other_sessions_files_and_our_own_are_not_taken(client: Session, gateway: Gateways) -> None:
    other = Session(gateway.url)
    theirs = seen(result(other, "see", path=handle_of(other)))["path"]
    for at in (theirs, str(gateway.root / "state" / "records.sqlite")):
        assert Path(at).is_file()
        assert "artifact" not in result(client, "say", say=f"saved to {at}").get("_meta", {})


def test_links_out_of_the_shared_root_are_not_followed(client: Session, gateway: Gateways) -> None:
    link = gateway.root / f"link-{uuid.uuid4().hex}"
    link.symlink_to("/etc/hostname")
    assert "artifact" not in result(client, "say", say=f"saved to {link}").get("_meta", {})


def test_a_good_result_without_its_file_is_passed_on_with_the_reason(client: Session) -> None:
    answer = result(client, "say", say="nothing was saved")
    assert answer["content"] == [{"type": "text", "text": "nothing was saved"}]
    assert answer["_meta"]["artifact_error"]


def test_what_is_not_to_be_kept_is_left_alone(client: Session, gateway: Gateways) -> None:
    at = str(gateway.root / "made" / "left.txt")
    answer = result(client, "tell", at=at, say=at)
    assert answer == {"content": [{"type": "text", "text": at}], "structuredContent": {"file": {"path": at}}}


# --- Artifacts ------------------------------------------------------------------------------------------------------


def test_an_artifact_is_a_resource_of_its_session(gateway: Gateways, client: Session) -> None:
    uri = artifact(result(client, "write", at="kept.txt", text="kept"))["artifact_uri"]
    [entry] = [one for one in rpc(client, "resources/list")["result"]["resources"] if one["uri"] == uri]
    assert (entry["name"], entry["mimeType"], entry["_meta"]["size_bytes"]) == ("kept.txt", "text/plain", 4)
    [contents] = rpc(client, "resources/read", uri=uri)["result"]["contents"]
    assert (contents["uri"], contents["text"], contents["_meta"]["size_bytes"]) == (uri, "kept", 4)
    other = Session(gateway.url)
    assert uri not in [one["uri"] for one in rpc(other, "resources/list")["result"]["resources"]]
    assert rpc(other, "resources/read", uri=uri)["error"]["code"] == -32002


def test_what_is_no_text_is_read_as_base64(client: Session) -> None:
    uri = artifact(result(client, "show"))["artifact_uri"]
    [contents] = rpc(client, "resources/read", uri=uri)["result"]["contents"]
    assert contents["blob"].startswith("iVBORw0KGgo") and "text" not in contents


def test_an_unknown_artifact_is_an_error(client: Session) -> None:
    session_id = offer(client)["session_id"]
    for uri in (f"artifact://sessions/{session_id}/{uuid.uuid4().hex}/x", "artifact://x"):
        assert rpc(client, "resources/read", uri=uri)["error"]["code"] == -32002


def fetch(method: str, url: str) -> tuple[int, Any, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=20)
    try:
        connection.request(method, f"{parts.path}?{parts.query}")
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def test_an_artifact_is_downloaded_by_its_link(client: Session) -> None:
    answer = result(client, "write", at="down.txt", text="down")
    url = artifact(answer)["download_url"]
    assert any(url in block.get("text", "") for block in answer["content"])
    for _ in range(2):
        status, headers, body = fetch("GET", url)
        assert (status, body) == (200, b"down")
        assert "down.txt" in headers["Content-Disposition"] and headers["ETag"]
    assert fetch("HEAD", url)[0] == 200
    assert client.id is not None and client.id not in url, "a link holds no secret but its signature"


def test_a_changed_download_link_is_refused(client: Session) -> None:
    url = artifact(result(client, "write", at="down.txt", text="down"))["download_url"]
    later = {"exp": int(time.time()) + 9, "sig": "0" * 22}
    for other in (
        url.partition("?")[0],
        f"{url.partition('?')[0]}?{urlencode(later)}",
        url.replace("down.txt", "up.txt"),
    ):
        assert fetch("GET", other)[0] in (403, 404)


def test_there_are_no_links_unless_downloads_are_allowed(strict: Session, gateway: Gateways) -> None:
    found = artifact(result(strict, "write", at="a.txt"))
    assert "download_url" not in found and found["expose_as_resource"] is False
    [entry] = rpc(strict, "resources/list")["result"]["resources"][:1]
    assert found["artifact_uri"] != entry["uri"]
    path = f"/artifacts/x-._/{found['artifact_uri'].removeprefix('artifact://sessions/')}"
    assert fetch("GET", f"{gateway.strict.base_url}{path}?a=b")[0] == 404


# --- Sessions -------------------------------------------------------------------------------------------------------


def test_a_session_that_ended_is_unknown_and_so_are_its_links(gateway: Gateways) -> None:
    session = Session(gateway.url)
    url = offer(session)["upload_url"]
    assert session.id is not None
    assert request("DELETE", gateway.url, headers={"Mcp-Session-Id": session.id})[0] in (200, 204)
    body, headers = form(("a.txt", b"a"))
    assert request("POST", url, body, headers)[0] in (403, 409)
    assert "error" in rpc(session, "tools/list")


def test_health_reveals_nothing_internal(gateway: Gateways) -> None:
    status, health = request("GET", f"{gateway.usual.base_url}/healthz")
    assert (status, health["status"]) == (200, "ok")
    assert str(gateway.root) not in json.dumps(health) and "upstream" not in json.dumps(health)
