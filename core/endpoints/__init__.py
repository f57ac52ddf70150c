"""The endpoints for clients: `StreamableHttp`, `Pipes` and `Stateless`, with the roles of their channels, and
`FastPath` for plain calls. `StatelessResponder` sends messages to clients without sessions. `Endpoints` constructs
them. Used by the engine only. It rests on `base`, `bridge`, `downstream`, `input_required`, `jsonrpc`, `routing`,
`state`, `subscriptions`, `upstream`, `wire` and `wire/http`."""
