// The messages of a session, or of one request, as arrows between client, Isthmus and servers.

import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from "./preact.js";
import {Detail} from "./detail.js";
import {bytes, clock, duration, grouped, ms} from "./format.js";
import {Empty, useKeys, useStore} from "./parts.js";
import {Split} from "./split.js";
import {plain} from "./text.js";

const STEP_PX = 28;
const TIME_PX = 120;
const HEADS_PX = 34; // the names of the lanes, which cover the top
const AROUND = 8;
// Sessions offered in the list: the newest. Reached: older ones are found through the table.
const SESSIONS_SHOWN_MAX = 300;

export class SequenceState {
  constructor() {
    this.session = "";
    this.request = null; // a row: only its messages are shown
    this.selected = null; // a message
    this.isOpen = false;
    this.isWide = false;
  }
}

export const Sequence = ({source, state, onFilter, onReplay}) => {
  const {store} = source;
  useStore(store, 100);
  const [, draw] = useState({});
  const change = made => (Object.assign(state, made), draw({}));
  const sessions = useMemo(() => [...store.sessions.values()].sort((a, b) => b.at - a.at).slice(0, SESSIONS_SHOWN_MAX), [store.version]);
  const session = state.session || store.rows.findLast(row => row.session)?.session || sessions[0]?.session || "";
  const messages = useMemo(() => messagesOf(store, session, state.request), [store.version, session, state.request]);
  const lanes = useMemo(() => lanesOf(messages, store, session), [messages]);
  const row = state.isOpen && state.selected ? store.rowOf(state.selected) : null;

  const move = step => {
    const at = messages.indexOf(state.selected);
    change({selected: messages[at < 0 ? (step > 0 ? 0 : messages.length - 1) : Math.min(messages.length - 1, Math.max(0, at + step))]});
  };
  const inDetail = () => document.activeElement?.closest(".detail-body");
  const open = message => change({selected: message, isOpen: true});
  useKeys({
    j: () => move(1), k: () => move(-1), ArrowDown: () => (inDetail() ? false : move(1)), ArrowUp: () => (inDetail() ? false : move(-1)),
    Enter: () => (state.selected ? change({isOpen: true}) : false),
    Escape: () => (state.isOpen ? change({isOpen: false, isWide: false}) : state.selected ? change({selected: null}) : state.request ? change({request: null}) : false),
    m: () => (state.isOpen ? change({isWide: !state.isWide}) : false),
  });

  if (!session && !messages.length) {
    return html`<div class="view"><${Empty} title="No session yet"><p>A session begins when a client connects. Its messages are arrows here, between the client, Isthmus and its servers.</p></${Empty}></div>`;
  }
  return html`
    <div class="view sequence">
      <div class="toolbar" role="toolbar" aria-label="Sequence">
        <label>Session <select value=${session} onChange=${event => change({session: event.target.value, request: null, selected: null, isOpen: false})}>
          ${sessions.some(each => each.session === session) ? null : html`<option value=${session}>${plain(session) || "without a session"}</option>`}
          ${sessions.map(each => html`<option key=${each.session} value=${each.session}>${plain(`${each.client || "unnamed"} → ${each.server} · ${each.session} · ${clock(each.at).slice(0, 8)}`)}</option>`)}
        </select></label>
        ${state.request
          ? html`<span class="chip">Only ${plain(state.request.method)} ${plain(state.request.target)} <button class="plain" aria-label="Show the whole session" title="Show the whole session (Esc)" onClick=${() => change({request: null})}>✕</button></span>`
          : null}
        <span class="quiet number">${grouped(messages.length)} messages</span>
        <span class="spring"></span>
        <span class="legend" aria-hidden="true"><i class="key-request"></i>request <i class="key-response"></i>response <i class="key-notification"></i>notification</span>
      </div>
      <${Split} isOpen=${Boolean(row)} isWide=${state.isWide}
        first=${messages.length ? html`<${Chart} store=${store} session=${session} messages=${messages} lanes=${lanes} selected=${state.selected} onOpen=${open} onSelect=${message => change({selected: message})} key=${session} />` : html`<${Empty} title="No messages of this session"><p>The gateway keeps only the newest messages, and those of this session are gone.</p></${Empty}>`}
        second=${row ? html`<${Detail} source=${source} row=${row} isWide=${state.isWide} onWide=${() => change({isWide: !state.isWide})} onClose=${() => change({isOpen: false, isWide: false})} isAlone=${Boolean(state.request)} onSequence=${() => change({request: state.request || !row.request ? null : row})} onFilter=${onFilter} onReplay=${row.type === "request" ? onReplay : null} />` : null} />
    </div>`;
};

const messagesOf = (store, session, request) => {
  if (request) return store.messagesOf(request);
  const requests = new Set();
  for (const row of store.rows) if (row.session === session && row.request) requests.add(row.request);
  return store.messages.filter(each => each.session === session || (each.request && requests.has(each.request)));
};

const lanesOf = (messages, store, session) => {
  const servers = [...new Set(messages.filter(each => each.leg === "server").map(each => each.server))];
  if (!servers.length) servers.push(store.sessions.get(session)?.server ?? "server");
  return servers;
};

