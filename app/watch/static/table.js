// A table of very many rows, of which only those that are seen are in the document.

import {Component, html, useEffect, useLayoutEffect, useRef, useState} from "./preact.js";
import {bytes, clock, grouped, many, ms} from "./format.js";
import {Method, Outcome} from "./parts.js";
import {plain, visible} from "./text.js";

export const ROW_PX = 24;
const HEAD_PX = 26; // the names of the columns, which cover the top
const AROUND = 12; // rows that are drawn before and after those that are seen

export const Table = ({shown, selected, onOpen, isFollowed, onFollow, label}) => {
  const box = useRef(null);
  const [first, setFirst] = useState(0);
  const [height, setHeight] = useState(600);
  const last = useRef({top: 0, removed: 0, isOurs: false, isFollowed});
  last.current.isFollowed = isFollowed;
  const {list} = shown;

  // Where the page scrolls by itself, a person has said nothing about following.
  const scrollTo = top => {
    const before = box.current.scrollTop;
    box.current.scrollTop = top;
    if (box.current.scrollTop !== before) last.current.isOurs = true;
  };

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => box.current && setHeight(box.current.clientHeight));
    observer.observe(box.current);
    setHeight(box.current.clientHeight);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const {current} = box;
    const removed = shown.removed - last.current.removed;
    last.current.removed = shown.removed;
    if (isFollowed) scrollTo(current.scrollHeight);
    else if (removed > 0 && current.scrollTop > 0) scrollTo(current.scrollTop - removed * ROW_PX);
  });

  useEffect(() => {
    const {current} = box;
    const at = selected ? shown.placeOf(selected) : -1;
    if (at < 0 || isFollowed) return;
    const top = at * ROW_PX;
    if (top < current.scrollTop) scrollTo(top);
    else if (top + ROW_PX + HEAD_PX > current.scrollTop + current.clientHeight) scrollTo(top + ROW_PX + HEAD_PX - current.clientHeight);
  }, [selected, height]);

  const onScroll = () => {
    if (!box.current) return; // the event may come late
    const {scrollTop, clientHeight, scrollHeight} = box.current;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - ROW_PX / 2;
    const {isOurs, top} = last.current;
    const isMoved = isAtEnd ? scrollTop > top + 1 : scrollTop < top - 1;
    if (!isOurs && isAtEnd !== last.current.isFollowed && isMoved) onFollow(isAtEnd);
    Object.assign(last.current, {top: scrollTop, isOurs: false});
    setFirst(Math.max(0, Math.floor(scrollTop / ROW_PX) - AROUND));
  };

  // A row is drawn into the place of one that is no longer seen, so that scrolling changes texts and no elements.
  const count = Math.ceil(height / ROW_PX) + 2 * AROUND;
  const from = Math.max(0, Math.min(first, list.length - count));
  const slots = new Array(Math.min(count, list.length)).fill(null);
  for (let i = from; i < Math.min(from + count, list.length); i++) {
    const row = list[i];
    slots[i % slots.length] = html`
      <${RowView} key=${i % slots.length} row=${row} version=${row.version} place=${i} isSelected=${row === selected} onOpen=${onOpen} />`;
  }
  const active = selected && shown.placeOf(selected) >= 0 ? `row-${selected.seq}` : undefined;
  return html`
    <div class="rows" role="grid" aria-label=${label} aria-rowcount=${list.length + 1} ref=${box} tabindex="0" onScroll=${onScroll} aria-activedescendant=${active}>
      <div class="row head" role="row" aria-rowindex="1">
        ${COLUMNS.map(([name, text]) => html`<span role="columnheader" class=${"cell " + name}>${text}</span>`)}
      </div>
      <div class="all-rows" role="rowgroup" style=${{height: `${list.length * ROW_PX}px`}}>${slots}</div>
    </div>`;
};

const COLUMNS = [
  ["time", "Time"], ["client", "Client"], ["way", ""], ["server", "Server"], ["method", "Method"],
  ["target", "Target"], ["result", "Outcome"], ["ms", "ms"], ["bytes", "Bytes"],
];

