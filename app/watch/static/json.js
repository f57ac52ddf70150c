// Reads JSON without losing anything: numbers, escapes, the order of members and members of equal names stay as they
// were sent. A value is {kind, raw} or {kind, members: [{key, value}]} or {kind, items: [value]}.

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /true|false|null/y;

// Depth of values that are read. Deeper JSON is shown as text: no peer sends it, and every level costs stack.
const DEPTH_MAX = 200;

class Broken extends Error {
  constructor(at) {
    super(`unreadable at character ${at}`);
    this.at = at;
  }
}

// Returns {value, error, at}: `error` says where reading stopped, and `value` holds all that came before.
export const parse = text => {
  let at = 0;
  const stack = []; // what is open when reading stops is given back as it is
  const take = pattern => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (!match) return null;
    at = pattern.lastIndex;
    return match[0];
  };
  const skip = () => take(SPACE);
  const fail = () => {
    throw new Broken(at);
  };
  const scalar = () => {
    const letter = text[at];
    if (letter === '"') return {kind: "string", raw: take(STRING) ?? fail()};
    if (letter === "t" || letter === "f" || letter === "n") return {kind: "word", raw: take(WORD) ?? fail()};
    return {kind: "number", raw: take(NUMBER) ?? fail()};
  };
  const read = depth => {
    skip();
    const letter = text[at];
    if (letter !== "{" && letter !== "[") return scalar();
    if (depth >= DEPTH_MAX) fail();
    const start = at++;
    const isObject = letter === "{";
    const value = isObject ? {kind: "object", members: [], raw: ""} : {kind: "array", items: [], raw: ""};
    stack.push(value);
    const close = isObject ? "}" : "]";
    skip();
    if (text[at] !== close) {
      for (;;) {
        if (isObject) {
          skip();
          const key = take(STRING) ?? fail();
          skip();
          if (text[at++] !== ":") (at--, fail());
          const member = {key, value: {kind: "missing", raw: "…"}};
          value.members.push(member);
          member.value = read(depth + 1);
        } else {
          const place = value.items.push({kind: "missing", raw: "…"}) - 1;
          value.items[place] = read(depth + 1);
        }
        skip();
        if (text[at] === close) break;
        if (text[at] !== ",") fail();
        at++;
      }
    }
    at++;
    value.raw = text.slice(start, at);
    stack.pop();
    return value;
  };
  try {
    const value = read(0);
    skip();
    return at < text.length ? {value, error: `more text after the value, at character ${at}`, at} : {value, error: "", at};
  } catch (error) {
    if (!(error instanceof Broken)) throw error;
    for (let i = stack.length - 1; i > 0; i--) attach(stack[i - 1], stack[i]);
    return {value: stack[0] ?? null, error: error.message, at: error.at};
  }
};

const attach = (outer, inner) => {
  const last = outer.kind === "object" ? outer.members.at(-1) : null;
  if (last) last.value = inner;
  else outer.items[outer.items.length - 1] = inner;
};

// Returns the first member of a name, or undefined.
export const member = (value, name) =>
  value?.kind === "object" ? value.members.find(each => each.key === JSON.stringify(name))?.value : undefined;

// Returns the text that a string stands for. One that no parser reads is given back as it is.
export const stringOf = value => {
  if (value?.kind !== "string") return value?.raw ?? "";
  try {
    return JSON.parse(value.raw);
  } catch {
    return value.raw;
  }
};

// True if two values are the same to a reader of JSON who compares numbers as text: space outside does not count.
export const isSame = (a, b) => {
  if (a.kind !== b.kind) return false;
  if (a.kind === "object") {
    return a.members.length === b.members.length
      && a.members.every((one, i) => one.key === b.members[i].key && isSame(one.value, b.members[i].value));
  }
  if (a.kind === "array") return a.items.length === b.items.length && a.items.every((one, i) => isSame(one, b.items[i]));
  return a.raw === b.raw;
};
