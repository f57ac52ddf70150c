// The servers of the gateway: a card each, with its state, its processes and its last words.

import {html, useEffect, useRef, useState} from "./preact.js";
import {duration, grouped, many} from "./format.js";
import {Empty, Failed, State, Sure, usePoll, useStore} from "./parts.js";
import {visible} from "./text.js";

const PERIOD_S = 2;

export const Servers = ({source, overview, onFilter}) => {
  useStore(source.store, 250);
  const [answer, error, ask] = usePoll(() => source.api.get("servers"), PERIOD_S, [source]);
  const [working, setWorking] = useState({});
  const [said, say] = useState({});
  if (!answer) return error ? html`<div class="view"><${Failed} error=${error} what="The servers" /></div>` : html`<div class="view"></div>`;
  const act = async (id, action) => {
    setWorking(all => ({...all, [id]: action}));
    say(all => ({...all, [id]: ""}));
    try {
      await source.api.post(`servers/${encodeURIComponent(id)}/${action}`);
    } catch (failure) {
      say(all => ({...all, [id]: failure.message}));
    }
    setWorking(all => ({...all, [id]: ""}));
    ask();
  };
  if (!answer.servers.length) return html`<div class="view"><${Empty} title="No server"><p>Add one to the configuration, under <code>servers</code>.</p></${Empty}></div>`;
  return html`
    <div class="view scrolled" tabindex="0" role="region" aria-label="Servers">
      ${error ? html`<p class="note">${visible(error.message)} What is shown may be old.</p>` : null}
      <div class="cards">
        ${answer.servers.map(server => html`
          <${Card} key=${server.name} server=${server} lines=${source.store.stderr.get(server.name)} canAct=${overview?.actions} working=${working[server.name]} said=${said[server.name]} onAct=${action => act(server.name, action)} onFilter=${onFilter} />`)}
      </div>
    </div>`;
};

const Card = ({server, lines, canAct, working, said, onAct, onFilter}) => {
  const isTransparent = server.kind === "transparent";
  const isUp = server.state === "running" || server.state === "starting";
  const facts = [
    ["Revision", visible(server.protocol_version ?? "not known yet")],
    ["Tools", server.tools === null || server.tools === undefined ? "not listed yet" : grouped(server.tools)],
    ["Sessions", grouped(server.sessions ?? 0)],
    ["In flight", grouped(server.in_flight ?? 0)],
    ["Processes", server.kind === "pipe" ? `${grouped(server.processes ?? 0)}${server.pids?.length ? ` (${server.pids.join(", ")})` : ""}` : "remote"],
    ["Up for", server.uptime_s === null || server.uptime_s === undefined ? "–" : duration(server.uptime_s)],
    ["Starts", `${grouped(server.starts ?? 0)}${server.failures ? `, ${grouped(server.failures)} failed` : ""}`],
    ["Cache hits", server.cache_hits || server.cache_misses ? `${grouped(server.cache_hits)} of ${grouped(server.cache_hits + server.cache_misses)}` : "–"],
  ];
  return html`
    <article class="card">
      <header>
        <h2>${visible(server.name)}</h2>
        <${State} name=${working ? `${working} …` : server.state} />
      </header>
      ${isTransparent
        ? html`<p class="quiet">Passed on unread (<code>inspect: false</code>): nothing is known of its state.</p>`
        : html`<dl class="pairs">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`}
      ${server.capabilities?.length ? html`<p class="chips">${server.capabilities.map(name => html`<span class="chip">${visible(name)}</span>`)}</p>` : null}
      ${server.urls?.length ? html`<ul class="addresses">${server.urls.map(each => html`<li><${State} name=${each.state} /> <code>${visible(each.name)}</code>${each.last_error ? html` <span class="quiet">${visible(each.last_error)}</span>` : null}</li>`)}</ul>` : null}
      ${server.last_error ? html`<p class="note">${visible(server.last_error)}</p>` : null}
      ${Object.keys(server.differences ?? {}).length ? html`<p class="note">${many(Object.keys(server.differences).length, "definition")} not as approved: ${visible(Object.keys(server.differences).join(", "))}</p>` : null}
      ${said ? html`<p class="note" role="alert">${visible(said)}</p>` : null}
      <${Lines} lines=${lines} isPipe=${server.kind === "pipe"} />
      <footer>
        <button onClick=${() => onFilter("server", server.name)}>Messages</button>
        <span class="spring"></span>
        ${canAct && !isTransparent ? html`
          ${isUp ? html`<${Sure} label="Stop" sure="Stop it: sessions end" disabled=${Boolean(working)} onSure=${() => onAct("stop")} />
            <${Sure} label="Restart" sure="Restart it: sessions end" disabled=${Boolean(working)} onSure=${() => onAct("restart")} />`
          : html`<button disabled=${Boolean(working)} onClick=${() => onAct("start")}>Start</button>`}` : null}
      </footer>
    </article>`;
};

const Lines = ({lines, isPipe}) => {
  const box = useRef(null);
  const last = lines?.at(-1);
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [last]);
  if (!lines?.length) return isPipe ? html`<p class="quiet">No lines on its standard error so far.</p>` : null;
  return html`
    <div class="stderr" ref=${box} tabindex="0" role="log" aria-label="Last lines of its standard error">
      ${lines.slice(-40).map(({text, level}) => html`<div class=${level === "stderr" ? "" : level}>${visible(text, "\t") || " "}</div>`)}
    </div>`;
};
