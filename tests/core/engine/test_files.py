"""Tests of files in the engine: links, uploads, calls that take and make files, artifacts, and their ends."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from driving import (
    DONE,
    UNIX_AT_ZERO,
    Client,
    Driver,
    ask_link,
    connect,
    driver,
    error,
    manifest,
    new_client,
    request,
    result,
    send_in,
    upload,
)
from inside import Inside
from isthmus.core.base.effects import Close, Effect, Spawn
from isthmus.core.base.events import Cause, Connected, DownloadOpening, End, UploadOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    Deliver,
    FileScope,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.storage import (
    Allocate,
    Allocated,
    Collect,
    Collected,
    CollectedFile,
    Discard,
    Fetch,
    Fetched,
    FileSource,
    Forget,
    InlineSource,
    Load,
    Loaded,
    Materialize,
    Materialized,
    Receive,
    Save,
    Saved,
    Serve,
    StorageFailed,
    Survey,
    Sweep,
)
from isthmus.core.files.calls.uris import link_to

HELPER = "files_1_get_upload_url"
BOTH = '{"tools":{},"resources":{}}'
FULL = StorageFailed(reason="the disk is full", is_full=True)

CONSUMERS = (
    UploadConsumer(tools=("eat", "both"), file_path_argument="path"),
    UploadConsumer(tools=("eat_deep",), file_path_argument="options.files[*].path"),
    UploadConsumer(tools=("eat_uri",), file_path_argument="path", deliver=Deliver.FILE_URI),
)


def producer(tool: str, mode: LocatorMode = LocatorMode.NONE, **more: Any) -> ArtifactProducer:
    key, argument = more.pop("key", None), more.pop("argument", None)
    locator = OutputLocator(mode=mode, output_path_key=key)
    return ArtifactProducer(tools=(tool,), output_path_argument=argument, output_locator=locator, **more)


PRODUCERS = (
    producer("write", argument="out"),
    producer("say", LocatorMode.REGEX),
    producer("point", LocatorMode.STRUCTURED, key="file"),
    producer("draw", LocatorMode.EMBEDDED),
    producer("must", LocatorMode.REGEX, required=True),
    producer("show", LocatorMode.STRUCTURED, key="file", allow_raw_output=True),
    producer("hide", LocatorMode.STRUCTURED, key="file", expose_as_resource=False),
    producer("both", LocatorMode.STRUCTURED, key="file"),
)


def server(id: str = "files-1", kind: Kind = Kind.PIPE, **more: Any) -> ServerPlan:
    return ServerPlan(id=id, kind=kind, consumers=CONSUMERS, producers=PRODUCERS, **more)


def filing(*servers: ServerPlan, capabilities: str = BOTH, **more: Any) -> tuple[Driver, Client]:
    world = driver(*(servers or (server(),)), **more)
    return world, connect(world, "http", "files-1", capabilities=capabilities)


def call(client: Client, tool: str, **arguments: object) -> ChannelId:
    return client.request("1", "tools/call", json.dumps({"name": tool, "arguments": arguments}))


def outcome(world: Driver, channel: ChannelId) -> dict[str, Any]:
    found = world.only_message(channel)["result"]
    assert isinstance(found, dict)
    return found


def complaint(world: Driver, channel: ChannelId) -> str:
    """The text of a tool result that says the call failed."""
    found = outcome(world, channel)
    assert found["isError"] is True
    (block,) = found["content"]
    return str(block["text"])


def finish(world: Driver, structured: str = '{"file":"/out/a.txt"}') -> bytes:
    """The tool answers. Returns its result."""
    text = f'{{"content": [],"structuredContent":{structured}}}'
    world.answer(world.take_sent("tools/call"), text)
    return text.encode()


def taken(path: str = "/out/a.txt", size_bytes: int = 5, **more: Any) -> CollectedFile:
    name = path.rpartition("/")[2] if path else more.pop("filename")
    return CollectedFile(path=path, filename=name, size_bytes=size_bytes, sha256="ab" * 32, head=b"hello", **more)


def save_all(world: Driver, effects: list[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Save):
            world.store(effect.ticket, Saved())


def make(world: Driver, client: Client, tool: str = "point", **more: Any) -> dict[str, Any]:
    """Has a tool make one file. Returns `_meta.artifact` of its result."""
    channel = call(client, tool)
    finish(world)
    save_all(world, world.store(world.last(Collect).ticket, Collected(files=(taken(**more),))))
    described = outcome(world, channel)["_meta"]["artifact"]
    assert isinstance(described, dict)
    return described


# --- The helper tool, and what else clients are shown -----------------------------------------------------------------


def tools(world: Driver, client: Client, params: str | None = None, listed: str = '{"tools":[]}') -> list[str]:
    channel = client.request("1", "tools/list", params)
    world.answer(world.take_sent("tools/list"), listed)
    return [tool["name"] for tool in outcome(world, channel)["tools"]]


def test_the_helper_tool_is_listed_first_and_on_the_first_page_only() -> None:
    world, client = filing()
    listed = '{"tools":[{"name":"a","inputSchema":{}}],"nextCursor":"n"}'
    assert tools(world, client, None, listed) == [HELPER, "files_1_put_file", "a"]
    assert tools(world, client, "{}", listed) == [HELPER, "files_1_put_file", "a"]
    assert tools(world, client, '{"cursor":"n"}', listed) == ["a"]


@pytest.mark.parametrize(
    ("plan", "more"),
    [
        (server(), {"uploads_enabled": False}),
        (ServerPlan(id="files-1", kind=Kind.PIPE, producers=PRODUCERS), {}),
        (ServerPlan(id="files-1", kind=Kind.PIPE), {}),
    ],
)
def test_without_uploads_there_is_no_helper_tool_and_its_name_is_the_servers(
    plan: ServerPlan, more: dict[str, Any]
) -> None:
    world, client = filing(plan, **more)
    assert tools(world, client) == []
    call(client, HELPER)
    assert world.was_sent("tools/call")


def test_the_helper_tool_gives_a_link_and_how_to_use_it() -> None:
    world, client = filing()
    found = outcome(world, call(client, HELPER))
    offer = found["structuredContent"]
    assert found["isError"] is False
    assert json.loads(found["content"][0]["text"]) == offer
    url = urlsplit(offer["upload_url"])
    assert (url.scheme, url.netloc, url.path) == ("http", "here", "/upload/files-1")
    expected = {
        "server_id": "files-1",
        "tool_name": HELPER,
        "method": "POST",
        "auth_mode": "signed_upload_credentials",
        "credential_ttl_seconds": 120,
        "field_name": "file",
        "supports_multiple_files": True,
        "sha256_required": False,
        "sha256_field_name": "sha256",
        "sha256_per_file": True,
        "max_file_bytes": 50 * 1024 * 1024,
        "headers": {"Mcp-Session-Id": offer["session_id"]},
    }
    assert {key: offer[key] for key in expected} == expected
    assert offer["session_id"] != client.session, "the secret is not shown to a model"
    assert not world.unread, "nothing goes to the server"


@pytest.mark.parametrize(
    ("plan", "base"),
    [({"public_base_url": "https://pub"}, "https://pub"), ({"fallback_base_url": "http://f"}, "http://here")],
)
def test_links_start_with_the_public_address_else_as_the_client_reached_us(plan: dict[str, str], base: str) -> None:
    world, client = filing(**plan)
    assert outcome(world, call(client, HELPER))["structuredContent"]["upload_url"].startswith(base + "/upload/")


def test_two_links_are_never_equal() -> None:
    _, client = filing()
    assert ask_link(client, HELPER) != ask_link(client, HELPER)


@pytest.mark.parametrize("given", ["{}", '{"tools":{"listChanged":true},"resources":{}}'])
def test_the_proxys_capabilities_are_declared_and_the_servers_stay(given: str) -> None:
    world = driver(server())
    client = new_client(world, "http", "files-1")
    init = client.initialize()
    world.start_server(capabilities=given)
    declared = outcome(world, init)["capabilities"]
    assert set(declared) >= {"tools", "resources"}
    own = {"subscribe": True, "listChanged": True}  # for artifacts, whatever the server declares
    assert declared["resources"] == json.loads(given).get("resources", {}) | own
    assert {name: declared[name] for name in json.loads(given)} | {"resources": 0} == json.loads(given) | {
        "resources": 0
    }


def test_lists_the_server_does_not_have_are_answered_without_it() -> None:
    world, client = filing(capabilities="{}")
    listed = outcome(world, client.request("1", "tools/list"))
    assert [tool["name"] for tool in listed["tools"]] == [HELPER, "files_1_put_file"]
    listed = outcome(world, client.request("2", "resources/list"))
    assert [entry["uri"] for entry in listed["resources"]] == ["doc://upload_workflow.md"]
    assert outcome(world, client.request("3", "resources/templates/list")) == {"resourceTemplates": []}
    read = client.request("4", "resources/read", '{"uri":"file:///etc/passwd"}')
    assert world.only_message(read)["error"]["code"] == -32002
    assert not world.unread


def test_the_upload_guide_can_be_read() -> None:
    world, client = filing()
    (item,) = outcome(world, client.request("1", "resources/read", '{"uri":"doc://upload_workflow.md"}'))["contents"]
    assert item["mimeType"] == "text/markdown"
    assert HELPER in item["text"]


# --- Roots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Kind))
def test_roots_are_the_sessions_own_folders_and_the_client_is_not_asked(kind: Kind) -> None:
    world = driver(server(kind=kind))
    client = new_client(world, "http", "files-1")
    init = client.initialize('{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"x":1.0}')
    if kind is not Kind.HTTP:
        world.open(world.dials[0].channel, Connected())
    declared = world.unread[0].frame["params"]
    assert declared["capabilities"] == {"sampling": {}, "roots": {}}
    stream = world.start_server(listens=True)
    client.session = world.sent[init][-1].session
    client.notify("notifications/initialized")
    stream_of_client = client.listen()
    channel = world.dials[0].channel if stream is None else stream
    world.send(channel, request('"r"', "roots/list"))
    answer = world.take_sent("").frame
    assert answer["id"] == "r"
    roots = answer["result"]["roots"]
    if kind is Kind.PIPE:
        workspace = world.dials[0].target
        assert isinstance(workspace, Spawn)
        base = f"file:///w/{workspace.workspace}"
        assert [root["uri"] for root in roots] == [f"{base}/ws", f"{base}/in", f"{base}/out"]
    assert [root["name"] for root in roots] == ["ws", "in", "out"]
    assert [root["uri"].rpartition("/")[2] for root in roots] == ["ws", "in", "out"]
    assert not world.sent[stream_of_client]
    client.notify("notifications/roots/list_changed")
    assert not world.unread, "the server is not notified of the client's roots"


def test_roots_go_to_the_client_where_the_plan_says_so() -> None:
    world = driver(server(forwards_roots=True))
    client = new_client(world, "http", "files-1")
    params = '{"protocolVersion":"2025-11-25","capabilities":{"x":1.0}}'
    init = client.initialize(params)
    world.open(world.dials[0].channel, Connected())
    assert world.unread[0].raw.endswith(b'"params":' + params.encode() + b"}")
    world.start_server()
    client.session = world.sent[init][-1].session
    client.notify("notifications/initialized")
    stream = client.listen()
    world.send(world.dials[0].channel, request("1", "roots/list"))
    assert world.only_message(stream)["method"] == "roots/list"
    client.notify("notifications/roots/list_changed")
    assert world.was_sent("notifications/roots/list_changed")


def test_two_sessions_have_folders_of_their_own() -> None:
    world, _ = filing()
    connect(world, "http", "files-1")
    targets = [dial.target for dial in world.dials]
    assert len({target.workspace for target in targets if isinstance(target, Spawn)}) == 2


# --- Upload links -----------------------------------------------------------------------------------------------------


def refused(world: Driver, channel: ChannelId) -> tuple[int, str]:
    """Status and code of a file request that was refused."""
    (send,) = world.sent[channel]
    assert send.is_last
    body = json.loads(send.message)
    assert set(body) == {"detail", "code"}
    return send.status, body["code"]


def post(world: Driver, query: dict[str, str], *, to: str = "files-1", session: str | None = None) -> ChannelId:
    return send_in(world, UploadOpening(server=to, query=query, session=session))


def test_a_valid_link_takes_an_upload_and_returns_handles() -> None:
    world, client = filing()
    channel = post(world, ask_link(client, HELPER))
    assert not world.sent[channel]
    order = world.only(Receive)
    assert order.channel == channel
    assert len(set(order.blobs)) == 32
    effects = world.send(channel, manifest(("../b/a b.txt", 11), ("é.PDF", 3)))
    saves = [effect for effect in effects if isinstance(effect, Save)]
    assert effects == saves
    assert len(saves) == 2
    world.store(saves[1].ticket, Saved())
    assert not world.sent[channel], "not before all are saved"
    world.store(saves[0].ticket, Saved())
    reply = world.only_message(channel)
    assert (reply["server_id"], reply["count"]) == ("files-1", 2)
    sid = reply["session_id"]
    assert [file["filename"] for file in reply["uploads"]] == ["a b.txt", "é.PDF"]
    assert [file["mime_type"] for file in reply["uploads"]] == ["text/plain", "application/pdf"]
    assert [file["size_bytes"] for file in reply["uploads"]] == [11, 3]
    assert reply["upload_handles"] == [f"upload://sessions/{sid}/{file['upload_id']}" for file in reply["uploads"]]
    assert "upload_handle" not in reply
    record = json.loads(saves[0].value)
    assert (record["blob"], record["sid"], record["server"]) == (order.blobs[0], sid, "files-1")
    assert saves[0].key == f"upload/{sid}/{record['uid']}"


def test_a_single_file_is_named_in_the_singular_too() -> None:
    world, client = filing()
    channel = post(world, ask_link(client, HELPER))
    save_all(world, world.send(channel, manifest(("a.txt", 1))))
    reply = world.only_message(channel)
    assert reply["upload_handle"] == reply["upload_handles"][0]
    assert reply["upload"]["filename"] == "a.txt"


@pytest.mark.parametrize("which", ["session", "sid", None])
def test_the_session_header_may_be_either_of_the_sessions_names_or_missing(which: str | None) -> None:
    world, client = filing()
    offer = outcome(world, call(client, HELPER))["structuredContent"]
    query = dict(parse_qsl(urlsplit(offer["upload_url"]).query))
    header = {"session": client.session, "sid": offer["session_id"], None: None}[which]
    assert not world.sent[post(world, query, session=header)]


def test_a_link_of_another_session_than_the_header_is_refused_where_files_are_of_it() -> None:
    world, client = filing(file_scope=FileScope.SESSION)
    other = connect(world, "http", "files-1")
    channel = post(world, ask_link(client, HELPER), session=other.session)
    assert refused(world, channel) == (403, "session_mismatch")


def test_an_expired_link_is_refused() -> None:
    world, client = filing(limits=Limits(upload_link_ttl_s=60.0))
    query = ask_link(client, HELPER)
    world.wait(59.0)
    assert not world.sent[post(world, query)]
    world.wait(2.0)
    channel = post(world, query)
    assert refused(world, channel) == (403, "bad_credential")
    assert HELPER in world.only_message(channel)["detail"], "it says what to do about it"


@pytest.mark.parametrize("how", ["missing", "changed", "nonsense"])
def test_a_forged_link_is_refused(how: str) -> None:
    world, client = filing()
    query = ask_link(client, HELPER)
    (name,) = query
    original = query.pop(name)
    last = "1" if original[-1] == "0" else "0"
    if how != "missing":
        query[name] = original[:-1] + last if how == "changed" else "x\n"
    assert refused(world, post(world, query)) == (403, "bad_credential")
    assert not world.every(Receive)
    query[name] = original
    assert not world.sent[post(world, query)], "the link itself is unharmed"


def test_a_link_for_another_server_is_refused() -> None:
    world, client = filing(server(), server("files-2"), ServerPlan(id="plain", kind=Kind.PIPE))
    query = ask_link(client, HELPER)
    assert refused(world, post(world, query, to="files-2")) == (403, "bad_credential")
    assert refused(world, post(world, query, to="plain")) == (403, "uploads_disabled")
    assert refused(world, post(world, query, to="nowhere")) == (404, "unknown_server")


def test_a_link_works_for_one_upload() -> None:
    world, client = filing()
    query = ask_link(client, HELPER)
    early = post(world, query)
    save_all(world, world.send(post(world, query), manifest(("a", 1))))
    assert refused(world, post(world, query)) == (403, "bad_credential")
    effects = world.send(early, manifest(("b", 1)))
    assert effects[0] == Discard(blob=world.every(Receive)[0].blobs[0]), "one that had begun is too late"
    assert refused(world, early) == (403, "bad_credential")


def test_a_link_is_not_used_up_by_an_upload_that_failed() -> None:
    """A refused request may be corrected and sent again."""
    world, client = filing()
    query = ask_link(client, HELPER)
    world.end(post(world, query), Cause(End.GONE))
    channel = post(world, query)
    (first, second) = world.send(channel, manifest(("a", 1), ("b", 1)))
    assert isinstance(first, Save)
    assert isinstance(second, Save)
    world.store(first.ticket, Saved())
    effects = world.store(second.ticket, FULL)
    assert refused(world, channel) == (507, "storage_failed")
    blobs = world.last(Receive).blobs
    assert effects[:4] == [
        Forget(key=first.key),
        Forget(key=second.key),
        Discard(blob=blobs[0]),
        Discard(blob=blobs[1]),
    ]
    again = post(world, query)
    save_all(world, world.send(again, manifest(("a", 1))))
    assert world.only_message(again)["count"] == 1


def test_two_uploads_on_one_link_at_once_do_not_both_succeed() -> None:
    world, client = filing()
    query = ask_link(client, HELPER)
    channels = [post(world, query) for _ in range(2)]
    (save,) = world.send(channels[0], manifest(("a", 1)))
    assert isinstance(save, Save)
    world.send(channels[1], manifest(("b", 1)))
    assert refused(world, channels[1]) == (403, "bad_credential")
    world.store(save.ticket, Saved())
    assert world.only_message(channels[0])["count"] == 1


def test_a_link_of_a_session_that_has_ended_is_refused_where_files_are_of_it() -> None:
    world, client = filing(file_scope=FileScope.SESSION)
    query = ask_link(client, HELPER)
    late = post(world, query)
    client.delete()
    assert refused(world, post(world, query)) == (409, "session_gone")
    assert isinstance(world.send(late, manifest(("a", 1)))[0], Discard)
    assert refused(world, late) == (409, "session_gone")


def test_an_upload_whose_session_ends_while_it_is_saved_leaves_nothing_where_files_are_of_it() -> None:
    world, client = filing(file_scope=FileScope.SESSION)
    channel = post(world, ask_link(client, HELPER))
    (save,) = world.send(channel, manifest(("a", 1)))
    assert isinstance(save, Save)
    client.delete()
    effects = world.store(save.ticket, Saved())
    assert effects[:2] == [Forget(key=save.key), Discard(blob=world.only(Receive).blobs[0])]
    assert world.sent[channel][0].status == 409


def test_the_log_never_shows_the_secrets_of_a_link() -> None:
    world, client = filing()
    query = ask_link(client, HELPER)
    post(world, {"grant": query["grant"][:-1] + "~"})
    post(world, {"grant": query["grant"][:-22] + "0" * 22})
    assert world.notes("warning")
    assert not any(value in note for value in query.values() for note in world.notes("warning"))


# --- Tools that take files --------------------------------------------------------------------------------------------


def place(world: Driver, *paths: str) -> None:
    """Answers the Materialize orders of the last call, in order."""
    orders = world.every(Materialize)[-len(paths) :]
    for order, path in zip(orders, paths, strict=True):
        world.store(order.ticket, Materialized(path=path))


def test_a_handle_becomes_the_path_where_the_server_finds_the_file() -> None:
    world, client = filing()
    (handle,) = upload(client, HELPER, ("a b.txt", 5))
    channel = client.request("1", "tools/call", f'{{"x":1.0,"arguments":{{"n": 1.0,"path":"{handle}"}},"name":"eat"}}')
    assert not world.unread, "not before the file is there"
    order = world.only(Materialize)
    spawned = world.dials[0].target
    assert isinstance(spawned, Spawn)
    assert (order.workspace, order.blob, order.filename) == (spawned.workspace, world.last(Receive).blobs[0], "a b.txt")
    world.store(order.ticket, Materialized(path="/w/in/a b.txt"))
    sent = world.take_sent("tools/call")
    assert sent.raw.endswith(b'"params":{"x":1.0,"arguments":{"n": 1.0,"path":"/w/in/a b.txt"},"name":"eat"}}')
    world.answer(sent, '{"content":[]}')
    assert world.messages(channel) == [result("1", '{"content":[]}')]


def test_lists_nested_arguments_and_uris() -> None:
    world, client = filing()
    one, two = upload(client, HELPER, ("1", 1), ("2", 2))
    call(client, "eat", path=[one, two])
    place(world, "/in/1", "/in/2")
    assert world.take_sent("tools/call").frame["params"]["arguments"] == {"path": ["/in/1", "/in/2"]}
    call(client, "eat_deep", options={"files": [{"path": two, "as": "x"}, {"path": one + "/1.txt"}, {"as": "y"}]})
    place(world, "/in/2", "/in/1")
    assert world.take_sent("tools/call").frame["params"]["arguments"] == {
        "options": {"files": [{"path": "/in/2", "as": "x"}, {"path": "/in/1"}, {"as": "y"}]}
    }
    call(client, "eat_uri", path=one)
    place(world, "/in/1 é")
    assert world.take_sent("tools/call").frame["params"]["arguments"] == {"path": "file:///in/1%20%C3%A9"}


def test_one_handle_in_several_places_is_placed_once() -> None:
    world, client = filing()
    (handle,) = upload(client, HELPER, ("1", 1))
    call(client, "eat", path=[handle, handle])
    place(world, "/in/1")
    assert world.take_sent("tools/call").frame["params"]["arguments"] == {"path": ["/in/1", "/in/1"]}
    assert len(world.every(Materialize)) == 1


@pytest.mark.parametrize("arguments", [{}, {"path": None}, {"other": "upload://x"}])
def test_a_call_without_its_file_argument_passes(arguments: dict[str, object]) -> None:
    world, client = filing()
    call(client, "eat", **arguments)
    assert world.take_sent("tools/call").frame["params"]["arguments"] == arguments


def test_a_call_of_another_tool_passes_byte_for_byte() -> None:
    world, client = filing()
    (handle,) = upload(client, HELPER, ("1", 1))
    params = f'{{ "name":"plain","arguments":{{"path":"{handle}","n":1.0}}}}'
    client.request("1", "tools/call", params)
    assert world.take_sent("tools/call").raw.endswith(b'"params":' + params.encode() + b"}")


@pytest.mark.parametrize(
    "value", ["/etc/passwd", "", 7, {"a": 1}, [7], "upload://sessions/../..", "artifact://sessions/a/b/c", ["x", "y"]]
)
def test_a_value_that_is_no_handle_is_refused_with_advice(value: object) -> None:
    world, client = filing()
    text = complaint(world, call(client, "eat", path=value))
    assert "path" in text
    assert HELPER in text
    assert not world.unread
    assert not world.every(Materialize)


@pytest.mark.parametrize(("scope", "principal"), [(FileScope.PRINCIPAL, "eve"), (FileScope.SESSION, "")])
def test_unknown_and_foreign_handles_are_refused_alike(scope: FileScope, principal: str) -> None:
    """The handle is of another principal, or of another session where files are of their session."""
    world, client = filing(server(), server("files-2"), file_scope=scope)
    neighbour, elsewhere = connect(world, "http", "files-1", principal=principal), connect(world, "http", "files-2")
    (theirs,) = upload(neighbour, HELPER, ("secret", 1))
    (other,) = upload(elsewhere, "files_2_get_upload_url", ("secret", 1))
    (mine,) = upload(client, HELPER, ("a", 1))
    sid = mine.split("/")[3]
    guessed = f"upload://sessions/{sid}/{theirs.split('/')[4]}"
    texts = set()
    for handle in (theirs, other, guessed, f"upload://sessions/{sid}/{'0' * 32}"):
        text = complaint(world, call(client, "eat", path=handle))
        assert handle in text
        texts.add(text.replace(handle, "<handle>"))
    assert len(texts) == 1
    assert HELPER in texts.pop()
    assert not world.every(Materialize)
    assert not world.unread


def test_a_file_that_cannot_be_placed_fails_the_call_and_nothing_is_sent() -> None:
    world, client = filing()
    one, two = upload(client, HELPER, ("one.txt", 1), ("two.txt", 1))
    channel = call(client, "eat", path=[one, two])
    first, second = world.every(Materialize)
    world.store(first.ticket, StorageFailed(reason="it is gone", is_missing=True))
    assert not world.sent[channel]
    world.store(second.ticket, Materialized(path="/in/two.txt"))
    text = complaint(world, channel)
    assert "one.txt" in text
    assert "it is gone" in text
    assert not world.unread


def test_a_handle_in_use_does_not_expire_while_the_call_runs() -> None:
    world, client = filing(limits=Limits(upload_ttl_s=100.0))
    (handle,) = upload(client, HELPER, ("a", 1))
    call(client, "eat", path=handle)
    place(world, "/in/a")
    sent = world.take_sent("tools/call")
    world.wait(1000.0)
    assert not world.every(Discard)
    world.answer(sent)
    world.wait(100.0)
    assert len(world.every(Discard)) == 1
    assert "Unknown upload handle" in complaint(world, call(client, "eat", path=handle))


def test_a_call_cancelled_while_its_file_is_placed_is_never_written() -> None:
    world, client = filing()
    (handle,) = upload(client, HELPER, ("a", 1))
    channel = call(client, "eat", path=handle)
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert channel in world.closed
    place(world, "/in/a")
    assert not world.unread
    assert not world.sent[channel]


def test_a_file_call_waits_for_a_server_that_must_be_made_anew() -> None:
    world, client = filing()
    (handle,) = upload(client, HELPER, ("a", 1))
    world.end(world.dials[0].channel, Cause(End.BROKEN))
    call(client, "eat", path=handle)
    place(world, "/in/a")
    world.start_server(capabilities=BOTH)
    assert world.take_sent("tools/call").frame["params"]["arguments"] == {"path": "/in/a"}


def test_a_repeated_member_in_a_file_call_is_refused() -> None:
    world, client = filing()
    channel = client.request("1", "tools/call", '{"name":"plain","name":"eat"}')
    assert world.only_message(channel)["error"]["code"] == -32602
    assert not world.unread


# --- Tools that make files --------------------------------------------------------------------------------------------


def test_an_artifact_is_collected_saved_and_described() -> None:
    world, client = filing()
    channel = call(client, "point")
    given = finish(world)
    collect = world.only(Collect)
    spawned = world.dials[0].target
    assert isinstance(spawned, Spawn)
    assert collect.sources == (FileSource(candidates=("/out/a.txt",), stamp="s"),)
    assert (collect.server, collect.workspace) == ("files-1", spawned.workspace)
    assert collect.size_max_bytes == 1024 * 1024 * 1024
    (save,) = world.store(collect.ticket, Collected(files=(taken("/out/a.txt", 5),)))
    assert isinstance(save, Save)
    assert not world.sent[channel], "not before it is saved for good"
    world.store(save.ticket, Saved())
    record = json.loads(save.value)
    found = outcome(world, channel)
    described = found["_meta"]["artifact"]
    sid, aid = record["sid"], record["aid"]
    url = described.pop("download_url")
    assert described == {
        "artifact_uri": f"artifact://sessions/{sid}/{aid}/a.txt",
        "artifact_id": aid,
        "filename": "a.txt",
        "mime_type": "text/plain",
        "size_bytes": 5,
        "sha256": "ab" * 32,
        "expose_as_resource": True,
        "expires_at": "2001-09-09T02:48:20Z",
        "version": 1,
    }
    assert save.expires_at_unix == UNIX_AT_ZERO + 100 + 3600
    assert save.key == f"artifact/{sid}/{aid}"
    assert record["blob"] == collect.blobs[0]
    assert url.startswith(f"http://here/artifacts/files-1/{sid}/{aid}/a.txt?")
    assert "artifacts" not in found["_meta"]
    assert found["structuredContent"] == json.loads(given)["structuredContent"]
    link, text = found["content"]
    assert link == {
        "type": "resource_link",
        "uri": described["artifact_uri"],
        "name": "a.txt",
        "mimeType": "text/plain",
        "size": 5,
    }
    assert url in text["text"]


def test_resource_links_are_given_only_where_the_revision_has_them() -> None:
    world = driver(server())
    client = connect(world, "http", "files-1", capabilities=BOTH, revision="2025-03-26")
    channel = call(client, "point")
    finish(world)
    save_all(world, world.store(world.last(Collect).ticket, Collected(files=(taken(),))))
    assert [block["type"] for block in outcome(world, channel)["content"]] == ["text"]


def test_several_artifacts_are_all_described_and_one_file_is_taken_once() -> None:
    many = producer("many", LocatorMode.STRUCTURED, key="files[*]")
    world, client = filing(ServerPlan(id="files-1", kind=Kind.PIPE, producers=(many,)))
    channel = call(client, "many")
    finish(world, '{"files":["/out/a.txt","/out/link","/out/c.txt","/out/none"]}')
    collect = world.only(Collect)
    files = (taken("/out/a.txt"), taken("/out/a.txt"), taken("/out/c.txt"), CollectedFile(problem="no such file"))
    effects = world.store(collect.ticket, Collected(files=files))
    assert [effect for effect in effects if isinstance(effect, Discard)] == [Discard(blob=collect.blobs[1])]
    save_all(world, effects)
    meta = outcome(world, channel)["_meta"]
    assert [one["filename"] for one in meta["artifacts"]] == ["a.txt", "c.txt"]
    assert meta["artifact"] == meta["artifacts"][0]


@pytest.mark.parametrize("wanted", [None, "shots/ü.png", "/etc/passwd.png"])
def test_an_output_argument_is_given_a_place_and_what_is_there_is_taken(wanted: str | None) -> None:
    world, client = filing()
    channel = call(client, "write", **({"out": wanted} if wanted else {}), n=1)
    assert not world.unread
    allocate = world.only(Allocate)
    expected = {None: f"artifact-{allocate.folders[0][:8]}", "shots/ü.png": "ü.png", "/etc/passwd.png": "passwd.png"}
    assert allocate.filename == expected[wanted]
    world.store(allocate.ticket, Allocated(path="/w/out/x/ü.png"))
    sent = world.take_sent("tools/call")
    assert sent.frame["params"]["arguments"] == {"out": "/w/out/x/ü.png", "n": 1}
    world.answer(sent, '{"content":[]}')
    collect = world.only(Collect)
    assert collect.sources == (FileSource(candidates=("/w/out/x/ü.png",), stamp="s"),)
    save_all(world, world.store(collect.ticket, Collected(files=(taken("/w/out/x/ü.png"),))))
    described = outcome(world, channel)["_meta"]["artifact"]
    assert (described["artifact_id"],) == allocate.folders
    assert described["filename"] == "ü.png"


def test_an_output_without_a_place_fails_the_call_and_nothing_is_sent() -> None:
    world, client = filing()
    channel = call(client, "write")
    world.store(world.only(Allocate).ticket, FULL)
    assert "the disk is full" in complaint(world, channel)
    assert not world.unread


def test_each_path_in_the_text_is_looked_at() -> None:
    world, client = filing()
    call(client, "say")
    blocks = json.dumps([{"type": "text", "text": "Saved to /out/a.txt and [b](/out/b.txt)"}])
    world.answer(world.take_sent("tools/call"), f'{{"content":{blocks}}}')
    first = {paths[0] for paths in world.only(Survey).named}
    assert {"/out/a.txt", "/out/b.txt"} <= first


def test_embedded_content_is_taken_in_block_by_block() -> None:
    world, client = filing()
    channel = call(client, "draw")
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    blocks = [
        {"type": "text", "text": "here"},
        {"type": "image", "data": png, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x:///notes.md", "text": "# hi"}},
    ]
    world.answer(world.take_sent("tools/call"), json.dumps({"content": blocks}))
    collect = world.only(Collect)
    image, note = collect.sources
    assert isinstance(image, InlineSource)
    assert isinstance(note, InlineSource)
    assert (image.data, image.mime_type) == (b"\x89PNG\r\n\x1a\n", "image/png")
    assert (note.data, note.filename) == (b"# hi", "notes.md")
    files = (taken("", 8, filename="image-1.png"), taken("", 4, filename="notes.md"))
    save_all(world, world.store(collect.ticket, Collected(files=files)))
    found = outcome(world, channel)
    assert [one["filename"] for one in found["_meta"]["artifacts"]] == ["image-1.png", "notes.md"]
    assert found["content"][:3] == blocks


def test_the_content_itself_is_added_where_the_adapter_says_so() -> None:
    world, client = filing()
    channel = call(client, "show")
    finish(world)
    effects = world.store(world.only(Collect).ticket, Collected(files=(taken(),)))
    save_all(world, effects)
    assert not world.sent[channel]
    fetch = world.only(Fetch)
    assert fetch.blob == world.only(Collect).blobs[0]
    world.store(fetch.ticket, Fetched(data=b"hello"))
    raw = outcome(world, channel)["content"][0]
    assert raw["type"] == "resource"
    assert raw["resource"]["text"] == "hello"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"content":[{"type":"text","text":"nothing to see"}]}', "the result names no file"),
        ('{"content":[{"type":"text","text":"/out/a.txt"}],"_meta":{"k":1.0}}', "no such file"),
    ],
)
def test_nothing_found_leaves_the_result_as_it_is_and_says_why(text: str, reason: str) -> None:
    """A file that was not taken is also told in the content, which models are shown."""
    world, client = filing()
    channel = call(client, "say")
    world.answer(world.take_sent("tools/call"), text)
    for order in world.every(Collect):
        world.store(order.ticket, Collected(files=(CollectedFile(problem=reason),)))
    found = outcome(world, channel)
    assert found["_meta"].pop("artifact_error") == reason
    expected = json.loads(text)
    expected.setdefault("_meta", {})
    if reason == "no such file":
        assert found["content"].pop() == {"type": "text", "text": "Not transferred: no such file."}
    assert found == expected
    assert not world.every(Save)


def test_an_artifact_that_is_required_and_not_found_fails_the_call() -> None:
    world, client = filing()
    channel = call(client, "must")
    world.answer(world.take_sent("tools/call"), '{"content":[{"type":"text","text":"done"}]}')
    assert "the result names no file" in complaint(world, channel)


@pytest.mark.parametrize("tool", ["say", "must", "point", "write"])
def test_a_failed_tool_result_passes_byte_for_byte(tool: str) -> None:
    """Paths in a failed result are not looked at: they may be those that the tool could not use."""
    world, client = filing()
    channel = call(client, tool)
    for order in world.every(Allocate):
        world.store(order.ticket, Allocated(path="/w/out/x"))
    text = '{"content":[{"type":"text","text":"cannot write /out/a.txt"}], "isError":true}'
    world.answer(world.take_sent("tools/call"), text)
    assert world.messages(channel) == [result("1", text)]
    assert not world.every(Collect)


def test_an_error_of_the_server_passes_byte_for_byte() -> None:
    world, client = filing()
    channel = call(client, "point")
    sent = world.take_sent("tools/call")
    world.reply(sent, error(str(sent.id), '{"code":-1,"message":"no","data":1.0}'))
    assert world.messages(channel) == [error("1", '{"code":-1,"message":"no","data":1.0}')]


@pytest.mark.parametrize("stage", ["collect", "save"])
def test_a_storage_failure_after_the_call_loses_no_result(stage: str) -> None:
    world, client = filing()
    channel = call(client, "point")
    finish(world)
    collect = world.only(Collect)
    if stage == "collect":
        world.store(collect.ticket, FULL)
    else:
        (save,) = world.store(collect.ticket, Collected(files=(taken(),)))
        assert isinstance(save, Save)
        effects = world.store(save.ticket, FULL)
        assert Discard(blob=collect.blobs[0]) in effects
    found = outcome(world, channel)
    assert found["structuredContent"] == {"file": "/out/a.txt"}
    assert found["_meta"] == {"artifact_error": "the disk is full"}
    assert outcome(world, list_resources(world, client))["resources"] == [workflow()]


def workflow() -> dict[str, str]:
    return {
        "uri": "doc://upload_workflow.md",
        "name": "upload_workflow.md",
        "title": "How to pass files to this server's tools",
        "description": "The three steps from a local file to a tool argument.",
        "mimeType": "text/markdown",
    }


@pytest.mark.parametrize("stage", ["collect", "save", "fetch"])
@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_storage_answers_for_a_call_that_is_over_are_discarded(stage: str, how: str) -> None:
    world, client = filing()
    channel = call(client, "show")
    finish(world)
    collect = world.only(Collect)
    saves: list[Save] = []

    def collected() -> None:
        saves.extend(
            effect for effect in world.store(collect.ticket, Collected(files=(taken(),))) if isinstance(effect, Save)
        )

    if stage != "collect":
        collected()
    if stage == "fetch":
        world.store(saves[0].ticket, Saved())
    if how == "cancel":
        client.notify("notifications/cancelled", '{"requestId":1}')
    else:
        client.delete()
    sent_before = len(world.sent[channel])
    if stage == "collect":
        collected()
        assert world.last(Discard).blob == collect.blobs[0]
        assert not saves
    elif stage == "save":
        effects = world.store(saves[0].ticket, Saved())
        assert effects == [Forget(key=saves[0].key), Discard(blob=collect.blobs[0])]
    else:
        world.store(world.only(Fetch).ticket, Fetched(data=b"hello"))
        assert not world.every(Discard), "it was saved: it lives until its deadline"
    assert len(world.sent[channel]) == sent_before


# --- Reading artifacts ------------------------------------------------------------------------------------------------


def list_resources(world: Driver, client: Client, listed: str = '{"resources":[]}') -> ChannelId:
    channel = client.request('"l"', "resources/list")
    world.answer(world.take_sent("resources/list"), listed)
    return channel


def test_artifacts_are_listed_after_the_servers_own_resources_on_the_last_page() -> None:
    world, client = filing()
    described = make(world, client)
    make(world, client, "hide")
    own = '{"uri":"a:///b","name":"b" }'
    channel = list_resources(world, client, f'{{"resources":[{own}],"nextCursor":"n"}}')
    assert world.messages(channel) == [result('"l"', f'{{"resources":[{own}],"nextCursor":"n"}}')]
    for is_last in ("", ',"nextCursor":null'):
        channel = list_resources(world, client, f'{{"resources":[{own}]{is_last}}}')
        assert own.encode() in world.messages(channel)[0]
    first, guide, listed = outcome(world, channel)["resources"]
    assert (first["uri"], guide["uri"]) == ("a:///b", "doc://upload_workflow.md")
    assert listed == {
        "uri": described["artifact_uri"],
        "name": "a.txt",
        "description": "Written by point",
        "mimeType": "text/plain",
        "size": 5,
        "_meta": {"size_bytes": 5},
    }


def test_an_artifact_can_be_read_as_often_as_wanted() -> None:
    world, client = filing()
    described = make(world, client)
    for n in range(2):
        channel = client.request(str(n), "resources/read", json.dumps({"uri": described["artifact_uri"]}))
        fetch = world.last(Fetch)
        assert fetch.blob == world.only(Collect).blobs[0]
        world.store(fetch.ticket, Fetched(data=b"hello"))
        (item,) = outcome(world, channel)["contents"]
        assert item == {
            "uri": described["artifact_uri"],
            "mimeType": "text/plain",
            "text": "hello",
            "_meta": {"size_bytes": 5},
        }


@pytest.mark.parametrize(("scope", "principal"), [(FileScope.PRINCIPAL, "eve"), (FileScope.SESSION, "")])
def test_only_ones_own_exposed_artifacts_can_be_read(scope: FileScope, principal: str) -> None:
    world, client = filing(server(), server("files-2"), file_scope=scope)
    neighbour = connect(world, "http", "files-1", capabilities=BOTH, principal=principal)
    elsewhere = connect(world, "http", "files-2", capabilities=BOTH)
    mine = make(world, client)["artifact_uri"]
    hidden = make(world, client, "hide")["artifact_uri"]
    answers = set()
    nothing = mine.replace(mine.split("/")[4], "0" * 32)
    for who, uri in ((neighbour, mine), (elsewhere, mine), (client, hidden), (client, nothing), (client, mine[:40])):
        channel = who.request("1", "resources/read", json.dumps({"uri": uri}))
        answers.add(world.messages(channel)[0].replace(uri.encode(), b"<uri>"))
    assert len(answers) == 1
    seen = json.loads(answers.pop())["error"]
    assert (seen["code"], seen["data"]) == (-32002, {"uri": "<uri>"})
    assert not world.every(Fetch)
    assert not world.unread
    for who in (neighbour, elsewhere):
        assert mine not in world.messages(list_resources(world, who))[0].decode()


def test_other_resources_are_read_from_the_server() -> None:
    world, client = filing()
    client.request("1", "resources/read", '{ "uri":"file:///a","x":1.0}')
    assert world.take_sent("resources/read").raw.endswith(b'"params":{ "uri":"file:///a","x":1.0}}')


def test_an_artifact_that_cannot_be_read_is_an_error() -> None:
    world, client = filing()
    described = make(world, client)
    channel = client.request("1", "resources/read", json.dumps({"uri": described["artifact_uri"]}))
    world.store(world.only(Fetch).ticket, StorageFailed(reason="lost", is_missing=True))
    assert world.only_message(channel)["error"]["code"] == -32603


def test_a_read_that_is_cancelled_is_not_answered() -> None:
    world, client = filing()
    described = make(world, client)
    channel = client.request("1", "resources/read", json.dumps({"uri": described["artifact_uri"]}))
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert world.store(world.only(Fetch).ticket, Fetched(data=b"hello")) == []
    assert not world.sent[channel]
    assert not world.unread


def test_artifacts_go_at_their_deadline() -> None:
    world, client = filing(limits=Limits(artifact_ttl_s=50.0))
    described = make(world, client)
    record = world.only(Save).key
    world.wait(49.9)
    assert not world.every(Forget)
    effects = world.wait(0.2)
    assert effects == [Forget(key=record), Discard(blob=world.only(Collect).blobs[0])]
    channel = client.request("1", "resources/read", json.dumps({"uri": described["artifact_uri"]}))
    assert world.only_message(channel)["error"]["code"] == -32002


# --- Downloads --------------------------------------------------------------------------------------------------------


def opening_of(url: str, **changes: Any) -> DownloadOpening:
    parts = urlsplit(url)
    _, _, server_id, sid, aid, filename = parts.path.split("/")
    query = dict(parse_qsl(parts.query))
    query.update(changes.pop("query", {}))
    fields = {"server": server_id, "sid": sid, "artifact": aid, "filename": filename, "query": query, **changes}
    return DownloadOpening(**fields)


def download(world: Driver, opening: DownloadOpening) -> ChannelId:
    channel = world.engine.new_channel()
    world.open(channel, opening)
    return channel


def test_a_valid_link_serves_the_blob_without_a_session() -> None:
    world, client = filing()
    described = make(world, client)
    channel = download(world, opening_of(described["download_url"]))
    assert world.only(Serve) == Serve(
        channel=channel,
        blob=world.only(Collect).blobs[0],
        filename="a.txt",
        mime_type="text/plain",
        size_bytes=5,
        sha256="ab" * 32,
        stored_at_unix=world.only(Serve).stored_at_unix,
    )
    assert 0 < world.only(Serve).stored_at_unix <= UNIX_AT_ZERO + world.now
    assert not world.sent[channel]


def test_a_link_to_an_upload_serves_it_too() -> None:
    world, client = filing()
    (uri,) = upload(client, HELPER, ("a.txt", 5))
    sid, uid = uri.split("/")[3:]
    entry = Inside(world.engine).file_store.find_any(sid, uid)
    assert entry is not None
    (session,) = Inside(world.engine).sessions.sessions.values()
    url = link_to(Inside(world.engine).context, session, entry.record)
    assert url is not None
    channel = download(world, opening_of(url))
    order = world.only(Serve)
    assert (order.channel, order.blob, order.filename) == (channel, entry.record.blob, "a.txt")
    forged = download(world, opening_of(url, artifact="0" * 32))
    assert refused(world, forged) == (403, "bad_credential")


@pytest.mark.parametrize(
    "changes",
    [
        {"server": "files-2"},
        {"sid": "0" * 32},
        {"artifact": "0" * 32},
        {"filename": "b.html"},
        {"query": {"sig": "0" * 22}},
        {"query": {"exp": "9999999999"}},
        {"query": {"exp": "soon"}},
    ],
)
def test_a_changed_link_is_refused(changes: dict[str, Any]) -> None:
    world, client = filing()
    described = make(world, client)
    channel = download(world, opening_of(described["download_url"], **changes))
    assert refused(world, channel) == (403, "bad_credential")
    assert not world.every(Serve)
    assert not world.every(Load)


def test_an_expired_link_serves_nothing() -> None:
    world, client = filing(limits=Limits(artifact_ttl_s=50.0))
    described = make(world, client)
    world.wait(52.0)
    channel = download(world, opening_of(described["download_url"]))
    assert refused(world, channel) == (403, "bad_credential")


def test_switched_off_downloads_serve_nothing_and_are_not_offered() -> None:
    world, client = filing()
    url = make(world, client)["download_url"]
    off, other = filing(downloads_enabled=False)
    assert "download_url" not in make(off, other)
    assert refused(off, download(off, opening_of(url))) == (404, "downloads_disabled")


def test_a_record_of_an_earlier_run_is_loaded() -> None:
    """A link that was handed out keeps working after a restart of the proxy."""
    world, client = filing()
    described = make(world, client)
    saved = world.only(Save)
    later, _ = filing()
    channel = download(later, opening_of(described["download_url"]))
    load, other = later.every(Load)
    assert (load.key, other.key) == (saved.key, saved.key.replace("artifact/", "upload/"))
    later.store(load.ticket, Loaded(value=saved.value))
    assert not later.sent[channel]
    later.store(other.ticket, Loaded())
    assert later.only(Serve).blob == world.only(Collect).blobs[0]


def expired(value: bytes) -> bytes:
    return msgspec.json.encode({**json.loads(value), "expires_at_unix": 1.0})


def elsewhere(value: bytes) -> bytes:
    return msgspec.json.encode({**json.loads(value), "server": "files-2"})


@pytest.mark.parametrize(
    "broken", [lambda v: None, lambda v: b"{", lambda v: b"{}", expired, elsewhere, lambda v: v.replace(b"5", b'"5"')]
)
def test_a_record_that_is_gone_broken_or_of_another_server_serves_nothing(broken: Any) -> None:
    world, client = filing()
    described = make(world, client)
    later, _ = filing()
    channel = download(later, opening_of(described["download_url"]))
    load, other = later.every(Load)
    later.store(other.ticket, Loaded())
    later.store(load.ticket, Loaded(value=broken(world.only(Save).value)))
    assert refused(later, channel) == (404, "not_found")
    assert not later.every(Serve)


def test_a_download_that_hung_up_while_its_record_was_loaded_is_not_served() -> None:
    world, client = filing()
    described = make(world, client)
    later, _ = filing()
    channel = download(later, opening_of(described["download_url"]))
    later.end(channel, Cause(End.GONE))
    load, other = later.every(Load)
    later.store(other.ticket, Loaded())
    assert later.store(load.ticket, Loaded(value=world.only(Save).value)) == []


def test_a_download_link_outlives_its_session() -> None:
    world, client = filing()
    described = make(world, client)
    client.delete()
    download(world, opening_of(described["download_url"]))
    assert world.every(Serve)


# --- The end of a session ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", FileScope)
def test_a_session_takes_its_folders_with_it_once_the_process_is_gone(scope: FileScope) -> None:
    """Uploads go with it only where files are of their session."""
    world, client = filing(file_scope=scope)
    other = connect(world, "http", "files-1")
    upload(other, HELPER, ("b", 1))
    (handle,) = upload(client, HELPER, ("a", 1))
    blob = world.last(Receive).blobs[0]
    make(world, client)
    client.delete()
    if scope is FileScope.SESSION:
        assert [effect.blob for effect in world.every(Discard)] == [blob], "its own uploads only, and no artifact"
        assert world.last(Forget).key.endswith(handle.rpartition("/")[2])
    else:
        assert not world.every(Discard)
    assert not world.every(Sweep), "the process may still write there"
    child = world.dials[0]
    assert isinstance(child.target, Spawn)
    assert world.end(child.channel, DONE) == [Sweep(workspace=child.target.workspace)]


def test_folders_are_kept_while_a_process_that_was_given_up_still_runs() -> None:
    world = driver(server(), limits=Limits(start_timeout_s=5.0))
    client = new_client(world, "http", "files-1")
    client.initialize()
    world.wait(5.1)
    child = world.dials[0]
    assert child.channel in world.closed
    assert world.engine.session_count == 0
    assert not world.every(Sweep)
    world.end(child.channel, DONE)
    assert len(world.every(Sweep)) == 1


def test_folders_outlive_a_process_that_died_within_its_session() -> None:
    world, client = filing()
    world.end(world.dials[0].channel, Cause(End.BROKEN))
    assert not world.every(Sweep)
    client.delete()
    assert len(world.every(Sweep)) == 1


def test_a_process_that_cannot_be_started_leaves_no_folders() -> None:
    world = driver(server())
    new_client(world, "http", "files-1").initialize()
    world.end(world.dials[0].channel, Cause(End.UNREACHABLE))
    assert len(world.every(Sweep)) == 1


def test_over_http_folders_go_at_once() -> None:
    world, client = filing(server(kind=Kind.HTTP))
    client.delete()
    assert len(world.every(Sweep)) == 1


def test_servers_without_files_have_no_folders_to_sweep() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    client.delete()
    world.end(world.dials[0].channel, DONE)
    assert not world.every(Sweep)


def test_files_of_a_pipe_client_go_when_it_hangs_up() -> None:
    world = driver(server())
    client = connect(world, "pipe", "files-1", capabilities=BOTH)
    assert client.pipe is not None
    world.end(client.pipe, Cause(End.GONE))
    assert [effect for effect in world.every(Close) if effect.channel == world.dials[0].channel]
    world.end(world.dials[0].channel, DONE)
    assert len(world.every(Sweep)) == 1


def test_nothing_of_the_file_plane_is_done_for_other_servers() -> None:
    world, _ = filing(server(), ServerPlan(id="plain", kind=Kind.PIPE))
    plain = connect(world, "http", "plain")
    listed = '{"tools":[{"name":"eat"}]}'
    channel = plain.request("1", "tools/list")
    world.answer(world.take_sent("tools/list"), listed)
    assert world.messages(channel) == [result("1", listed)]
    plain.request("2", "tools/call", '{"name":"eat","arguments":{"path":"upload://x"}}')
    assert world.take_sent("tools/call").frame["params"]["arguments"] == {"path": "upload://x"}
    stream = plain.listen()
    plain.request("3", "tools/call", "{}")  # two are open: a message of neither goes to the stream
    world.send(world.last_dial(Spawn).channel, request("1", "roots/list"))
    assert world.only_message(stream)["method"] == "roots/list", "the client's roots"
