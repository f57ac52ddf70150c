// The page: the token, the views and what they share.

import {html, render, useEffect, useRef, useState} from "./preact.js";
import {Api} from "./api.js";
import {Feed} from "./feed.js";
import {Files} from "./files.js";
import {wordFor} from "./filter.js";
import {Help} from "./help.js";
import {Live, LiveState} from "./live.js";
import {useKeys} from "./parts.js";
import {Replay, ReplayState} from "./replay.js";
import {Sequence, SequenceState} from "./sequence.js";
import {Servers} from "./servers.js";
import {Sessions} from "./sessions.js";
import {Store} from "./store.js";
import {Tasks} from "./tasks.js";
import {Theme, applyTheme} from "./theme.js";
import {forgetToken, keepToken, takeToken} from "./token.js";
import {visible} from "./text.js";

const VIEWS = [
  ["live", "Live"], ["sequence", "Sequence"], ["sessions", "Sessions"], ["servers", "Servers"],
  ["files", "Files"], ["tasks", "Tasks"], ["replay", "Replay"],
];
const OF_GATEWAY = ["servers", "files", "tasks"]; // what a file does not hold

const sourceOf = api => ({store: new Store(), api, isFile: false, message: ({n, run}) => messageOf(api, n, run)});

const messageOf = async (api, n) => {
  try {
    return await api.message(n);
  } catch (error) {
    if (error.status === 404) throw new Error("The gateway keeps this message no longer: newer ones have taken its place.");
    throw error;
  }
};

const App = () => {
  const [token, setToken] = useState(takeToken);
  const [refusal, refuse] = useState("");
  useEffect(() => {
    const onHash = () => {
      const taken = takeToken();
      if (taken) setToken(taken), refuse("");
    };
    addEventListener("hashchange", onHash);
    return () => removeEventListener("hashchange", onHash);
  }, []);
  const onRefused = text => {
    forgetToken();
    refuse(text);
    setToken("");
  };
  if (!token) return html`<${SignIn} refusal=${refusal} onToken=${given => (keepToken(given), refuse(""), setToken(given))} />`;
  return html`<${Gateway} key=${token} token=${token} onRefused=${onRefused} />`;
};

const SignIn = ({refusal, onToken}) => {
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const onSubmit = event => {
    event.preventDefault();
    if (field.current.value.trim()) onToken(field.current.value.trim());
  };
  return html`
    <main class="sign-in">
      <form onSubmit=${onSubmit}>
        <h1>Isthmus</h1>
        ${refusal ? html`<p class="note" role="alert">The gateway refused the token: ${visible(refusal)}</p>` : null}
        <label>Token <input ref=${field} type="password" autocomplete="off" spellcheck=${false} required /></label>
        <button class="primary">Open</button>
        <p class="quiet">At its start, <code>isthmus serve --ui</code> prints the address of this page with its token. It stays in this tab and is sent to this gateway only.</p>
      </form>
    </main>`;
};

const startView = () => {
  const name = location.hash.slice(1);
  return VIEWS.some(([each]) => each === name) ? name : "live";
};

