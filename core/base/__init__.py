"""The foundation of all rooms: errors, limits, revisions, the plan, timers, state machines, and the vocabulary of
engine and driver. `events` has what a driver reports, `effects` and `storage` what the engine orders. Every other room
uses names of it, above all `Limits`, `Plan`, `Features`, `Machine` and `RemoteProtocolError`. It rests on no other
room."""
