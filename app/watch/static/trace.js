// Reads a file that `isthmus serve --trace FILE` wrote, in the browser only, into the events that the page shows.
//
// A line is one input of the gateway with its effects. The bytes of a message are Base64 in it. Messages are not kept:
// the page remembers where their line is and reads it again.

import {ROWS_MAX, Store} from "./store.js";
import {decode} from "./text.js";

// Bytes of one line: the first holds the settings and all that was stored. Reached: the file is refused.
const LINE_MAX_BYTES = 64 * 1024 * 1024;
// Bytes of the file read at once.
const CHUNK_BYTES = 4 * 1024 * 1024;
// Bytes of a message that are shown, as in the gateway.
const SHOWN_MAX_BYTES = 65536;
// Requests without an answer that are remembered. Reached: they are forgotten, and their late answers stand alone.
const OPEN_MAX = 20000;
// Events handed to the store at once.
const BATCH = 2000;

export class TraceError extends Error {}

export const bytesOf = base64 => {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};

// Returns {store, servers, message(n)}: the same as the page has of a gateway.
export const openTrace = async (file, onProgress = () => {}) => {
  const store = new Store();
  store.begin("trace");
  const reader = new Reader(store);
  let number = 0;
  for await (const {text, from, size} of lines(file, onProgress)) {
    number++;
    let line;
    try {
      line = JSON.parse(text);
    } catch {
      throw new TraceError(`Line ${number} of ${file.name} is no JSON. Choose a file that --trace wrote.`);
    }
    if (number === 1 && !(line.input === "begin" && line.plan)) {
      throw new TraceError(`${file.name} is no trace: its first line does not begin one. Choose a file that --trace wrote.`);
    }
    reader.read(line, from, size);
  }
  if (number === 0) throw new TraceError(`${file.name} is empty. Choose a file that --trace wrote.`);
  reader.flush();
  return {store, servers: reader.servers, message: n => reader.message(file, n)};
};

async function* lines(file, onProgress) {
  let rest = new Uint8Array(0);
  let from = 0; // where `rest` begins in the file
  for (let at = 0; at < file.size; at += CHUNK_BYTES) {
    const chunk = new Uint8Array(await file.slice(at, at + CHUNK_BYTES).arrayBuffer());
    const joined = new Uint8Array(rest.length + chunk.length);
    joined.set(rest);
    joined.set(chunk, rest.length);
    let start = 0;
    for (let end; (end = joined.indexOf(10, start)) >= 0; start = end + 1) {
      if (end > start) yield {text: decode(joined.subarray(start, end)), from: from + start, size: end - start};
    }
    rest = joined.slice(start);
    from += start;
    if (rest.length > LINE_MAX_BYTES) throw new TraceError(`${file.name} has a line of more than 64 MiB. Choose a file that --trace wrote.`);
    onProgress(Math.min(1, (at + CHUNK_BYTES) / file.size));
  }
  if (rest.length) yield {text: decode(rest), from, size: rest.length};
}

class Reader {
  constructor(store) {
    this.servers = [];
    this._store = store;
    this._events = [];
    this._places = new Map(); // number of a message → where its bytes are
    this._channels = new Map(); // channel → {leg, server, session, transport, client, revision}
    this._sessions = new Map(); // the name in the file → the session as it is shown
    this._asked = new Map(); // leg, channel and id of a request → its record
    this._tokens = new Map(); // leg, channel and progress token → its record
    this._waiting = []; // requests of clients that were not sent to a server yet
    this._n = 0;
    this._requests = 0;
    this._zero = 0;
  }

  read(line, from, size) {
    const at = this._zero + (line.now ?? 0);
    if (line.input === "begin") {
      this._zero = line.unix_at_zero ?? 0;
      this.servers = line.plan.servers.map(({id}) => id);
      return;
    }
    if (line.opening && line.channel !== null) this._open(line.channel, line.opening, at);
    const paths = [];
    if (line.message) paths.push([["message"], line.message]);
    line.messages?.forEach((text, i) => paths.push([["messages", i], text]));
    const isWhole = line.pieces?.length && line.input === "receive_pieces";
    if (isWhole || (line.input === "receive_part" && line.size_bytes)) paths.push([["pieces"], line.pieces]);
    for (const [path, text] of paths) this._message(line.channel, "in", text, {from, size, path}, at, line);
    (line.effects ?? []).forEach((effect, i) => this._effect(effect, ["effects", i], {from, size}, at));
    if (line.input === "receive_close") this._close(line.channel, line.cause, at);
    if (this._events.length >= BATCH) this.flush();
  }

  flush() {
    this._store.add(this._events);
    this._events = [];
    for (const n of this._places.keys()) {
      if (this._places.size <= ROWS_MAX) break; // the store has no more messages
      this._places.delete(n);
    }
    for (const map of [this._asked, this._tokens]) if (map.size > OPEN_MAX) map.clear();
  }

