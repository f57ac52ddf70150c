// The table of what passes, newest last, with the detail of one row beside it.

import {html, useEffect, useMemo, useRef, useState} from "./preact.js";
import {Detail} from "./detail.js";
import {compile, wordFor} from "./filter.js";
import {FilterBox} from "./filterbox.js";
import {grouped, many} from "./format.js";
import {Empty, save, useKeys, useStore} from "./parts.js";
import {ShownRows} from "./rows.js";
import {Split} from "./split.js";
import {RowView, Table} from "./table.js";

// What stays as it is while another view is shown.
export class LiveState {
  constructor(source) {
    this.shown = new ShownRows(source.store);
    this.filter = "";
    this.selected = null;
    this.isOpen = false;
    this.isFollowed = !source.isFile;
    this.isWide = false;
  }

  setFilter(text) {
    this.filter = text;
    this.shown.setTest(compile(text).valid);
  }
}

export const Live = ({source, state, overview, onSequence, onReplay, onHelp}) => {
  useStore(source.store);
  const [, draw] = useState({});
  const change = made => (Object.assign(state, made), draw({}));
  const field = useRef(null);
  const {shown, selected} = state;
  const {store} = source;
  useMemo(() => shown.update(), [shown, store.version]);
  const isPaused = shown.until !== Infinity;

  const setFilter = text => (state.setFilter(text), draw({}));
  const onFilter = (key, value) => {
    const word = wordFor(key, value);
    if (!state.filter.includes(word)) setFilter(`${state.filter.trim()} ${word}`.trim() + " ");
  };
  const open = row => change({selected: row, isOpen: true, isFollowed: false});
  const move = step => {
    const {list} = shown;
    if (!list.length) return;
    const at = selected ? shown.placeOf(selected) : -1;
    const from = at >= 0 ? at : state.isFollowed ? list.length - step : step > 0 ? -1 : list.length;
    let to = Math.min(list.length - 1, Math.max(0, Number.isFinite(step) ? from + step : step));
    while (list[to] && (list[to].type === "gap" || list[to].type === "restart") && list[to + Math.sign(step)]) to += Math.sign(step);
    change({selected: list[to], isFollowed: false});
  };
  const pause = () => (shown.hold(!isPaused), change({}));
  const follow = () => change({isFollowed: !state.isFollowed});
  const clear = () => (store.clear(), shown.hold(false), shown.setTest(compile(state.filter).valid), change({selected: null, isOpen: false}));
  const pin = row => row && (row.type === "request" || row.type === "message") && store.pin(row);
  const page = () => Math.max(1, Math.floor((document.querySelector(".rows")?.clientHeight ?? 480) / 24) - 1);
  const inDetail = () => document.activeElement?.closest(".detail-body");
  const arrows = step => (inDetail() ? false : move(step()));
  useKeys({
    "/": () => (field.current.focus(), field.current.select()),
    j: () => move(1), k: () => move(-1), g: () => move(-Infinity), G: () => move(Infinity),
    ArrowDown: () => arrows(() => 1), ArrowUp: () => arrows(() => -1),
    PageDown: () => arrows(page), PageUp: () => arrows(() => -page()),
    Home: () => arrows(() => -Infinity), End: () => arrows(() => Infinity),
    Enter: () => (selected ? change({isOpen: true}) : false),
    Escape: () => (state.isOpen ? change({isOpen: false, isWide: false}) : selected ? change({selected: null}) : false),
    p: () => pin(selected), " ": pause, f: follow, C: clear, e: () => exportRows(shown.list),
    m: () => (state.isOpen ? change({isWide: !state.isWide}) : false),
    s: () => (selected ? onSequence(selected) : false),
    r: () => (selected && onReplay && selected.type === "request" ? onReplay(selected, store.messagesOf(selected).find(each => each.leg === "client" && each.way === "in" && each.kind === "request")) : false),
  });

  const detail = state.isOpen && selected && (selected.type === "request" || selected.type === "message");
  const count = shown.list.length;
  const table = html`
    <div class="live-table">
      ${store.pins.length ? html`
        <div class="pins" role="grid" aria-label="Pinned rows" tabindex="0">
          ${store.pins.map(row => html`<${RowView} key=${row.seq} row=${row} version=${row.version} isSelected=${row === selected} onOpen=${open} />`)}
        </div>` : null}
      ${count || store.rows.length
        ? html`<${Table} shown=${shown} selected=${selected} isFollowed=${state.isFollowed && !isPaused} onOpen=${open} onFollow=${value => change({isFollowed: value})} label="Messages" />`
        : null}
      ${count ? null : html`<${Nothing} source=${source} overview=${overview} filter=${state.filter} />`}
    </div>`;
  return html`
    <div class="view live">
      <div class="toolbar" role="toolbar" aria-label="Rows">
        <${FilterBox} source=${source} text=${state.filter} onText=${setFilter} fieldRef=${field} />
        <span class="number quiet count-of" title="Rows shown, of all that the page holds">${grouped(count)} of ${grouped(store.rows.length)}</span>
        ${source.isFile ? null : html`
          <button aria-pressed=${isPaused} onClick=${pause} title="Stop the table; the page goes on collecting (Space)">${isPaused ? html`Paused <span class="count">${grouped(shown.heldBack)} new</span>` : "Pause"}</button>
          <button aria-pressed=${state.isFollowed} onClick=${follow} title="Stay at the newest row (f)">Follow</button>
          <button onClick=${clear} title="Forget all rows in this page (Shift C)">Clear</button>`}
        <button onClick=${() => pin(selected)} disabled=${!selected} aria-pressed=${Boolean(selected?.isPinned)} title="Keep the row at the top (p)">Pin</button>
        <button onClick=${() => exportRows(shown.list)} disabled=${!count} title="Save the rows shown as JSON Lines (e)">Export</button>
      </div>
      <${Split} isOpen=${Boolean(detail)} isWide=${state.isWide} first=${table}
        second=${detail ? html`<${Detail} source=${source} row=${selected} isWide=${state.isWide} onWide=${() => change({isWide: !state.isWide})} onClose=${() => change({isOpen: false, isWide: false})} onSequence=${onSequence} onFilter=${onFilter} onReplay=${selected.type === "request" ? onReplay : null} />` : null} />
    </div>`;
};

