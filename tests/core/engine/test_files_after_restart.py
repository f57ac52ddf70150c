"""Tests of files after a restart: the next engine has the uploads that were saved, for their owners and for no other
client."""

from __future__ import annotations

import json

import msgspec
import pytest
from driving import Client, Driver, connect, driver, upload
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import FileScope, Kind, ServerPlan, UploadConsumer
from isthmus.core.base.storage import Discard, Forget, Materialize, Materialized, Save
from isthmus.core.state.records import StoredUpload

HELPER = "f_get_upload_url"
FILES = ServerPlan(id="f", kind=Kind.PIPE, consumers=(UploadConsumer(tools=("eat",), file_path_argument="path"),))
LIMITS = Limits(upload_ttl_s=100.0)


def stored(world: Driver) -> list[StoredUpload]:
    """The upload records in the storage, once all orders are carried out."""
    forgotten = {effect.key for effect in world.log if isinstance(effect, Forget)}
    saved = {effect.key: effect.value for effect in world.log if isinstance(effect, Save)}
    return [msgspec.json.decode(saved[key], type=StoredUpload) for key in saved if key not in forgotten]


def eat(client: Client, handle: str) -> str | None:
    """Calls a tool with the file. Returns the error text, or None if the tool is given the file."""
    world = client.driver
    channel = client.request("1", "tools/call", json.dumps({"name": "eat", "arguments": {"path": handle}}))
    if world.messages(channel):
        text: str = world.only_message(channel)["result"]["content"][0]["text"]
        return text
    order = world.last(Materialize)
    world.store(order.ticket, Materialized(path=f"/w/in/{order.upload}"))
    assert order.upload in world.take_sent("tools/call").raw.decode()
    return None


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "killed"])
def test_a_handle_of_an_earlier_run_is_valid_for_its_principal(is_stopped: bool) -> None:
    """Any session of the same principal may pass the handle: the session of the upload ended with its run."""
    first = driver(FILES, limits=LIMITS)
    (handle,) = upload(connect(first, "http", "f", principal="ann"), HELPER, ("a.txt", 5))
    if is_stopped:
        first.stop()
    records = stored(first)
    assert [record.size_bytes for record in records] == [5]
    assert Discard(blob=records[0].blob) not in first.log

    second = driver(FILES, limits=LIMITS, seed=2, stored_uploads=records)
    refusal = eat(connect(second, "http", "f", principal="eve"), handle)
    assert refusal is not None and "it has expired, or belongs to another client" in refusal
    ann = connect(second, "http", "f", principal="ann")
    assert eat(ann, handle) is None
    second.stop()
    assert Discard(blob=records[0].blob) not in second.log, "the next run has it as well"


def test_a_session_that_ends_by_itself_leaves_no_uploads_where_files_are_of_it() -> None:
    world = driver(FILES, limits=LIMITS, file_scope=FileScope.SESSION)
    client = connect(world, "http", "f")
    upload(client, HELPER, ("a.txt", 5))
    client.delete()
    world.stop()
    assert stored(world) == []


def test_an_upload_that_expired_between_two_runs_is_not_served() -> None:
    """An expired upload is discarded at the first deadline."""
    first = driver(FILES, limits=LIMITS)
    (handle,) = upload(connect(first, "http", "f"), HELPER, ("a.txt", 5))
    first.stop()
    (record,) = stored(first)
    late = msgspec.structs.replace(record, expires_at_unix=record.expires_at_unix - 200)
    second = driver(FILES, limits=LIMITS, seed=2, stored_uploads=[late])
    refusal = eat(connect(second, "http", "f"), handle)
    assert refusal is not None and "it expired just now" in refusal
    assert Discard(blob=record.blob) in second.log
    assert second.engine.files() == ()


def test_a_handle_of_a_deleted_file_says_why_it_is_gone() -> None:
    """An operator may delete any file that no call uses, once."""
    world = driver(FILES, limits=LIMITS)
    client = connect(world, "http", "f")
    (handle,) = upload(client, HELPER, ("a.txt", 5))
    (file,) = world.engine.files()
    assert (file.uri, file.is_live, file.pins) == (handle, True, 0)
    effects = world.engine.receive_file_delete(file.id, world.now)
    assert effects == [Forget(key=f"upload/{file.session}/{file.id}"), Discard(blob=file.blob)]
    with pytest.raises(LocalProtocolError, match="there is no file"):
        world.engine.receive_file_delete(file.id, world.now)
    world.wait(90)
    refusal = eat(client, handle)
    assert refusal is not None and "an operator deleted it 1 minute ago" in refusal
    other = eat(connect(world, "http", "f", principal="eve"), handle)
    assert other is not None and "operator" not in other, "another principal is not told what became of it"


def test_a_file_that_a_call_uses_is_not_deleted_before_that_is_over() -> None:
    world = driver(FILES, limits=LIMITS)
    client = connect(world, "http", "f")
    (handle,) = upload(client, HELPER, ("a.txt", 5))
    assert eat(client, handle) is None
    (file,) = world.engine.files()
    assert file.pins == 1
    with pytest.raises(LocalProtocolError, match="a call uses the file"):
        world.engine.receive_file_delete(file.id, world.now)
    world.wait(150)
    assert world.engine.files() == (file,), "nor does it expire"
    client.delete()
    assert world.engine.files() == ()


def test_uploads_beyond_narrower_limits_are_evicted_at_the_start() -> None:
    """Files beyond narrower limits are evicted at the start, the oldest first, and their handles say so."""
    first = driver(FILES, limits=LIMITS)
    handles = upload(connect(first, "http", "f"), HELPER, ("a.txt", 500), ("b.txt", 600))
    first.stop()
    narrow = Limits(upload_ttl_s=100.0, session_storage_max_bytes=700)
    second = driver(FILES, limits=narrow, seed=2, stored_uploads=stored(first))
    second.wait(0.0)
    (gone,) = [effect.blob for effect in second.log if isinstance(effect, Discard)]
    client = connect(second, "http", "f")
    refusals = [eat(client, handle) for handle in handles]
    (text,) = [each for each in refusals if each is not None]
    assert "room" in text
    (lost,) = [record for record in stored(first) if record.blob == gone]
    assert [lost.uid in handle for handle in handles] == [each is not None for each in refusals]
