"""The engine of a proxy for the Model Context Protocol, without IO.

What an embedder needs can be imported from here: `Engine` or `BulkEngine`, the `Plan`, the events that a driver
reports, the effects that the engine orders, the storage orders and their answers, `Recorder` with `replay`, lines of
messages, and the exchanges for HTTP with what they read and write. A name is loaded when it is first asked for. Further
codecs and HTTP rules stand in `wire`; everything else is private.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .base.decisions import *
    from .base.effects import *
    from .base.errors import LocalProtocolError as LocalProtocolError
    from .base.errors import RemoteProtocolError as RemoteProtocolError
    from .base.events import *
    from .base.ids import ChannelId as ChannelId
    from .base.ids import Entropy as Entropy
    from .base.ids import Ticket as Ticket
    from .base.limits import Limits as Limits
    from .base.name_filter import NameFilter as NameFilter
    from .base.plan import *
    from .base.replica import ReplicaName as ReplicaName
    from .base.revisions import Era as Era
    from .base.storage import *
    from .base.telemetry import *
    from .base.timers import Deadline as Deadline
    from .bulk import BulkEngine as BulkEngine
    from .client_exchange import ClientExchange as ClientExchange
    from .engine import Engine as Engine
    from .line_channel import LineChannel as LineChannel
    from .server_exchange import ServerExchange as ServerExchange
    from .server_exchange import Written as Written
    from .state.records import FileEnds as FileEnds
    from .state.records import FileStatus as FileStatus
    from .state.records import StoredArtifact as StoredArtifact
    from .state.records import StoredTask as StoredTask
    from .state.records import StoredUpload as StoredUpload
    from .state.records import TaskStatus as TaskStatus
    from .status import Command as Command
    from .status import Status as Status
    from .trace import Difference as Difference
    from .trace import Recorder as Recorder
    from .trace import replay as replay
    from .wire.http.reply import ReplyBody as ReplyBody
    from .wire.http.reply import ReplyCut as ReplyCut
    from .wire.http.reply import ReplyEnd as ReplyEnd
    from .wire.http.reply import ReplyHead as ReplyHead
    from .wire.http.routes import Head as Head
    from .wire.http.routes import Surface as Surface
    from .wire.ndjson import Line as Line
    from .wire.ndjson import LineReader as LineReader
    from .wire.ndjson import Oversize as Oversize
    from .wire.ndjson import encode_line as encode_line
    from .wire.oversize import answer_for as answer_for

_NAMES: Final = {
    "base.decisions": "Allowed Decide Denied",
    "base.effects": (
        "Close Delete Dial Effect Emit Forward Join Listen Note Pass Pause Post Resume Send SendEvents Spawn Target"
    ),
    "base.telemetry": "Detail Outcome QuestionAsked RequestAnswered RequestEnded RequestSent RequestStarted "
    "SessionEnded SessionStarted SpanIds TaskGiven TelemetryEvent ToolsListed Tracing",
    "base.errors": "LocalProtocolError RemoteProtocolError",
    "base.events": (
        "Cause Checksum Connected CookieChanges Cookies DeleteOpening DownloadOpening DraftOpening End "
        "EventPipeOpening Fact GetOpening Headers MessageOpening Opening PipeOpening PostOpening Primed Queued "
        "RawFile UploadOpening Verb"
    ),
    "base.ids": "ChannelId Entropy Ticket",
    "base.limits": "Limits",
    "base.name_filter": "NameFilter",
    "base.plan": (
        "Affinity ArtifactProducer AutoFiles Deliver Eviction Kind LocatorMode Offer OutputLocator Plan Profile "
        "ProfileServer ServerPlan SharedFolder Sharing TaskRules UploadConsumer"
    ),
    "base.replica": "ReplicaName",
    "base.revisions": "Era",
    "base.storage": (
        "Allocate Allocated Answer Append Appended Cease Collect Collected CollectedFile Conflicted Discard "
        "Extend Extended Fetch Fetched FileSource Forget ForgetAll Halt InlineSource Load Loaded Materialize "
        "Materialized Receive Remove Save Saved SeenFile Serve Sighting Source StorageAnswer StorageFailed "
        "StorageOrder StoredFile Survey Surveyed Sweep UploadManifest"
    ),
    "base.timers": "Deadline",
    "bulk": "BulkEngine",
    "client_exchange": "ClientExchange",
    "engine": "Engine",
    "line_channel": "LineChannel",
    "server_exchange": "ServerExchange Written",
    "state.records": "FileEnds FileStatus StoredArtifact StoredTask StoredUpload TaskStatus",
    "status": "Command Status",
    "trace": "Difference Recorder replay",
    "wire.http.reply": "ReplyBody ReplyCut ReplyEnd ReplyHead",
    "wire.http.routes": "Head Surface",
    "wire.ndjson": "Line LineReader Oversize encode_line",
    "wire.oversize": "answer_for",
}
_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value  # asked for once
    return value


def __dir__() -> list[str]:
    return __all__
