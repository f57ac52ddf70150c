"""Tasks: `LocalTasks` runs those that the proxy made of calls, `UpstreamTasks` follows those of servers, and
`TaskRequests` answers the task requests of clients. `TaskAugmentation` decides which calls become tasks, and
`TaskStore` keeps their records. `feature` constructs the room, which a copy may leave out. Used by the engine. It rests
on `base`, `bridge`, `downstream`, `jsonrpc`, `state`, `subscriptions`, `upstream` and `wire/http`."""
