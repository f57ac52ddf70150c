"""Translation of messages between protocol revisions and eras: pure functions, with both directions of one subject in
one file. Other rooms call the functions for results, errors, capabilities, questions, tasks, `_meta` (`request_meta`)
and `requestState` (`request_state`). It rests on `base` and `jsonrpc`."""