  async message(file, n) {
    const {from, size, path} = this._places.get(n);
    const line = JSON.parse(decode(new Uint8Array(await file.slice(from, from + size).arrayBuffer())));
    const found = path.reduce((value, key) => value[key], line);
    const whole = joined([found].flat().map(bytesOf));
    const [, i] = path[0] === "effects" ? path : [];
    const effect = path[0] === "effects" ? line.effects[i] : null;
    const headers = effect?.headers ?? effect?.target?.headers ?? line.opening?.headers ?? [];
    const status = effect?.type === "Send" && effect.is_last ? (effect.status ?? 200) : null;
    return {headers, status, redacted: [], bytes: whole.slice(0, SHOWN_MAX_BYTES), size: whole.length, sha256: ""};
  }

  _open(channel, opening, at) {
    const {type} = opening;
    const isOfClient = ["PostOpening", "PipeOpening", "EventPipeOpening", "GetOpening", "MessageOpening", "DeleteOpening"].includes(type);
    if (!isOfClient) return;
    const isPipe = type === "PipeOpening" || type === "EventPipeOpening";
    const name = isPipe ? `channel ${channel}` : (opening.session ?? opening.token ?? "");
    const session = name ? this._session(name, opening.server, at, opening) : null;
    this._channels.set(channel, {leg: "client", server: opening.server, session, transport: isPipe ? "pipe" : "http", revision: opening.revision ?? "", isPipe});
  }

  _session(name, server, at, opening = {}) {
    let session = this._sessions.get(name);
    if (!session) {
      session = {type: "session", session: `s${this._sessions.size + 1}`, client: "", principal: opening.principal ?? "", server, transport: "http", revision: opening.revision ?? "", state: "open", reason: "", requests: 0, open_requests: 0, at, ended_at: null};
      if (name.startsWith("channel ")) session.transport = "pipe";
      this._sessions.set(name, session);
    }
    return session;
  }

  _close(channel, cause, at) {
    const known = this._channels.get(channel);
    if (known?.leg === "client" && known.isPipe && known.session) {
      Object.assign(known.session, {state: "over", reason: cause?.detail ?? "", ended_at: at});
      this._tell(known.session);
    }
    this._channels.delete(channel);
  }

  _effect(effect, path, place, at) {
    const put = (channel, text, rest) => this._message(channel, "out", text, {...place, path: [...path, ...rest]}, at, effect);
    if (effect.type === "Dial") {
      const {type, server, message} = effect.target;
      this._channels.set(effect.channel, {leg: "server", server, session: null, transport: type === "Spawn" ? "pipe" : "http"});
      if (type === "Post") put(effect.channel, message, ["target", "message"]);
    } else if (effect.type === "Send" && effect.message) {
      put(effect.channel, effect.message, ["message"]);
    } else if (effect.type === "SendEvents") {
      effect.messages.forEach((text, i) => put(effect.channel, text, ["messages", i]));
    } else if (effect.type === "Pass" && effect.size_bytes) {
      put(effect.channel, effect.pieces, ["pieces"]);
    } else if (effect.type === "Note" && effect.server) {
      this._tell({type: "note", level: effect.level, server: effect.server, text: effect.text});
    }
  }

  _tell(event) {
    this._events.push({...event, n: ++this._n});
  }

  _message(channel, way, text, place, at, source) {
    const bytes = joined([text].flat().map(bytesOf));
    if (!bytes.length) return;
    const about = this._channels.get(channel) ?? {leg: "client", server: "", session: null, transport: ""};
    let value = null;
    try {
      value = JSON.parse(decode(bytes));
    } catch {
      // It is shown as it is.
    }
    for (const [i, each] of (Array.isArray(value) && value.length ? value : [value]).entries()) {
      const size = Array.isArray(value) ? JSON.stringify(each).length : (source.size_bytes || bytes.length);
      this._one(channel, way, about, each, i ? {...place} : place, at, size, source);
    }
  }

  _one(channel, way, about, value, place, at, size, source) {
    const isObject = value !== null && typeof value === "object";
    const method = isObject && typeof value.method === "string" ? value.method : "";
    const hasId = isObject && value.id !== undefined && value.id !== null;
    const kind = !isObject ? "unreadable" : method ? (hasId ? "request" : "notification") : "response";
    const id = hasId ? JSON.stringify(value.id).slice(0, 80) : "";
    const record = this._recordOf(channel, way, about, kind, id, value, method, at, source, size);
    const session = record?.event.session ?? about.session?.session ?? (about.owner?.event.session || "");
    this._tell({type: "message", at, leg: about.leg, way, channel, session, server: about.server, kind, id, method, request: record?.event.request ?? "", bytes: size, is_cut: size > SHOWN_MAX_BYTES, event_id: source.event_id ?? ""});
    this._places.set(this._n, place);
    if (record?.isChanged) this._tell({...record.event, attempts: record.event.attempts.map(each => ({...each}))});
    if (record) record.isChanged = false;
  }

