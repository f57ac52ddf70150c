"""What a client says of its own accord: answers to a server's questions, and the retries that carry answers."""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

from .arguments import arguments_of, simplest
from .steps import Conversation, Json, Manner, Step, decoded, is_id, said

ROUNDS_MAX: Final = 5
"""Retries in one conversation: a server that asks for ever is left with its question."""
ASKED_MAX: Final = 1_000
"""Requests that are remembered, for their retries; a conversation has some dozens."""
ANSWER: Final[Json] = {
    "role": "assistant",
    "content": {"type": "text", "text": "an answer"},
    "model": "isthmus-conform",
    "stopReason": "endTurn",
}
ROOTS: Final[Json] = {"roots": [{"uri": "file:///isthmus-conform", "name": "isthmus-conform"}]}
NO_METHOD, REJECTED = -32601, -1


class Answering:
    """Of one conversation. It may be asked by several threads."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._asked: dict[str, Json] = {}
        """Each request by its id, in JSON, as long as it may be tried again."""
        self._rounds = 0
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """The client has said this."""
        if not self._conversation.is_stateless:
            return
        with self._lock:
            for message in decoded(text):
                if "method" in message and is_id(message.get("id")) and len(self._asked) < ASKED_MAX:
                    self._asked[_key(message["id"])] = message

    def answers_to(self, text: bytes, wire: int = 0) -> list[Step]:
        """What the client says to what it has heard."""
        messages = [self._to_question(each) or self._to_round(each) for each in decoded(text)]
        return [said(self._conversation.revision, each, wire=wire) for each in messages if each is not None]

    def _to_question(self, message: Json) -> Json | None:
        """None for what is no request with an id that can be answered."""
        id, method = message.get("id"), message.get("method")
        if not isinstance(method, str) or not is_id(id):
            return None
        given = self._given(method, message.get("params"))
        if given is not None:
            return {"jsonrpc": "2.0", "id": id, "result": given}
        is_known = self._conversation.manner is not Manner.NONE and method in ("sampling/createMessage", "roots/list")
        error = (REJECTED, "the user rejects it") if is_known else (NO_METHOD, "this client has no such method")
        return {"jsonrpc": "2.0", "id": id, "error": {"code": error[0], "message": error[1]}}

    def _to_round(self, message: Json) -> Json | None:
        """The request again, with the answers to what its result asks; None if there are none, or it asks nothing."""
        result = message.get("result")
        if not isinstance(result, dict) or result.get("resultType") != "input_required" or not is_id(message.get("id")):
            return None
        questions = result.get("inputRequests")
        answers: Json = {}
        for name, question in questions.items() if isinstance(questions, dict) else ():
            method = question.get("method") if isinstance(question, dict) else None
            given = self._given(method, question.get("params")) if isinstance(method, str) else None
            if given is None:
                return None
            answers[name] = given
        with self._lock:
            asked = self._asked.pop(_key(message["id"]), None)
            if asked is None or self._rounds >= ROUNDS_MAX:
                return None
            self._rounds += 1
            again: Json = msgspec.json.decode(msgspec.json.encode(asked))
            again["id"] = f"round-{self._rounds}"
        params = {name: value for name, value in again.get("params", {}).items() if name not in _OF_A_ROUND}
        if answers:
            params["inputResponses"] = answers
        if "requestState" in result:
            params["requestState"] = result["requestState"]
        again["params"] = params
        self.note(msgspec.json.encode(again).decode())
        return again

    def _given(self, method: str, params: Any) -> Json | None:
        """The result of a question; None if it is refused."""
        manner, asked = self._conversation.manner, params if isinstance(params, dict) else {}
        if method == "ping":
            return {}
        if method == "elicitation/create" and manner is Manner.DECLINES:
            return {"action": "decline"}
        if manner is not Manner.GIVES:
            return None
        if method == "elicitation/create":
            schema = asked.get("requestedSchema")
            content = {"content": arguments_of(schema, simplest)} if isinstance(schema, dict) else {}
            return {"action": "accept", **content}
        return {"sampling/createMessage": ANSWER, "roots/list": ROOTS}.get(method)


_OF_A_ROUND: Final = ("inputResponses", "requestState")


def _key(id: str | int) -> str:
    """JSON's 1 and "1" are two."""
    return msgspec.json.encode(id).decode()
