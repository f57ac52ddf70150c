"""Routing of messages between sessions and links. `Router` sends each request past the interceptors of its link, whose
order is in `interceptors`; `Links` opens and ends links, `Dispatcher` handles the messages of servers, `ServerChannels`
the events of their channels, and `EraAdapter` the differences between eras. `endpoints` and the engine use `Router`,
and `endpoints` the rules of the fast path. It rests on `base`, `bridge`, `downstream`, `jsonrpc`, `state`,
`subscriptions`, `upstream`, `wire` and `wire/http`."""
