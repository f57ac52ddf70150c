"""Questions of servers across eras: `SuspendedCalls` and `DeferredQuestions` put those of servers with sessions to
clients without, `Rounds` puts those of stateless servers to clients with sessions, and `UrlElicitation` handles pages
to visit. `Replays` answers repeated questions after a call was lost. `Questions` is the feature and the interceptor of
the room, which a copy may leave out. Used by `endpoints` and the engine. It rests on `base`, `bridge`, `downstream`,
`jsonrpc`, `state` and `upstream`."""
