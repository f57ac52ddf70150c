"""The revision that a request of a client without sessions names, and the refusal of one that is not served."""

from __future__ import annotations

from ..base.errors import UNSUPPORTED_VERSION, RemoteProtocolError
from ..base.revisions import LEGACY, MODERN, is_known_modern
from ..bridge import request_meta
from ..bridge.request_meta import RequestMeta
from ..jsonrpc.envelope import Frame


def read_request(frame: Frame) -> RequestMeta:
    """Returns a request's description of its client.

    Raises:
        RemoteProtocolError: something is missing (-32602), or its revision is not supported (-32022).
    """
    revision = request_meta.revision_of(frame.params)
    if revision is not None and revision != "" and not is_known_modern(revision):
        raise unsupported(revision)
    return request_meta.read(frame.params)


def unsupported(revision: str, *, is_legacy_only: bool = False) -> RemoteProtocolError:
    """Returns the error for an unsupported revision: -32022 with the supported ones.

    Args:
        is_legacy_only: this copy of the engine serves no clients without sessions. A client that also speaks one of the
            older revisions then sends `initialize`.

    Source: 2026-07-28 basic/versioning, "Protocol Version Negotiation".
    """
    return RemoteProtocolError(
        "Unsupported protocol version",
        rpc_code=UNSUPPORTED_VERSION,
        http_status=400,
        data={"supported": list(LEGACY if is_legacy_only else MODERN), "requested": revision[:64]},
    )
