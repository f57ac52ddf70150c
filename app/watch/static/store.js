// All that the page knows of what has passed: the rows of the table, the messages, the sessions, the words of servers.

// Rows and messages in memory, each. The gateway keeps as many messages, and 50,000 rows take about 30 MB here.
// Reached: the oldest are dropped.
export const ROWS_MAX = 50000;
// Lines of stderr kept for each server: what a card shows when it is opened. Reached: the oldest are dropped.
export const STDERR_LINES_MAX = 200;
// Sessions in memory. Reached: those that ended longest ago are dropped.
const SESSIONS_MAX = 2000;
// Pinned rows: they outlive the others, so they are few. Reached: another row cannot be pinned.
export const PINS_MAX = 50;
// Different texts that rows share. Reached: rows that follow hold texts of their own.
const TEXTS_MAX = 20000;
// Requests that belong to no request of a client and wait for their response, which is named after them. Reached: they
// are forgotten, and their responses have no name.
const ASKED_MAX = 1000;
// Rows that are looked through for those of a session whose client was not known yet.
const LATE_ROWS = 500;

class Row {
  constructor(seq, type, at) {
    this.seq = seq;
    this.type = type; // "request", "message", "gap" or "restart"
    this.at = at;
    this.version = 0;
    this.isPinned = false;
    this.run = "";
    this.request = "";
    this.session = this.client = this.principal = this.server = this.servers = "";
    this.transport = this.revision = this.id = this.kind = this.method = this.target = "";
    this.state = "over";
    this.outcome = "";
    this.code = null;
    this.ms = null;
    this.request_bytes = null;
    this.response_bytes = null;
    this.attempts = null;
    this.questions = 0;
    this.message = null;
    this.count = 0;
  }
}

class Message {
  constructor(event, share, run) {
    this.n = event.n;
    this.run = run;
    this.at = event.at;
    this.leg = share(event.leg);
    this.way = share(event.way);
    this.channel = event.channel;
    this.session = share(event.session ?? "");
    this.server = share(event.server ?? "");
    this.kind = share(event.kind);
    this.id = event.id ?? "";
    this.method = share(event.method ?? "");
    this.request = event.request ?? "";
    this.bytes = event.bytes;
    this.is_cut = Boolean(event.is_cut);
    this.event_id = event.event_id ?? "";
  }
}

export class Store {
  constructor() {
    this.rows = [];
    this.messages = [];
    this.sessions = new Map();
    this.stderr = new Map();
    this.pins = [];
    this.version = 0; // grows with each change
    this.dropped = 0;
    this.received = 0;
    this._seq = 0;
    this._run = "";
    this._last = 0;
    this._byRequest = new Map();
    this._texts = new Map();
    this._asked = new Map();
    this._changed = new Set(); // rows that have changed since a list last asked
    this._listeners = new Set();
    this._isDue = false;
    this._share = text => {
      const known = this._texts.get(text);
      if (known !== undefined) return known;
      if (this._texts.size < TEXTS_MAX) this._texts.set(text, text);
      return text;
    };
  }

