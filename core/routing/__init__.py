"""Routing of messages between sessions and links. `Router` sends each request to a link, `Dispatcher` handles the
messages of servers, `ServerChannels` the events of their channels, and `EraAdapter` the differences between eras.
`endpoints` and the engine use `Router`, and `endpoints` the rules of the fast path. It rests on `base`, `bridge`,
`downstream`, `files/calls`, `input_required`, `jsonrpc`, `state`, `subscriptions`, `tasks`, `upstream`, `wire` and
`wire/http`."""