const Chart = ({store, session, messages, lanes, selected, onOpen, onSelect}) => {
  const box = useRef(null);
  const [size, setSize] = useState({width: 900, height: 600});
  const [top, setTop] = useState(0);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => box.current && setSize({width: box.current.clientWidth, height: box.current.clientHeight}));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const {current} = box;
    const at = messages.indexOf(selected);
    if (at < 0) {
      if (isAtEnd.current) current.scrollTop = current.scrollHeight;
      return;
    }
    const y = at * STEP_PX;
    if (y < current.scrollTop) current.scrollTop = y;
    else if (y + STEP_PX + HEADS_PX > current.scrollTop + current.clientHeight) current.scrollTop = y + STEP_PX + HEADS_PX - current.clientHeight;
  }, [messages.length, selected, size.height]);
  const onScroll = () => {
    if (!box.current) return; // the event may come late
    const {scrollTop, clientHeight, scrollHeight} = box.current;
    isAtEnd.current = scrollTop + clientHeight >= scrollHeight - STEP_PX;
    setTop(scrollTop);
  };
  const questions = useMemo(() => questionsOf(messages), [messages]);

  const lane = Math.max(170, Math.min(560, (size.width - TIME_PX - 200) / (lanes.length + 1)));
  const x = i => TIME_PX + 90 + i * lane; // 0 is the client, 1 Isthmus, then the servers
  const end = x(lanes.length + 1) + 100;
  const width = Math.max(end, size.width);
  const height = messages.length * STEP_PX + STEP_PX;
  const from = Math.max(0, Math.floor(top / STEP_PX) - AROUND);
  const to = Math.min(messages.length, Math.ceil((top + size.height) / STEP_PX) + AROUND);
  const client = store.sessions.get(session)?.client || "client";
  const heads = [client, "Isthmus", ...lanes];
  return html`
    <div class="chart" ref=${box} onScroll=${onScroll} tabindex="0" role="group" aria-label="Messages as arrows">
      <svg class="heads" width=${width} height="34" aria-hidden="true">
        ${heads.map((name, i) => html`<text x=${x(i)} y="21" class=${i === 1 ? "own" : ""}>${plain(name).slice(0, 34)}</text>`)}
      </svg>
      <svg width=${width} height=${height}>
        <defs>
          ${["", "bad", "notification", "response"].map(name => html`<marker id=${"tip" + name} class=${"tip " + name} viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 .6 8 4 0 7.4z"/></marker>`)}
        </defs>
        ${messages.slice(from, to).map((message, i) => html`
          <${Arrow} key=${message.run + message.n} message=${message} x=${x} y=${(from + i) * STEP_PX} width=${width} lanes=${lanes} store=${store}
            question=${questions.get(`${message.leg} ${message.channel} ${message.id} ${message.way}`)} since=${messages[from + i - 1]?.at} end=${end} isSelected=${message === selected} onOpen=${onOpen} onSelect=${onSelect} />`)}
        ${heads.map((_, i) => html`<line class=${"lane" + (i === 1 ? " own" : "")} x1=${x(i)} x2=${x(i)} y1="0" y2=${height} />`)}
      </svg>
    </div>`;
};

const gapText = s => `+${s < 0.01 ? `${ms(s * 1000)} ms` : duration(s)}`;

// Returns the requests, by what their responses have: their leg, channel, id and direction.
const questionsOf = messages => {
  const found = new Map();
  for (const each of messages) {
    if (each.kind === "request") found.set(`${each.leg} ${each.channel} ${each.id} ${each.way === "in" ? "out" : "in"}`, each);
  }
  return found;
};

const Arrow = ({message, x, y, width, end: edge, lanes, store, question, since, isSelected, onOpen, onSelect}) => {
  const isClient = message.leg === "client";
  const peer = isClient ? 0 : 2 + lanes.indexOf(message.server);
  const [start, end] = message.way === "in" ? [x(peer), x(1)] : [x(1), x(peer)];
  const row = message.kind === "response" ? store.rowOf(message) : null;
  const isBad = message.kind === "unreadable" || (row && (row.outcome === "error" || row.outcome === "tool error"));
  const name = isBad ? "bad" : message.kind === "request" ? "" : message.kind;
  const what = message.method || (message.kind === "response" && question?.method ? question.method : "") || message.kind;
  const target = message.kind === "request" && isClient && message.request ? (store.rowOf(message)?.target ?? "") : "";
  const label = plain(message.kind === "response" ? (isBad && row ? row.outcome : "result") : `${what}${target ? " " + target : ""}`);
  const full = `${message.kind} ${plain(what)}${message.id ? " id " + plain(message.id) : ""} ${message.way === "in" ? "from" : "to"} ${isClient ? "the client" : plain(message.server)}, ${bytes(message.bytes)}`;
  const room = Math.floor((Math.abs(end - start) - 20) / 6.6);
  const direction = end > start ? 1 : -1;
  const shown = label.length > room ? label.slice(0, Math.max(3, room - 1)) + "…" : label;
  const id = message.id && message.kind !== "notification" && room > 34 ? plain(message.id).slice(0, 8) : "";
  const gap = since === undefined ? "" : gapText(Math.max(0, message.at - since));
  const onKeyDown = event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    onOpen(message);
    event.preventDefault();
    event.stopPropagation();
  };
  return html`
    <g class=${`arrow ${message.kind} ${name} ${isSelected ? "selected" : ""}`} transform=${`translate(0 ${y})`} tabindex="0" role="button" aria-label=${[clock(message.at), shown, id, gap].filter(Boolean).join(" ") + `: ${full}`}
       onClick=${() => onOpen(message)} onKeyDown=${onKeyDown} onFocus=${() => isSelected || onSelect(message)}>
      <rect class="hit" x="0" y="0" width=${width} height=${STEP_PX} />
      <text class="when" x="12" y="18">${clock(message.at)}</text>${" "}
      <line x1=${start} x2=${end - direction} y1="20" y2="20" marker-end=${`url(#tip${name})`} />
      <text class="label" x=${(start + end) / 2} y="14">${shown}</text>${" "}
      ${id ? html`<text class="id" x=${start + direction * 6} y="14" text-anchor=${direction > 0 ? "start" : "end"}>${id}</text>` : null}${" "}
      <text class="offset" x=${edge - 8} y="18">${gap}</text>
    </g>`;
};
