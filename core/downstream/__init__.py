"""Sessions of clients, their event streams, and the responses they get. `Downstream` constructs its parts; other rooms
use `Sessions`, `Responder`, `Streams` and `EventStore`. It rests on `base`, `bridge`, `jsonrpc` and `state`."""
