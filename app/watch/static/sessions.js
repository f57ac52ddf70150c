// The sessions of clients: those that are open, and the last that ended.

import {html, useEffect} from "./preact.js";
import {clock, dateTime, duration, grouped} from "./format.js";
import {Cell, Empty, State, useStore} from "./parts.js";
import {visible} from "./text.js";

const SHOWN_MAX = 500; // rows of a table without a window; reached: the oldest are left out

export const Sessions = ({source, onFilter, onSequence}) => {
  const {store} = source;
  useStore(store, 250);
  useEffect(() => {
    source.api?.get("ui/api/sessions").then(({sessions}) => store.setSessions(sessions), () => {}); // the feed brings them too
  }, [source]);
  const all = [...store.sessions.values()].sort((a, b) => (b.state === "open") - (a.state === "open") || b.at - a.at);
  if (!all.length) {
    return html`<div class="view"><${Empty} title="No session yet"><p>A session begins when a client connects. Clients that keep no session have one here for each of their callers.</p></${Empty}></div>`;
  }
  const now = Date.now() / 1000;
  const open = all.filter(each => each.state === "open").length;
  return html`
    <div class="view scrolled" tabindex="0" aria-label="Sessions" role="region">
      <p class="summary">${grouped(open)} open, ${grouped(all.length - open)} ended</p>
      <table class="list">
        <thead><tr><th>Session</th><th>Client</th><th>Server</th><th>State</th><th class="right">Requests</th><th class="right">Open</th><th class="extra">Principal</th><th>Revision</th><th class="extra">Transport</th><th>Began</th><th>Lasts</th><th><span class="unseen">Actions</span></th></tr></thead>
        <tbody>
          ${all.slice(0, SHOWN_MAX).map(each => html`
            <tr key=${each.session}>
              <td><code>${visible(each.session)}</code></td>
              <td><${Cell} text=${each.client || "unnamed"} /></td>
              <td><${Cell} text=${each.server} /></td>
              <td><${State} name=${each.state === "open" ? "open" : "over"} />${each.reason ? html`<${Cell} name="quiet reason extra" text=${each.reason} />` : null}</td>
              <td class="number right">${grouped(each.requests ?? 0)}</td>
              <td class="number right">${each.open_requests ? grouped(each.open_requests) : html`<span class="quiet">0</span>`}</td>
              <td class="extra">${visible(each.principal || "")}</td>
              <td class="number">${visible(each.revision)}</td>
              <td class="extra">${each.transport}</td>
              <td class="number" title=${dateTime(each.at)}>${clock(each.at).slice(0, 8)}</td>
              <td class="number">${duration((each.ended_at ?? (each.state === "open" ? now : each.at)) - each.at)}</td>
              <td class="actions"><button onClick=${() => onFilter("session", each.session)}>Messages</button><button onClick=${() => onSequence({session: each.session})}>Sequence</button></td>
            </tr>`)}
        </tbody>
      </table>
    </div>`;
};
