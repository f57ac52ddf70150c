// The language of the filter: words apart by spaces, all of which must hold.
//
//   server:files   method:tools/*   outcome:error,cancelled   ms:>100   "some text"   -client:cursor
//
// A word has a name, a colon and patterns apart by commas, of which one must hold. `*` stands for any text. A word
// without a name is looked for in all fields. `-` before a word means that it must not hold.

const text = (about, ...fields) => ({kind: "text", about, fields});
const words = (about, field) => ({kind: "words", about, fields: [field]});

// The names that a filter knows, in the order of the completions.
export const KEYS = {
  server: text("the server, or the one that a profile chose", "server", "servers"),
  client: words("name and version of the client", "client"),
  method: words("the JSON-RPC method", "method"),
  target: text("the tool, prompt or resource", "target"),
  outcome: {kind: "outcome", about: "result, error, cancelled, unknown or open"},
  ms: {kind: "number", about: "milliseconds until the answer", field: "ms"},
  bytes: {kind: "number", about: "bytes of the answer", field: "response_bytes"},
  session: text("the session", "session"),
  principal: text("the caller who was authenticated", "principal"),
  id: text("the JSON-RPC id", "id"),
  code: text("the code of an error", "code"),
  kind: text("request, notification or response", "kind"),
  transport: text("how the client is connected: http or pipe", "transport"),
  revision: text("the protocol revision of the client", "revision"),
};

// The outcomes that a word chooses. `error` means all that failed: the word of a person who looks for what is wrong.
export const OUTCOMES = {
  result: ["result"],
  error: ["error", "tool error"],
  "tool-error": ["tool error"],
  "protocol-error": ["error"],
  cancelled: ["cancelled"],
  unknown: ["unknown", "unread"],
  open: ["open"],
};

const SEARCHED = ["method", "target", "server", "servers", "client", "session", "id", "principal"];
const NUMBER = /^(>=|<=|>|<|=)?([0-9]+(?:\.[0-9]+)?)(k|M)?$/;
const FACTOR = {k: 1000, M: 1000000};

class FilterError extends Error {}

// Returns {test, error, valid}. `test(row)` says whether a row is shown; it is null if a word has an error. `valid` is
// the test of the other words: what a table shows while a person is still writing.
export const compile = source => {
  const tests = [];
  let error = "";
  for (const word of split(source)) {
    try {
      tests.push(testOf(word));
      if (word.isUnended) throw new FilterError(`The quote at character ${word.valueFrom + 1} has no end. Add a ".`);
    } catch (failure) {
      if (!(failure instanceof FilterError)) throw failure;
      error ||= failure.message;
    }
  }
  const valid = row => tests.every(test => test(row));
  return {test: error ? null : valid, error, valid};
};

// Splits at spaces outside quotes. Each word has its places in the text.
const split = source => {
  const words = [];
  let at = 0;
  while (at < source.length) {
    if (/\s/.test(source[at])) {
      at++;
      continue;
    }
    const from = at;
    const isNegated = source[at] === "-" && at + 1 < source.length && !/\s/.test(source[at + 1]);
    if (isNegated) at++;
    let key = "";
    const named = /^([A-Za-z_]+):/.exec(source.slice(at, at + 40));
    if (named) (key = named[1].toLowerCase()), (at += named[0].length);
    let value = "";
    let isQuoted = false;
    let isUnended = false;
    const valueFrom = at;
    while (at < source.length && !/\s/.test(source[at])) {
      if (source[at] !== '"') {
        value += source[at++];
        continue;
      }
      const end = source.indexOf('"', at + 1);
      isQuoted = true;
      isUnended = end < 0;
      value += source.slice(at + 1, end < 0 ? source.length : end);
      at = end < 0 ? source.length : end + 1;
    }
    words.push({isNegated, key, value, isQuoted, isUnended, from, valueFrom, to: at});
  }
  return words;
};

const testOf = word => {
  const positive = word.key ? namedTest(word) : textTest(word.value);
  return word.isNegated ? row => !positive(row) : positive;
};

const textTest = value => {
  const sought = value.toLowerCase();
  return row => SEARCHED.some(field => String(row[field] ?? "").toLowerCase().includes(sought));
};

