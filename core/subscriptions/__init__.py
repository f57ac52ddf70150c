"""Subscriptions (`subscriptions/listen`): `ClientListens` for those of clients, `ServerListens` for ours with stateless
servers, `PassedListens` for those of clients that are passed to them, constructed by `Subscriptions`. Used by `tasks`,
`routing`, `endpoints` and the engine. It rests on `base`, `bridge`, `downstream`, `jsonrpc`, `state` and `upstream`."""