  // Finds the request that a message belongs to. The file does not say which request of a client became which request
  // to a server: the first that waits with the same method is taken.
  _recordOf(channel, way, about, kind, id, value, method, at, source, size) {
    const key = `${about.leg} ${channel} ${id}`;
    const isAsked = (about.leg === "client") === (way === "in");
    if (kind === "request" && isAsked) {
      const token = value.params?._meta?.progressToken;
      const record = about.leg === "client" ? this._begin(about, id, value, method, at, size) : this._sent(about, method, value, channel, id, at);
      if (!record) return null;
      this._asked.set(key, record);
      if (token !== undefined) {
        const key = `${about.leg} ${channel} ${JSON.stringify(token)}`;
        this._tokens.set(key, record);
        record.tokens.push(key);
      }
      return record;
    }
    if (kind === "response" && !isAsked) {
      const record = this._asked.get(key);
      if (!record) return null;
      this._asked.delete(key);
      if (about.leg === "server") this._answered(record, channel, at);
      else this._end(record, value, at, size);
      if (source.session && about.leg === "client") this._named(record, about, source.session, at);
      return record;
    }
    if (kind === "notification") {
      const {progressToken, requestId} = value.params ?? {};
      if (progressToken !== undefined) return this._tokens.get(`${about.leg} ${channel} ${JSON.stringify(progressToken)}`) ?? null;
      if (method === "notifications/cancelled" && requestId !== undefined) return this._asked.get(`${about.leg} ${channel} ${JSON.stringify(requestId)}`) ?? null;
    }
    return null;
  }

  _begin(about, id, value, method, at, size) {
    const params = value.params ?? {};
    const target = params.name ?? params.uri ?? "";
    const client = params.clientInfo ?? params._meta?.["io.modelcontextprotocol/clientInfo"];
    const clientText = client ? `${client.name ?? ""} ${client.version ?? ""}`.trim() : "";
    if (about.session && clientText) {
      about.session.client = clientText;
      about.session.revision = params.protocolVersion ?? about.session.revision;
    }
    if (about.session) {
      about.session.requests++;
      about.session.open_requests++;
      this._tell({...about.session});
    }
    const event = {type: "request", request: `t${++this._requests}`, at, session: about.session?.session ?? "", client: about.session?.client || clientText, principal: "", server: about.server, transport: about.transport, revision: about.revision || about.session?.revision || "", id, method, target: String(target), state: "open", outcome: "", code: null, ms: null, request_bytes: size, response_bytes: null, attempts: [], questions: 0};
    const record = {event, session: about.session, tokens: [], isChanged: true};
    this._waiting.push(record);
    return record;
  }

  _sent(about, method, value, channel, id, at) {
    const name = value.params?.name ?? value.params?.uri;
    const open = this._waiting.filter(({event}) => event.method === method && event.state === "open");
    const named = open.filter(({event}) => name === undefined || event.target === String(name));
    const record = [...named, ...open].find(({event}) => event.server === about.server) ?? named[0]; // or that of a profile
    if (!record) return null;
    this._waiting.splice(this._waiting.indexOf(record), 1);
    // Where a channel to a server serves one session, its other messages are of that session, too.
    if (about.owner === undefined) about.owner = record;
    else if (about.owner?.event.session !== record.event.session) about.owner = null;
    record.event.attempts.push({server: about.server, at, ms: null, channel, number: Number(id), revision: "", via: about.transport});
    record.isChanged = true;
    return record;
  }

  _answered(record, channel, at) {
    const attempt = record.event.attempts.findLast(each => each.channel === channel);
    if (attempt) attempt.ms = (at - attempt.at) * 1000;
    record.isChanged = true;
  }

  _end(record, value, at, size) {
    const {error, result} = value;
    const outcome = error ? "error" : result?.isError ? "tool error" : "result";
    Object.assign(record.event, {state: "over", outcome, code: error?.code ?? null, ms: (at - record.event.at) * 1000, response_bytes: size});
    record.isChanged = true;
    for (const key of record.tokens) this._tokens.delete(key);
    const waits = this._waiting.indexOf(record);
    if (waits >= 0) this._waiting.splice(waits, 1);
    if (record.session) {
      record.session.open_requests--;
      this._tell({...record.session});
    }
  }

  // The answer to `initialize` gives an HTTP client the name of its session.
  _named(record, about, name, at) {
    const session = this._session(name, about.server, at);
    Object.assign(session, {client: record.event.client, revision: record.event.revision, requests: session.requests + 1});
    record.event.session = session.session;
    this._tell({...session});
  }
}

const joined = parts => {
  if (parts.length === 1) return parts[0];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) whole.set(part, at), (at += part.length);
  return whole;
};
