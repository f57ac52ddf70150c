"""Messages that a scripted client sends in reaction to its server: responses to server requests, and retries.

A retry repeats a request whose result was `input_required`, with the answers in it.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

from .arguments import arguments_of, simplest
from .steps import Conversation, Json, Manner, Step, decoded, is_id, step_of

ROUNDS_MAX: Final = 5
"""Retries in one conversation, for servers that never stop asking."""
ASKED_MAX: Final = 1_000
"""Requests kept for retries; a conversation has some dozens."""
ANSWER: Final[Json] = {
    "role": "assistant",
    "content": {"type": "text", "text": "an answer"},
    "model": "isthmus-conform",
    "stopReason": "endTurn",
}
ROOTS: Final[Json] = {"roots": [{"uri": "file:///isthmus-conform", "name": "isthmus-conform"}]}
NO_METHOD, REJECTED = -32601, -1


class ClientAnswers:
    """The reactions of the client in one conversation. Safe to use from several threads."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._requests: dict[str, Json] = {}
        """Request id as JSON → the request, as long as it may be retried."""
        self._rounds = 0
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """Notes a message that the client sends, in case that it has to be retried."""
        if not self._conversation.is_stateless:
            return
        with self._lock:
            for message in decoded(text):
                if "method" in message and is_id(message.get("id")) and len(self._requests) < ASKED_MAX:
                    self._requests[_key(message["id"])] = message

    def answers_to(self, text: bytes, wire: int = 0) -> list[Step]:
        """Returns the messages with which the client reacts to a message of the server."""
        messages = [self._response_to(each) or self._retry_of(each) for each in decoded(text)]
        return [step_of(self._conversation.revision, each, wire=wire) for each in messages if each is not None]

    def _response_to(self, message: Json) -> Json | None:
        """Returns the response to a server request; None if the message is no request with a valid id."""
        id, method = message.get("id"), message.get("method")
        if not isinstance(method, str) or not is_id(id):
            return None
        answer = self._result_for(method, message.get("params"))
        if answer is not None:
            return {"jsonrpc": "2.0", "id": id, "result": answer}
        is_known = self._conversation.manner is not Manner.NONE and method in ("sampling/createMessage", "roots/list")
        error = (REJECTED, "the user rejects it") if is_known else (NO_METHOD, "this client has no such method")
        return {"jsonrpc": "2.0", "id": id, "error": {"code": error[0], "message": error[1]}}

    def _retry_of(self, message: Json) -> Json | None:
        """Returns the retry of a request whose result is `input_required`; None for other messages.

        Also None if a question is refused, or `ROUNDS_MAX` is reached.
        """
        result = message.get("result")
        if not isinstance(result, dict) or result.get("resultType") != "input_required" or not is_id(message.get("id")):
            return None
        questions = result.get("inputRequests")
        answers: Json = {}
        for name, question in questions.items() if isinstance(questions, dict) else ():
            method = question.get("method") if isinstance(question, dict) else None
            answer = self._result_for(method, question.get("params")) if isinstance(method, str) else None
            if answer is None:
                return None
            answers[name] = answer
        with self._lock:
            request = self._requests.pop(_key(message["id"]), None)
            if request is None or self._rounds >= ROUNDS_MAX:
                return None
            self._rounds += 1
            retry: Json = msgspec.json.decode(msgspec.json.encode(request))
            retry["id"] = f"round-{self._rounds}"
        params = {name: value for name, value in retry.get("params", {}).items() if name not in _RETRY_MEMBERS}
        if answers:
            params["inputResponses"] = answers
        if "requestState" in result:
            params["requestState"] = result["requestState"]
        retry["params"] = params
        self.note(msgspec.json.encode(retry).decode())
        return retry

    def _result_for(self, method: str, params: Any) -> Json | None:
        """Returns the result for a server request; None to refuse it with an error."""
        manner, request = self._conversation.manner, params if isinstance(params, dict) else {}
        if method == "ping":
            return {}
        if method == "elicitation/create" and manner is Manner.DECLINES:
            return {"action": "decline"}
        if manner is not Manner.GIVES:
            return None
        if method == "elicitation/create":
            schema = request.get("requestedSchema")
            content = {"content": arguments_of(schema, simplest)} if isinstance(schema, dict) else {}
            return {"action": "accept", **content}
        return {"sampling/createMessage": ANSWER, "roots/list": ROOTS}.get(method)


_RETRY_MEMBERS: Final = ("inputResponses", "requestState")


def _key(id: str | int) -> str:
    """Returns the id as JSON, in which 1 and "1" are different."""
    return msgspec.json.encode(id).decode()