  // Calls `listener` once in a frame of the browser, however much has changed. Returns what ends that.
  listen(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  _touch() {
    this.version++;
    if (this._isDue) return;
    this._isDue = true;
    requestAnimationFrame(() => {
      this._isDue = false;
      for (const listener of this._listeners) listener();
    });
  }

  // Takes the events of one answer, oldest first. Those that came before are left out.
  add(events) {
    const first = this._seq;
    for (const event of events) {
      if (event.n <= this._last) continue;
      this._last = event.n;
      if (event.type === "request") this._addRequest(event);
      else if (event.type === "message") this._addMessage(event);
      else if (event.type === "session") this._addSession(event);
      else if (event.type === "stderr") this._addLines(event.server, event.text, "stderr");
      else if (event.type === "note") this._addLines(event.server, event.text, event.level);
    }
    this._order(first);
    this.received += events.length;
    this._trim();
    this._touch();
  }

  // The gateway had dropped `count` records before the page asked for them.
  addGap(count) {
    const row = this._newRow("gap", Date.now() / 1000);
    row.count = count;
    this._touch();
  }

  // The gateway has started again: numbers and requests begin anew.
  begin(run) {
    if (this._run) {
      for (const row of this._byRequest.values()) if (row.state === "open") this._settle(row, "unknown");
      for (const session of this.sessions.values()) if (session.state === "open") session.state = "over";
      this._newRow("restart", Date.now() / 1000);
    }
    this._run = run;
    this._last = 0;
    this._byRequest.clear();
    this._touch();
  }

  // Takes the lines that servers wrote before the page was opened.
  setLines(linesOf) {
    for (const [server, lines] of Object.entries(linesOf ?? {})) {
      if (!this.stderr.has(server)) for (const line of lines) this._addLines(server, line, "stderr");
    }
    this._touch();
  }

  setSessions(sessions) {
    for (const session of sessions) this._addSession(session);
    this._touch();
  }

  clear() {
    this.rows = [];
    this.messages = [];
    this._byRequest.clear();
    this._changed.clear();
    this._touch();
  }

  // Returns whether the row could be pinned or let go.
  pin(row) {
    if (!row.isPinned && this.pins.length >= PINS_MAX) return false;
    row.isPinned = !row.isPinned;
    row.version++;
    this.pins = row.isPinned ? [...this.pins, row] : this.pins.filter(each => each !== row);
    this._changed.add(row);
    this._touch();
    return true;
  }

  // Returns the rows that have changed since the last time, and begins anew.
  takeChanged() {
    const changed = this._changed;
    this._changed = new Set();
    return changed;
  }

  // Returns the messages of a request, oldest first.
  messagesOf(row) {
    if (row.message) return [row.message];
    return this.messages.filter(message => message.request === row.request && message.run === row.run);
  }

  rowOf(message) {
    const row = message.request && message.run === this._run ? this._byRequest.get(message.request) : null;
    return row ?? this.rows.find(each => each.message === message || (message.request && each.request === message.request && each.run === message.run));
  }

  // Returns the values that a field of the rows has, the most frequent first.
  valuesOf(field) {
    const counts = new Map();
    for (const row of this.rows) {
      const value = row[field];
      if (value !== "" && value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    return [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => String(value));
  }

  _newRow(type, at) {
    const row = new Row(this._seq++, type, at);
    row.run = this._run;
    this.rows.push(row);
    return row;
  }

  // A request has the number of its last change. Rows that came together stand in the order in which they began.
  _order(first) {
    const count = this._seq - first;
    if (count < 2) return;
    const made = this.rows.splice(this.rows.length - count, count).sort((a, b) => a.at - b.at);
    made.forEach((row, i) => (row.seq = first + i));
    for (const row of made) this.rows.push(row);
  }

  _addRequest(event) {
    const share = this._share;
    let row = this._byRequest.get(event.request);
    if (row) {
      this._changed.add(row);
    } else {
      row = this._newRow("request", event.at);
      row.request = event.request;
      row.kind = "request";
      this._byRequest.set(row.request, row);
    }
    row.version++;
    row.session = share(event.session);
    row.client = share(event.client || row.client || this.sessions.get(event.session)?.client || "");
    row.principal = share(event.principal ?? "");
    row.server = share(event.server);
    row.transport = share(event.transport ?? "");
    row.revision = share(event.revision ?? "");
    row.id = event.id ?? "";
    row.method = share(event.method);
    row.target = share(event.target ?? "");
    row.state = share(event.state);
    row.outcome = share(event.outcome ?? "");
    row.code = event.code ?? null;
    row.ms = event.ms ?? null;
    row.request_bytes = event.request_bytes ?? null;
    row.response_bytes = event.response_bytes ?? null;
    row.questions = event.questions ?? 0;
    row.attempts = event.attempts?.length ? event.attempts : null;
    row.servers = share([...new Set((row.attempts ?? []).map(each => each.server))].join(", "));
  }

  _addMessage(event) {
    const message = new Message(event, this._share, this._run);
    this.messages.push(message);
    if (message.request) return;
    if (message.kind === "request") {
      if (this._asked.size >= ASKED_MAX) this._asked.clear();
      this._asked.set(`${message.leg} ${message.channel} ${message.id} ${message.way === "in"}`, message.method);
    }
    const row = this._newRow("message", message.at);
    row.message = message;
    row.session = message.session;
    row.client = this._share(this.sessions.get(message.session)?.client ?? "");
    row.server = message.server;
    row.id = message.id;
    row.kind = message.kind;
    row.method = message.method || this._methodOf(message);
    row.response_bytes = message.bytes;
  }

  // Returns the method of the request that a response answers, where the page has seen it.
  _methodOf({leg, way, channel, kind, id}) {
    if (kind !== "response") return "";
    const key = `${leg} ${channel} ${id} ${way === "out"}`;
    const found = this._asked.get(key) ?? "";
    this._asked.delete(key);
    return found;
  }

  _addSession(event) {
    const known = this.sessions.get(event.session);
    this.sessions.set(event.session, {...known, ...event});
    if (event.client && !known?.client) {
      for (const row of this.rows.slice(-LATE_ROWS)) {
        if (row.session !== event.session || row.client) continue;
        row.client = this._share(event.client);
        row.version++;
        this._changed.add(row);
      }
    }
    if (this.sessions.size <= SESSIONS_MAX) return;
    for (const [id, {state}] of this.sessions) {
      if (state === "open") continue;
      this.sessions.delete(id);
      return;
    }
  }

  _addLines(server, text, level) {
    if (!server) return;
    const lines = this.stderr.get(server) ?? [];
    for (const line of text.replace(/\n$/, "").split("\n")) lines.push({text: line.slice(0, 2000), level});
    if (lines.length > STDERR_LINES_MAX) lines.splice(0, lines.length - STDERR_LINES_MAX);
    this.stderr.set(server, lines);
  }

  _settle(row, outcome) {
    row.state = "over";
    row.outcome = outcome;
    row.version++;
    this._changed.add(row);
  }

  _trim() {
    if (this.messages.length > ROWS_MAX) this.messages.splice(0, this.messages.length - ROWS_MAX);
    const excess = this.rows.length - ROWS_MAX;
    if (excess <= 0) return;
    for (const row of this.rows.splice(0, excess)) {
      if (row.request && this._byRequest.get(row.request) === row) this._byRequest.delete(row.request);
      this._changed.delete(row);
    }
    this.dropped += excess;
  }
}
