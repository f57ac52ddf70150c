// Makes visible what a terminal or a browser would obey: control characters, ANSI escapes, changes of direction,
// characters without width, and bytes that are no UTF-8. All text of peers is shown through `visible` or `plain`.

import {html} from "./preact.js";

const NAMES = {
  0x00: "NUL", 0x07: "BEL", 0x08: "BS", 0x09: "TAB", 0x0a: "LF", 0x0b: "VT", 0x0c: "FF", 0x0d: "CR", 0x1b: "ESC",
  0x7f: "DEL", 0x85: "NEL", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM", 0x200f: "RLM", 0x061c: "ALM",
  0x2028: "LSEP", 0x2029: "PSEP", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO",
  0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM", 0xad: "SHY",
};

// Surrogates stand alone here: pairs match the last group first. DC80–DCFF are bytes that `decode` could not read.
const HIDDEN =
  /[\u{E0000}-\u{E0FFF}\u{F0000}-\u{10FFFF}]|[\0-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\uffff\ud800-\udfff\ue000-\uf8ff]/gu;

const nameOf = code => {
  if (code >= 0xdc80 && code <= 0xdcff) return "0x" + (code - 0xdc00).toString(16).toUpperCase();
  return NAMES[code] ?? "U+" + code.toString(16).toUpperCase().padStart(4, "0");
};

// An emoji may be joined of several. A joiner anywhere else is hidden text.
const joins = (text, at) => text.charCodeAt(at) === 0x200d && at > 0 && text.charCodeAt(at - 1) >= 0x2600;

// Calls `onText` and `onHidden` for the parts of a text, in order. Characters in `kept` are ordinary text.
const split = (text, kept, onText, onHidden) => {
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (kept.includes(match[0]) || joins(text, match.index)) continue;
    if (match.index > from) onText(text.slice(from, match.index));
    onHidden(nameOf(match[0].codePointAt(0)));
    from = match.index + match[0].length;
  }
  if (from < text.length) onText(text.slice(from));
};

// Returns children for an element: the text, with a mark in the place of each hidden character.
export const visible = (text, kept = "") => {
  if (text.search(HIDDEN) < 0) return text;
  const parts = [];
  split(text, kept, part => parts.push(part), name => parts.push(html`<span class="hidden-char">${name}</span>`));
  return parts;
};

// Returns the same as text alone, for attributes and exports.
export const plain = text => {
  let out = "";
  split(text, "", part => (out += part), name => (out += `‹${name}›`));
  return out;
};

// Decodes UTF-8. A byte that is none becomes U+DC80 + its low bits, which `visible` shows as the byte that it was.
export const decode = bytes => {
  try {
    return new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(bytes);
  } catch {
    return decodeLoosely(bytes);
  }
};

const decodeLoosely = bytes => {
  const decoder = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});
  const parts = [];
  let from = 0;
  for (let at = 0; at < bytes.length; ) {
    const size = lengthOf(bytes, at);
    if (size) {
      at += size;
      continue;
    }
    parts.push(decoder.decode(bytes.subarray(from, at)), String.fromCharCode(0xdc00 + bytes[at]));
    from = ++at;
  }
  parts.push(decoder.decode(bytes.subarray(from)));
  return parts.join("");
};

// Returns the length of the character at a place, 0 if there is none (RFC 3629, 4).
const lengthOf = (bytes, at) => {
  const first = bytes[at];
  if (first < 0x80) return 1;
  const size = first >= 0xc2 && first <= 0xdf ? 2 : first >= 0xe0 && first <= 0xef ? 3 : first >= 0xf0 && first <= 0xf4 ? 4 : 0;
  if (!size || at + size > bytes.length) return 0;
  for (let i = 1; i < size; i++) if ((bytes[at + i] & 0xc0) !== 0x80) return 0;
  const second = bytes[at + 1];
  if (first === 0xe0 && second < 0xa0) return 0;
  if (first === 0xed && second > 0x9f) return 0;
  if (first === 0xf0 && second < 0x90) return 0;
  if (first === 0xf4 && second > 0x8f) return 0;
  return size;
};
