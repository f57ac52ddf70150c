// Shows the bytes of one or two messages: laid out as JSON with differences marked, or as they are.

import {html, useMemo, useState} from "./preact.js";
import {compare, countDifferences} from "./diff.js";
import {bytes, grouped, many} from "./format.js";
import {parse, stringOf} from "./json.js";
import {decode, visible} from "./text.js";

// Lines that are shown before a person asks for all: what can be read, and drawn at once.
const LINES_MAX = 800;
// Characters of a line, likewise.
const CHARS_MAX = 600;
// Lines around a difference that stay when only differences are shown.
const AROUND = 2;

// Returns {text, value, error} of a message that was loaded, once for each.
export const useParsed = loaded =>
  useMemo(() => {
    if (!loaded) return null;
    const text = decode(loaded.bytes);
    return {text, isCut: loaded.size > loaded.bytes.length, size: loaded.size, ...parse(text)};
  }, [loaded]);

// Lays out one message, or two side by side. Either may be missing. Of two that differ in their numbers alone, one is
// shown, with both numbers.
export const Layout = ({left, right, isPassedOn, onlyDifferences}) => {
  const rows = useMemo(() => compare(left?.value ?? null, right?.value ?? null), [left, right]);
  const [isWhole, showWhole] = useState(false);
  const isPair = Boolean(left && right) && !isPassedOn;
  const chosen = onlyDifferences && isPair ? fold(rows) : rows;
  const seen = isWhole ? chosen : chosen.slice(0, LINES_MAX);
  return html`
    <div class=${"json" + (isPair ? " pair" : "")}>
      ${seen.map((row, i) =>
        row.folded
          ? html`<div class="json-row folded" key=${i}><span>${many(row.folded, "equal line")}</span></div>`
          : html`
            <div class=${"json-row" + (isPair ? ` mark-${row.mark}` : "")} key=${i}>
              ${left ? html`<${Line} line=${row.left} other=${row.mark === "changed" ? row.right : null} isPassedOn=${isPassedOn} />` : null}
              ${right && !isPassedOn ? html`<${Line} line=${row.right} other=${row.mark === "changed" ? row.left : null} />` : null}
            </div>`)}
      ${chosen.length > seen.length
        ? html`<button class="more" onClick=${() => showWhole(true)}>Show all ${grouped(chosen.length)} lines</button>`
        : null}
      ${isPair ? html`<div class="json-row"><${End} parsed=${left} /><${End} parsed=${right} /></div>` : html`<${End} parsed=${left ?? right} />`}
    </div>`;
};

// Says where a message ends before its end.
const End = ({parsed}) => {
  if (parsed.isCut) return html`<div class="note">Cut here: the gateway keeps the first ${bytes(parsed.text.length)} of ${bytes(parsed.size)}.</div>`;
  if (!parsed.error) return html`<div></div>`;
  const rest = parsed.text.slice(parsed.at, parsed.at + 200);
  return html`<div class="note">No JSON from here on, ${parsed.error}: <code>${visible(rest) || "the end"}</code></div>`;
};

export const differencesOf = (left, right) => {
  if (!left || !right) return null;
  if (left.text === right.text) return {count: 0, text: "the same bytes", isPassedOn: true};
  const rows = compare(left.value, right.value);
  const count = countDifferences(rows);
  const marked = rows.filter(row => row.mark !== "same");
  if (marked.length && marked.every(isNumbering)) {
    return {count: 0, isPassedOn: true, text: marked.length > 1 ? "the same but for id and progress token" : `the same but for the ${isId(marked[0]) ? "id" : "progress token"}`};
  }
  return {count, isPassedOn: !count, text: count ? many(count, "difference") : "the same JSON, other spaces"};
};

// Each leg numbers its requests by itself.
const isId = ({left}) => left.depth === 1 && left.key === '"id"';
const isNumbering = row => row.mark === "changed" && (isId(row) || (row.left.key === '"progressToken"' && row.right.key === row.left.key));

const fold = rows => {
  const kept = new Uint8Array(rows.length);
  rows.forEach((row, i) => {
    if (row.mark !== "same") kept.fill(1, Math.max(0, i - AROUND), i + AROUND + 1);
  });
  const out = [];
  rows.forEach((row, i) => {
    if (kept[i]) out.push(row);
    else if (out.at(-1)?.folded) out.at(-1).folded++;
    else out.push({folded: 1});
  });
  return out;
};

const Line = ({line, other, isPassedOn}) => {
  const [isOpen, open] = useState(false);
  if (!line) return html`<div class="line none"></div>`;
  const {depth, key, text, kind, comma} = line;
  const isText = kind === "string" && text.includes("\\n");
  const shown = isOpen || text.length <= CHARS_MAX ? text : text.slice(0, CHARS_MAX);
  return html`
    <div class="line" style=${{"--depth": depth}}>
      ${key === null || key === undefined ? null : html`<span class="key">${visible(key)}</span><span class="sign">: </span>`}
      ${isOpen && isText
        ? html`<span class="text">${visible(stringOf({kind: "string", raw: text}), "\n\t")}</span>`
        : html`<span class=${kind + (text === '"[redacted]"' ? " redacted" : "")}>${other && !isPassedOn ? changed(shown, other.text) : visible(shown)}</span>`}
      ${other && isPassedOn ? html`<span class="sign"> → </span><span class=${other.kind}>${visible(other.text)}</span>` : null}
      ${comma ? html`<span class="sign">,</span>` : null}
      ${isText || text.length > CHARS_MAX
        ? html`<button class="fold" aria-expanded=${isOpen} onClick=${() => open(!isOpen)}>
            ${isOpen ? "less" : isText ? `as text, ${many(text.split("\\n").length, "line")}` : `${grouped(text.length - shown.length)} more`}
          </button>`
        : null}
    </div>`;
};

// Marks the part of a value in which it differs from the other.
const changed = (text, other) => {
  const most = Math.min(text.length, other.length);
  let [start, end] = [0, 0];
  while (start < most && text[start] === other[start]) start++;
  while (end < most - start && text.at(-1 - end) === other.at(-1 - end)) end++;
  if (!start && !end) return html`<mark>${visible(text)}</mark>`;
  return html`${visible(text.slice(0, start))}<mark>${visible(text.slice(start, text.length - end))}</mark>${visible(text.slice(text.length - end))}`;
};

// The text as it passed, with its line ends.
export const Raw = ({parsed}) => html`
  <pre class="raw" tabindex="0">${visible(parsed.text, "\n\t")}</pre>
  ${parsed.isCut ? html`<${End} parsed=${parsed} />` : null}`;

// A status is that of a response. What is sent to a server has none.
export const HeaderList = ({loaded, hasStatus}) => {
  const status = hasStatus ? loaded.status : null;
  if (status === null && !loaded.headers.length) return html`<p class="quiet">No headers: this message passed on a pipe or a stream.</p>`;
  return html`
    <table class="headers">
      <tbody>
        ${status === null ? null : html`<tr><th scope="row">status</th><td>${status}</td></tr>`}
        ${loaded.headers.map(([name, value]) => html`<tr><th scope="row">${visible(name)}</th><td>${visible(value)}</td></tr>`)}
      </tbody>
    </table>`;
};