export class RowView extends Component {
  shouldComponentUpdate(next) {
    const {row, version, place, isSelected} = this.props;
    return row !== next.row || version !== next.version || place !== next.place || isSelected !== next.isSelected;
  }

  render({row, place, isSelected, onOpen}) {
    const names = ["row", row.type, place % 2 ? "odd" : ""];
    if (isSelected) names.push("selected");
    if (row.isPinned) names.push("pinned");
    if (row.outcome === "error" || row.outcome === "tool error") names.push("bad");
    const about = {class: names.join(" "), role: "row", "aria-selected": isSelected};
    if (place !== undefined) {
      const style = {transform: `translateY(${place * ROW_PX}px)`};
      Object.assign(about, {id: `row-${row.seq}`, "aria-rowindex": place + 2, style});
    }
    if (row.type === "gap" || row.type === "restart") {
      return html`<div ...${about}><span class="cell across" role="gridcell">${markerText(row)}</span></div>`;
    }
    return html`
      <div ...${about} onMouseDown=${event => event.button || onOpen(row)}>
        ${row.message ? cellsOfMessage(row) : cellsOfRequest(row)}
      </div>`;
  }
}

const markerText = row =>
  row.type === "gap"
    ? `${many(row.count, "record")} skipped: the gateway had dropped them before this page asked`
    : "The gateway has started again. The rows above are of the run before.";

const cell = (name, content, title) => html`<span class=${"cell " + name} role="gridcell" title=${title}>${content}</span>`;
const tip = text => (text.length > 16 ? plain(text) : undefined);

const cellsOfRequest = row => html`
  ${cell("time", clock(row.at))}
  ${cell("client", row.client ? visible(row.client) : html`<span class="quiet">unnamed</span>`, tip(row.client))}
  ${cell("way", "→")}
  ${cell("server", visible(serverText(row)), tip(serverText(row)))}
  ${cell("method", html`<${Method} name=${row.method} />`)}
  ${cell("target", visible(row.target), tip(row.target))}
  ${cell("result", html`<${Outcome} row=${row} />`)}
  ${cell("ms", html`<span class="ms-bar" style=${{"--share": share(row.ms)}}></span>${ms(row.ms)}`)}
  ${cell("bytes", row.response_bytes ? bytes(row.response_bytes) : "", `${grouped(row.request_bytes ?? 0)} bytes asked, ${row.response_bytes ? grouped(row.response_bytes) + " bytes" : "nothing"} answered`)}`;

// A bar grows with the logarithm: 1 ms is nothing, 10 s is all.
const share = value => (value === null || value <= 1 ? 0 : Math.min(1, Math.log10(value) / 4).toFixed(2));

export const serverText = row => (row.servers && row.servers !== row.server ? `${row.server} › ${row.servers}` : row.server);

const cellsOfMessage = row => {
  const {leg, way} = row.message;
  const isRight = (leg === "client") === (way === "in");
  const own = html`<span class="quiet">Isthmus</span>`;
  return html`
    ${cell("time", clock(row.at))}
    ${cell("client", leg === "client" ? (row.client ? visible(row.client) : html`<span class="quiet">unnamed</span>`) : own, tip(row.client))}
    ${cell("way", isRight ? "→" : "←")}
    ${cell("server", leg === "server" ? visible(row.server) : own, tip(row.server))}
    ${cell("method", row.method ? html`<${Method} name=${row.method} />` : html`<span class="quiet">${row.kind}</span>`)}
    ${cell("target", row.id && html`<span class="quiet">id ${visible(row.id)}</span>`)}
    ${cell("result", row.kind === "unreadable" ? html`<span class="outcome error">unreadable</span>` : html`<span class="quiet">${row.kind}</span>`)}
    ${cell("ms", "")}
    ${cell("bytes", bytes(row.response_bytes), `${grouped(row.response_bytes)} bytes`)}`;
};