const namedTest = ({key, value, isQuoted}) => {
  const known = KEYS[key];
  if (!known) {
    const near = nearest(key);
    throw new FilterError(`Unknown word “${key}:”. ${near ? `Did you mean “${near}:”?` : `Known are ${Object.keys(KEYS).join(", ")}.`}`);
  }
  if (value === "") throw new FilterError(`“${key}:” needs a value: ${known.about}.`);
  const values = isQuoted ? [value] : value.split(",").filter(Boolean);
  const tests = values.map(each => kinds[known.kind](key, each, known));
  return row => tests.some(test => test(row));
};

const fieldsTest = (fields, pattern) => row =>
  fields.some(field => {
    const value = row[field];
    if (value === undefined || value === null) return false;
    return field === "servers" ? value.split(", ").some(each => pattern.test(each)) : pattern.test(String(value));
  });

const kinds = {
  text: (key, value, {fields}) => fieldsTest(fields, patternOf(value, "$")),
  words: (key, value, {fields}) => fieldsTest(fields, patternOf(value, "(?![A-Za-z0-9])")),
  outcome: (key, value) => {
    const chosen = OUTCOMES[value.toLowerCase()];
    if (!chosen) throw new FilterError(`Unknown outcome “${value}”. Known are ${Object.keys(OUTCOMES).join(", ")}.`);
    return row => chosen.includes(row.state === "open" ? "open" : row.outcome);
  },
  number: (key, value, {field}) => {
    const match = NUMBER.exec(value);
    if (!match) throw new FilterError(`“${key}:” takes a number, such as ${key}:>100 or ${key}:<=2k. Got “${value}”.`);
    const [, sign = "=", digits, unit] = match;
    const limit = Number(digits) * (unit ? FACTOR[unit] : 1);
    const holds = {
      ">": seen => seen > limit,
      ">=": seen => seen >= limit,
      "<": seen => seen < limit,
      "<=": seen => seen <= limit,
      "=": seen => Math.round(seen) === limit,
    }[sign];
    return row => row[field] !== null && row[field] !== undefined && holds(row[field]);
  },
};

// A pattern is the whole field, or, of a client and a method, its first words: `client:cursor` finds "cursor 1.4".
const patternOf = (value, end) => {
  const escaped = value.replace(/[.+?^${}()|[\]\\]/g, "\\$&");
  if (!value.includes("*")) return new RegExp(`^${escaped}${end}`, "i");
  return new RegExp(`^${escaped.replace(/\*+/g, "[^]*")}$`, "i");
};

const nearest = key => {
  const scored = Object.keys(KEYS).map(known => [distance(key, known), known]).sort((a, b) => a[0] - b[0]);
  return scored[0][0] <= 2 ? scored[0][1] : Object.keys(KEYS).find(known => known.startsWith(key.slice(0, 3)));
};

const distance = (a, b) => {
  let row = Array.from({length: b.length + 1}, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length];
};

const quoted = value => (/[\s",]/.test(value) ? `"${value.replaceAll('"', "")}"` : value);

// Returns a word that finds exactly this value.
export const wordFor = (key, value) => `${key}:${quoted(value)}`;

const COMPLETIONS_MAX = 12; // what a person reads at a glance

// Returns {from, to, choices: [{text, about}]} for the word at the caret. `values` gives what was seen for a name.
export const complete = (source, caret, values) => {
  const word = split(source).find(each => each.from <= caret && caret <= each.to);
  if (!word) return {from: caret, to: caret, choices: keyChoices("")};
  const start = word.from + (word.isNegated ? 1 : 0);
  if (!word.key) return {from: start, to: word.to, choices: word.isQuoted ? [] : keyChoices(word.value)};
  const last = word.isQuoted ? word.value : word.value.split(",").at(-1);
  const from = word.isQuoted ? word.valueFrom : word.to - last.length;
  const all = word.key === "outcome" ? Object.keys(OUTCOMES) : ["text", "words"].includes(KEYS[word.key]?.kind) ? values(word.key) : [];
  const sought = last.toLowerCase();
  const fits = all.filter(each => each.toLowerCase().includes(sought) && each !== last);
  fits.sort((a, b) => b.toLowerCase().startsWith(sought) - a.toLowerCase().startsWith(sought));
  return {from, to: word.to, choices: fits.slice(0, COMPLETIONS_MAX).map(each => ({text: quoted(each) + " ", shown: each, about: ""}))};
};

const keyChoices = prefix =>
  Object.entries(KEYS)
    .filter(([key]) => key.startsWith(prefix.toLowerCase()))
    .map(([key, {about}]) => ({text: key + ":", shown: key + ":", about}));
