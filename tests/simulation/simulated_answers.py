"""The answers of clients to questions of servers."""

from __future__ import annotations

from typing import Any


def accept(question: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a question, which repeats the question's text, without the server that a profile puts in
    front of it."""
    text = question["message"]
    return {"action": "accept", "content": {"name": text.partition("] ")[2] if text.startswith("[") else text}}


def answers_to(result: dict[str, Any]) -> dict[str, Any]:
    """Returns the members of the params with which a call is repeated that was answered with questions."""
    asked = result.get("inputRequests", {}).items()
    state = {"requestState": result["requestState"]} if "requestState" in result else {}
    return {"inputResponses": {key: accept(question["params"]) for key, question in asked}, **state}


def texts_in(result: dict[str, Any]) -> list[Any]:
    """Returns the texts of a result, without what the proxy says of the sessions of anonymous clients."""
    texts = [block.get("text") for block in result.get("content", ())]
    return texts[:-1] if texts and str(texts[-1]).startswith("This server starts fresh for each call") else texts