const Nothing = ({source, overview, filter}) => {
  if (filter.trim() && source.store.rows.length) {
    return html`<${Empty} title="No row fits the filter"><p>${many(source.store.rows.length, "row")} ${source.store.rows.length === 1 ? "is" : "are"} here. Change the filter, or press <kbd>/</kbd> and <kbd>Esc</kbd> to clear it.</p></${Empty}>`;
  }
  if (source.isFile) return html`<${Empty} title="No messages in this file"><p>The run ended before a client connected.</p></${Empty}>`;
  const servers = overview?.servers ?? [];
  return html`
    <${Empty} title="Nothing recorded yet">
      <p>Isthmus records while this page is open, or from its start with <code>ui.keep: true</code>. Each request of a client is a row here, as it happens.</p>
      ${servers.length ? html`<p>Servers: ${servers.map((id, i) => html`${i ? ", " : ""}<code>${id}</code>`)}</p>` : null}
      <p class="quiet"><code>isthmus connect-info</code> prints what each client needs. Press <kbd>?</kbd> for the keys of this page.</p>
    </${Empty}>`;
};

// Saves what the rows hold, without the bodies of messages.
const exportRows = list => {
  const lines = list.map(row => JSON.stringify(exported(row)) + "\n");
  save("isthmus-messages.jsonl", "application/jsonl", lines);
};

export const exported = row => {
  if (row.type === "gap") return {type: "gap", skipped: row.count};
  if (row.type === "restart") return {type: "restart", at: row.at};
  if (row.message) return {type: "message", client: row.client, ...row.message};
  const {type, run, request, at, session, client, principal, server, transport, revision, id, method, target, state, outcome, code, ms, request_bytes, response_bytes, attempts, questions} = row;
  return {type, run, request, at, session, client, principal, server, transport, revision, id, method, target, state, outcome, code, ms, request_bytes, response_bytes, attempts: attempts ?? [], questions};
};
