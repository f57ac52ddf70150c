"""Sessions of clients, their event streams, and the responses they get. Other rooms use `Sessions`, `Responder`,
`Streams` and `EventStore`. It rests on `base`, `bridge`, `jsonrpc` and `state`."""
