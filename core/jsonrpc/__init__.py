"""JSON-RPC envelopes, and raw JSON that is read and changed without decoding it as a whole. Other rooms use `envelope`
(`decode`, `Frame`, the `encode_…` functions), `splice` (positions of members, replacement, removal), `paths`, `append`
and `ObjectEditor`. It rests on `base`."""
