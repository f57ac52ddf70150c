"""The rules of self-contained requests (2026-07-28), of subscriptions, and of tasks of both kinds."""

from __future__ import annotations

from typing import Final

from .methods import HANDSHAKE, V3, V4, V5
from .rule import ACK, CLIENT, EITHER, EXTENSION, MRTR_CLIENT, MRTR_SERVER, RECEIVING, SERVER, TASKS, Rule, within

STATELESS_RULES: Final = (
    # --- Without sessions
    Rule(
        "meta-missing",
        "A request's `_meta` has the protocol version and the client's capabilities.",
        CLIENT,
        within((V5,), 'basic, "`_meta`"'),
    ),
    Rule(
        "client-info",
        "A request's `_meta` says who the client is.",
        CLIENT,
        within((V5,), 'basic, "`_meta`"'),
        frozenset({V5}),
    ),
    Rule(
        "server-info",
        "A result's `_meta` says who the server is.",
        SERVER,
        within((V5,), 'basic, "`_meta`"'),
        frozenset({V5}),
    ),
    Rule(
        "meta-reserved",
        "Of the names that `io.modelcontextprotocol/` begins only those of the revision are used.",
        EITHER,
        within((V3, V4, V5), 'basic, "`_meta`"'),
    ),
    Rule("result-kind-missing", "A result has a `resultType`.", SERVER, within((V5,), 'basic, "Result Responses"')),
    Rule(
        "result-kind-unknown",
        'A `resultType` is "complete", "input_required", or one of an extension that the client declares.',
        SERVER,
        within((V5,), 'basic, "ResultType"'),
    ),
    Rule(
        "result-kind-leaked",
        'No result is "input_required" or "task" by a `resultType`.',
        SERVER,
        within(HANDSHAKE, "schema"),
    ),
    Rule(
        "input-required-method",
        "Only tool calls, prompts and resources are answered with `input_required`.",
        SERVER,
        within((V5,), 'basic/patterns/mrtr, "Supported Requests"'),
    ),
    Rule("input-required-empty", "`input_required` has questions, or a state.", SERVER, within((V5,), MRTR_SERVER)),
    Rule("input-request-kind", "Questions are elicitation, sampling or roots.", SERVER, within((V5,), MRTR_SERVER)),
    Rule(
        "input-request-undeclared",
        "A client is asked only what that request declares.",
        SERVER,
        within((V5,), MRTR_SERVER),
    ),
    Rule(
        "state-changed",
        "A retry has the state as it was given, and one only if one was given.",
        CLIENT,
        within((V5,), MRTR_CLIENT),
    ),
    Rule("state-elsewhere", "A state goes with the request that it was given for.", CLIENT, within((V5,), MRTR_CLIENT)),
    Rule("retry-id", "A retry has an id of its own.", CLIENT, within((V5,), MRTR_CLIENT)),
    Rule("retry-incomplete", "A retry answers each question.", CLIENT, within((V5,), MRTR_CLIENT)),
    Rule(
        "cache-hints",
        "Complete results that may be kept have a `ttlMs` of at least 0 and a `cacheScope`.",
        SERVER,
        within((V5,), 'server/utilities/caching, "Cacheable Results"'),
    ),
    # --- Subscriptions
    Rule(
        "listen-first",
        "The acknowledgement is the first message of a subscription, and comes once.",
        SERVER,
        within((V5,), ACK),
    ),
    Rule("listen-acknowledged", "What is acknowledged was asked for.", SERVER, within((V5,), ACK)),
    Rule(
        "listen-unrequested",
        "A subscription has what it asked for.",
        SERVER,
        within((V5,), 'basic/patterns/subscriptions, "Opening a Stream"'),
    ),
    Rule("subscription-id", "What a subscription has carries its id.", SERVER, within((V5,), RECEIVING)),
    Rule(
        "subscription-unknown",
        "A subscription id is that of a `subscriptions/listen` that goes on.",
        SERVER,
        within((V5,), RECEIVING),
    ),
    Rule("subscription-stream", "A subscription's messages come on its own stream.", SERVER, within((V5,), RECEIVING)),
    # --- Tasks
    Rule(
        "task-uncreated",
        "A request that is to be a task is answered with one, where that was declared.",
        EITHER,
        within((V4,), f'{TASKS}, "Result Retrieval"'),
    ),
    Rule(
        "task-unasked",
        "Only a request that is to be a task becomes one (2026-07-28: whose client declares the extension).",
        EITHER,
        within((V4,), f'{TASKS}, "Task Support and Handling"')
        | within((V5,), f'{EXTENSION}, "Capability Negotiation"'),
    ),
    Rule(
        "task-shape",
        "A task has all that a task has.",
        EITHER,
        within((V4,), f'{TASKS}, "TTL and Resource Management"') | within((V5,), f'{EXTENSION}, "Tasks"'),
    ),
    Rule(
        "task-begins",
        "A new task has an id of its own (2025-11-25: and is `working`).",
        EITHER,
        within((V4,), f'{TASKS}, "Task Status Lifecycle"') | within((V5,), f'{EXTENSION}, "Tasks"'),
    ),
    Rule(
        "task-status",
        "A task that is over stays as it is.",
        EITHER,
        within((V4,), f'{TASKS}, "Task Status Lifecycle"') | within((V5,), f'{EXTENSION}, "Task Status"'),
    ),
    Rule(
        "task-cancelled",
        "`tasks/cancel` ends a task as cancelled, and is refused for one that is over.",
        EITHER,
        within((V4,), f'{TASKS}, "Task Cancellation"'),
    ),
    Rule(
        "related-task",
        "What belongs to a task names it in `_meta`.",
        EITHER,
        within((V4,), f'{TASKS}, "Related Task Metadata"'),
    ),
    Rule(
        "related-task-needless",
        "What names a task anyway does not name it again in `_meta`.",
        EITHER,
        within((V4,), f'{TASKS}, "Related Task Metadata"'),
        frozenset({V4}),
    ),
    Rule(
        "task-detail",
        "A task has questions, result or error as its status wants.",
        EITHER,
        within((V5,), f'{EXTENSION}, "Task Polling"'),
    ),
    Rule(
        "task-key-reused",
        "A task's key names one question.",
        EITHER,
        within((V5,), f'{EXTENSION}, "Task Update Requests"'),
    ),
    Rule(
        "task-polled-early",
        "A task is not asked for more often than it says.",
        EITHER,
        within((V4,), f'{TASKS}, "Getting Tasks"') | within((V5,), f'{EXTENSION}, "Task Polling"'),
        frozenset({V4, V5}),
    ),
)
