// Small parts that several views are made of.

import {html, useEffect, useLayoutEffect, useReducer, useRef, useState} from "./preact.js";
import {plain, visible} from "./text.js";

// Draws a component again whenever the store has changed, once in a frame, or at most once in `pause_ms`.
export const useStore = (store, pause_ms = 0) => {
  const [, draw] = useReducer(count => count + 1, 0);
  useEffect(() => {
    let timer = null;
    const later = () => {
      timer = null;
      draw();
    };
    const stop = store.listen(() => (pause_ms ? (timer ??= setTimeout(later, pause_ms)) : draw()));
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [store]);
};

const isTyping = target => /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable;

// Calls `keys[name]` for a key that is pressed outside fields, or `keys.Escape` anywhere. What returns false is ignored.
export const useKeys = keys => {
  const now = useRef(keys);
  now.current = keys;
  useLayoutEffect(() => {
    const onKey = event => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      const act = now.current[event.key];
      if (!act || (isTyping(event.target) && event.key !== "Escape")) return;
      const isOnButton = /^(BUTTON|A|SUMMARY)$/.test(event.target.tagName) && (event.key === "Enter" || event.key === " ");
      if (isOnButton || act(event) === false) return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
};

// Asks for JSON now and every `period_s` seconds, while the page is seen. Returns [answer, error, ask].
export const usePoll = (load, period_s, deps) => {
  const [state, set] = useState([null, null]);
  const ask = useRef(() => {});
  useEffect(() => {
    let isOver = false;
    ask.current = async () => {
      try {
        const answer = await load();
        if (!isOver) set([answer, null]);
      } catch (error) {
        if (!isOver) set(([answer]) => [answer, error]);
      }
    };
    ask.current();
    const timer = setInterval(() => document.hidden || ask.current(), period_s * 1000);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, deps);
  return [...state, () => ask.current()];
};

export const Empty = ({title, children}) => html`<div class="empty"><h2>${title}</h2><div>${children}</div></div>`;

export const Failed = ({error, what}) =>
  html`<${Empty} title=${`${what} cannot be shown`}><p>${visible(error.message)}</p><p>The page asks again by itself.</p></${Empty}>`;

const LABELS = {"tool error": "tool error", error: "error", result: "result", cancelled: "cancelled", unread: "passed on"};
const TITLES = {
  unknown: "The gateway started again before the answer.",
  unread: "The answer is too large to be searched for an error: it was passed on unread.",
};

export const Outcome = ({row}) => {
  if (row.state === "open") return html`<span class="outcome open">open</span>`;
  if (!row.outcome) return null;
  const code = row.outcome === "error" && row.code !== null ? html` <span class="code">${row.code}</span>` : null;
  return html`<span class=${"outcome " + row.outcome.replace(" ", "-")} title=${TITLES[row.outcome]}>${LABELS[row.outcome] ?? row.outcome}${code}</span>`;
};

// `tools/call` with its first part quiet: the eye looks for the second.
export const Method = ({name}) => {
  const at = name.lastIndexOf("/") + 1;
  return html`<span class="method"><span class="quiet">${visible(name.slice(0, at))}</span>${visible(name.slice(at))}</span>`;
};

export const State = ({name}) => html`<span class=${"state " + String(name).replace(/[^a-z]+/g, "-")}>${name}</span>`;

// A dialog of the browser: it keeps the focus inside and gives it back.
export const Dialog = ({title, onClose, wide, children}) => {
  const box = useRef(null);
  useEffect(() => {
    box.current.showModal();
  }, []);
  const onClick = event => event.target === box.current && onClose();
  return html`
    <dialog ref=${box} class=${wide ? "wide" : ""} aria-label=${plain(title)} onClose=${onClose} onClick=${onClick}>
      <header><h2>${visible(title)}</h2><button class="plain" onClick=${onClose} aria-label="Close" title="Close (Esc)">✕</button></header>
      <div class="dialog-body">${children}</div>
    </dialog>`;
};

// A button that has to be pressed twice: for what cannot be undone.
export const Sure = ({label, sure, onSure, disabled}) => {
  const [isAsked, ask] = useState(false);
  useEffect(() => {
    if (!isAsked) return;
    const timer = setTimeout(() => ask(false), 4000);
    return () => clearTimeout(timer);
  }, [isAsked]);
  const onClick = () => {
    if (isAsked) onSure();
    ask(!isAsked);
  };
  return html`<button class=${isAsked ? "danger" : ""} disabled=${disabled} onClick=${onClick} onBlur=${() => ask(false)}>${isAsked ? sure : label}</button>`;
};

// Saves text as a file on the computer of the person.
export const save = (name, type, parts) => {
  const url = URL.createObjectURL(new Blob(parts, {type}));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
};

export const Copy = ({text, label = "Copy"}) => {
  const [said, say] = useState("");
  const onClick = async () => {
    try {
      await navigator.clipboard.writeText(text());
      say("Copied");
    } catch {
      say("Select it instead"); // a browser lends its clipboard only to pages of this machine and of https
    }
    setTimeout(() => say(""), 1500);
  };
  return html`<button class="plain" onClick=${onClick}>${said || label}</button>`;
};

// The text of a cell with its whole as a tip.
export const Cell = ({text, name = ""}) => html`<span class=${"cell " + name} title=${text.length > 20 ? plain(text) : undefined}>${visible(text)}</span>`;
