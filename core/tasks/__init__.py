"""Tasks: `LocalTasks` runs those that the proxy made of calls, `UpstreamTasks` follows those of servers, and
`TaskRequests` answers the task requests of clients. `TaskAugmentation` decides which calls become tasks, and
`TaskStore` keeps their records. Used by `routing` and the engine. It rests on `base`, `bridge`, `downstream`,
`input_required`, `jsonrpc`, `state`, `upstream` and `wire/http`."""