const Gateway = ({token, onRefused}) => {
  const kept = useRef(null);
  if (!kept.current) {
    const gateway = sourceOf(new Api(token));
    kept.current = {gateway, live: new LiveState(gateway), sequence: new SequenceState(), replay: new ReplayState()};
  }
  const {gateway} = kept.current;
  const [source, setSource] = useState(gateway);
  const [states, setStates] = useState(kept.current);
  const [overview, setOverview] = useState(null);
  const [connection, setConnection] = useState({name: "connecting", text: ""});
  const [view, setView] = useState(startView);
  const [isHelp, setHelp] = useState(false);

  useEffect(() => {
    const feed = new Feed(gateway.api, gateway.store, state => (state.name === "refused" ? onRefused(state.text) : setConnection(state)));
    feed.run();
    return () => feed.stop();
  }, []);
  useEffect(() => {
    if (connection.name === "live") gateway.api.get("ui/api/overview").then(seen => (setOverview(seen), gateway.store.setLines(seen.stderr)), () => {});
  }, [connection.name]);
  useEffect(() => {
    history.replaceState(null, "", `#${view}`);
    document.title = `${VIEWS.find(([name]) => name === view)[1]} – Isthmus`;
  }, [view]);

  const show = name => setView(name);
  const onSequence = row => {
    Object.assign(states.sequence, {session: row.session, request: null, selected: null, isOpen: false});
    if (row.request || row.message) states.sequence.selected = source.store.messagesOf(row)[0] ?? null;
    if (!row.session && row.request) states.sequence.request = row;
    show("sequence");
  };
  const onFilter = (key, value) => {
    states.live.setFilter(wordFor(key, value) + " ");
    show("live");
  };
  const onReplay = overview?.actions && !source.isFile
    ? (row, message) => {
        if (!message) return;
        Object.assign(states.replay, {asked: {row, message}, server: ""});
        show("replay");
      }
    : null;
  const onTrace = (name, {store, servers, message}) => {
    const file = {store, api: null, isFile: true, name, servers, message: each => message(each.n)};
    setSource(file);
    setStates({live: new LiveState(file), sequence: new SequenceState(), replay: kept.current.replay});
    show("live");
  };
  const onLive = () => {
    setSource(gateway);
    setStates(kept.current);
    show("live");
  };
  const keys = {"?": () => setHelp(true)};
  VIEWS.forEach(([name], i) => (keys[String(i + 1)] = () => show(name)));
  useKeys(keys);

  const shared = {source, overview, onFilter, onSequence, onReplay};
  const views = {
    live: () => html`<${Live} ...${shared} state=${states.live} key=${source.name ?? "live"} />`,
    sequence: () => html`<${Sequence} ...${shared} state=${states.sequence} key=${source.name ?? "live"} />`,
    sessions: () => html`<${Sessions} ...${shared} />`,
    servers: () => html`<${Servers} ...${shared} />`,
    files: () => html`<${Files} ...${shared} />`,
    tasks: () => html`<${Tasks} ...${shared} />`,
    replay: () => html`<${Replay} ...${shared} state=${states.replay} onTrace=${onTrace} onLive=${onLive} />`,
  };
  const isMissing = source.isFile && OF_GATEWAY.includes(view);
  return html`
    <header class="top">
      <span class="brand"><${Mark} />Isthmus</span>
      <nav aria-label="Views"><ul class="tabs">
        ${VIEWS.map(([name, label], i) => html`
          <li><button aria-current=${view === name ? "page" : undefined} aria-keyshortcuts=${i + 1} title=${`${label} (${i + 1})`} onClick=${() => show(name)}>${label}</button></li>`)}
      </ul></nav>
      <span class="spring"></span>
      ${source.isFile ? null : html`<${Connection} state=${connection} />`}
      <${Theme} />
      <button class="plain" onClick=${() => setHelp(true)} aria-label="Help" title="Keys and filter (?)">?</button>
    </header>
    ${source.isFile ? html`<div class="banner" role="status"><span>Shown is the trace <b>${visible(source.name)}</b>, read in this browser only.</span> <button onClick=${onLive}>Back to the gateway</button></div>` : null}
    ${!source.isFile && overview?.mode === "headers" ? html`<div class="banner quiet-banner">The gateway keeps no bodies of messages: <code>ui.bodies</code> is false.</div>` : null}
    <main class="main">
      ${isMissing ? html`<div class="view"><div class="empty"><h2>A trace does not hold this</h2><p>Go back to the gateway to see it.</p></div></div>` : views[view]()}
    </main>
    ${isHelp ? html`<${Help} onClose=${() => setHelp(false)} />` : null}`;
};

const Mark = () => html`<svg class="mark" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M2.5 2.7h11M2.5 13.3h11M8 2.7v10.6" /></svg>`;

const CONNECTION = {live: "Connected", connecting: "Connecting …", lost: "Not connected, trying again"};

const Connection = ({state}) =>
  html`<span class=${"connection " + state.name} role="status" title=${state.text}>${CONNECTION[state.name]}</span>`;

applyTheme();
render(html`<${App} />`, document.getElementById("app"));
