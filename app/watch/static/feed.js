// Follows what passes through the gateway, by long polls, and brings it into a store.

import {ApiError} from "./api.js";

// Seconds that an empty answer may wait, at most what the gateway allows.
const WAIT_S = 25;
// Milliseconds from one answer to the next question while all is there: what comes meanwhile is one answer, not twenty.
// A person notices no less.
const PACE_MS = 80;
// Seconds between attempts to reach a gateway that does not answer: first and longest.
const RETRY_FIRST_S = 0.5;
const RETRY_MAX_S = 5;

export class Feed {
  // `onState` is told {name: "connecting" | "live" | "lost" | "refused", text}.
  constructor(api, store, onState) {
    this._api = api;
    this._store = store;
    this._onState = onState;
    this._abort = new AbortController();
    this._state = "";
  }

  stop() {
    this._abort.abort();
  }

  async run() {
    const {signal} = this._abort;
    let [run, after, retry] = [null, 0, RETRY_FIRST_S];
    let next = null; // the answer that was asked for before the last one was worked through
    this._tell("connecting");
    while (!signal.aborted) {
      let answer;
      try {
        const wait = this._state === "live" ? WAIT_S : 0; // the first answer shows that the gateway is there
        answer = await (next ?? this._ask(after, wait));
        next = null;
      } catch (error) {
        next = null;
        if (signal.aborted) return;
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
          this._tell("refused", error.message);
          return;
        }
        this._tell("lost", error.message);
        await new Promise(done => setTimeout(done, retry * 1000));
        retry = Math.min(retry * 2, RETRY_MAX_S);
        continue;
      }
      if (signal.aborted) return;
      retry = RETRY_FIRST_S;
      if (answer.run !== run) {
        const isFirst = run === null;
        run = answer.run;
        this._api.forgetBodies();
        this._store.begin(run);
        if (!isFirst) {
          after = 0;
          this._tell("live");
          continue;
        }
      } else if (answer.skipped > 0 && after > 0) {
        this._store.addGap(answer.skipped);
      }
      this._tell("live");
      const {events} = answer;
      if (events.length) {
        after = events.at(-1).n;
        next = this._ask(after, WAIT_S, answer.last > after ? 0 : PACE_MS);
        next.catch(() => {}); // it is waited for above
        this._store.add(events);
      } else if (answer.skipped > 0) {
        after = answer.last;
      }
    }
  }

  async _ask(after, wait_s, pause_ms = 0) {
    if (pause_ms) await new Promise(done => setTimeout(done, pause_ms));
    return this._api.get(`ui/api/events?after=${after}&wait=${wait_s}`, this._abort.signal);
  }

  _tell(name, text = "") {
    if (name === this._state && name !== "lost") return;
    this._state = name;
    this._onState({name, text});
  }
}
