"""Subscriptions (`subscriptions/listen`): `ClientListens` for those of clients, `ServerListens` for ours with stateless
servers. The two classes are used by `tasks`, `routing` and `endpoints`. It rests on `base`, `bridge`, `jsonrpc`,
`state` and `upstream`."""
