// Requests to the gateway: each carries the token in a header, so no link and no other site can use it.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const ROOT = new URL("/", import.meta.url);

// Bodies of messages in memory: those of the rows a person looks at. Each has at most 64 KiB.
const BODIES_MAX = 40;

export class Api {
  constructor(token) {
    this._token = token;
    this._bodies = new Map();
  }

  async get(path, signal) {
    return (await this._fetch("GET", path, {signal})).json();
  }

  async post(path, body) {
    return (await this._fetch("POST", path, {body, isCommand: true})).json();
  }

  async postText(path, body) {
    return (await this._fetch("POST", path, {body, isCommand: true})).text();
  }

  async delete(path) {
    return (await this._fetch("DELETE", path, {isCommand: true})).json();
  }

  // Returns the response: bytes of a file, or a part of it.
  async open(path, {range, signal} = {}) {
    return this._fetch("GET", path, {range, signal});
  }

  // Returns the headers and the body of a message, as they passed.
  async message(n) {
    const known = this._bodies.get(n);
    if (known) return known;
    const [about, response] = await Promise.all([this.get(`ui/api/messages/${n}`), this.open(`ui/api/messages/${n}/body`)]);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const size = Number(response.headers.get("X-Full-Size") ?? bytes.length);
    const sha256 = response.headers.get("X-SHA256") ?? "";
    const made = {headers: about.headers ?? [], status: about.status ?? null, redacted: about.redacted ?? [], bytes, size, sha256};
    if (this._bodies.size >= BODIES_MAX) this._bodies.delete(this._bodies.keys().next().value);
    this._bodies.set(n, made);
    return made;
  }

  forgetBodies() {
    this._bodies.clear();
  }

  async _fetch(method, path, {body, isCommand, range, signal} = {}) {
    const headers = {Authorization: `Bearer ${this._token}`};
    if (isCommand) headers["X-Requested-With"] = "isthmus";
    if (range) headers.Range = range;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const options = {method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error"};
    if (body !== undefined) options.body = JSON.stringify(body);
    let response;
    try {
      response = await fetch(new URL(path, ROOT), options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The gateway does not answer.");
    }
    if (!response.ok) throw new ApiError(response.status, await reasonOf(response));
    return response;
  }
}

// Returns the text of an error response: {"error": text} or {"error": {"message": text}}.
const reasonOf = async response => {
  try {
    const {error} = await response.json();
    return typeof error === "string" ? error : (error?.message ?? `status ${response.status}`);
  } catch {
    return `status ${response.status}`;
  }
};
