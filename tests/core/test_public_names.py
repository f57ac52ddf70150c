"""Tests of the names that `core` offers to embedders. The list changes on purpose only."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from each_row import each_row
from isthmus import core

LIST = """
    Affinity Allocate Allocated Allowed Answer Append Appended ArtifactProducer AutoFiles BulkEngine Cause Cease
    ChannelId Checksum ClientExchange Close Collect Collected CollectedFile Command Conflicted Connected
    CookieChanges Cookies Deadline Decide Delete DeleteOpening Deliver Denied Detail Dial Difference Discard
    DownloadOpening DraftOpening Effect Emit End Engine Entropy Era EventPipeOpening Eviction Extend Extended Fact
    Fetch Fetched FileEnds FileSource FileStatus Forget ForgetAll Forward GetOpening Halt Head Headers
    InlineSource Join Kind Limits Line LineChannel LineReader Listen Load Loaded LocalProtocolError LocatorMode
    Materialize Materialized MessageOpening NameFilter Note Offer Opening Outcome OutputLocator Oversize Pass
    Pause PipeOpening Plan Post PostOpening Primed Profile ProfileServer QuestionAsked Queued RawFile Receive
    Recorder RemoteProtocolError Remove ReplicaName ReplyBody ReplyCut ReplyEnd ReplyHead RequestAnswered
    RequestEnded RequestSent RequestStarted Resume Save Saved SeenFile Send SendEvents Serve ServerExchange
    ServerPlan SessionEnded SessionStarted SharedFolder Sharing Sighting Source SpanIds Spawn Status StorageAnswer
    StorageFailed StorageOrder StoredArtifact StoredFile StoredTask StoredUpload Surface Survey Surveyed Sweep
    Target TaskGiven TaskRules TaskStatus TelemetryEvent Ticket ToolsListed Tracing UploadConsumer UploadManifest
    UploadOpening Verb Written answer_for encode_line replay
"""
NAMES = LIST.split()


def test_the_public_names_are_these() -> None:
    assert sorted(core.__all__) == sorted(NAMES)
    assert dir(core) == sorted(NAMES)


@each_row("name", NAMES)
def test_each_can_be_imported(name: str) -> None:
    value = getattr(core, name)
    assert not isinstance(value, type) or value.__name__ == name or name in ("Headers", "Cookies", "CookieChanges")


def test_modules_are_loaded_on_first_use() -> None:
    program = (
        "import sys, isthmus.core\n"
        "assert 'isthmus.core.engine' not in sys.modules\n"
        "from isthmus.core import Limits\n"
        "assert 'isthmus.core.engine' not in sys.modules\n"
        "from isthmus.core import Engine\n"
        "assert 'isthmus.core.engine' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'isthmus\.core' has no attribute 'Engines'$"):
        core.Engines  # noqa: B018


def test_the_signatures_that_take_limits_can_be_read() -> None:
    """`help` shows them: the defaults of all limits would fill it."""
    for offered in (core.Engine, core.ServerExchange, core.ClientExchange, core.LineChannel):
        assert len(str(inspect.signature(offered))) < 400
    assert repr(core.Limits(batch_max=3)) == "Limits(batch_max=3)"
