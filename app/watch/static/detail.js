// One request, or one message, whole: what came in beside what went out, on the way there and on the way back.

import {html, useEffect, useMemo, useState} from "./preact.js";
import {Layout, HeaderList, Raw, differencesOf, useParsed} from "./body.js";
import {bytes, clock, grouped, many, ms} from "./format.js";
import {Copy, Method, Outcome} from "./parts.js";
import {serverText} from "./table.js";
import {decode, plain, visible} from "./text.js";

const TABS = [["layout", "JSON"], ["raw", "Raw"], ["headers", "Headers"], ["all", "All messages"]];

export const Detail = ({source, row, isWide, onWide, onClose, onSequence, isAlone, onFilter, onReplay}) => {
  const [tab, setTab] = useState("layout");
  const [only, setOnly] = useState(false);
  const [attempt, setAttempt] = useState(null);
  useEffect(() => setAttempt(null), [row]);
  const messages = source.store.messagesOf(row);
  const legs = useMemo(() => legsOf(row, messages, attempt), [row, row.version, messages.length, attempt]);
  const title = row.method || row.kind;
  return html`
    <section class="detail" aria-label="Message">
      <header>
        <h2><${Method} name=${title} />${row.target ? html` <b>${visible(row.target)}</b>` : null}</h2>
        <${Outcome} row=${row} />
        ${row.ms === null ? null : html`<span class="number">${ms(row.ms)} ms</span>`}
        <span class="spring"></span>
        ${onReplay ? html`<button onClick=${() => onReplay(row, legs.asked)} disabled=${!legs.asked} title="Send this request again, in a session of its own">Send again…</button>` : null}
        <button onClick=${() => onSequence(row)}>${isAlone === undefined ? "Sequence" : isAlone ? "Whole session" : "This request alone"}</button>
        <button class="plain" onClick=${onWide} aria-pressed=${isWide} aria-label="Fill the page" title="Fill the page (m)">⤢</button>
        <button class="plain" onClick=${onClose} aria-label="Close" title="Close (Esc)">✕</button>
      </header>
      <${Facts} row=${row} onFilter=${onFilter} />
      ${row.message ? null : html`<${Timing} row=${row} />`}
      ${row.attempts?.length > 1
        ? html`<div class="attempts" role="group" aria-label="Attempts">
            ${row.attempts.map((each, i) => html`
              <button aria-pressed=${(attempt ?? row.attempts.length - 1) === i} onClick=${() => setAttempt(i)}>${row.servers.includes(", ") ? html`To ${visible(each.server)}` : `Attempt ${i + 1}`}</button>`)}
          </div>`
        : null}
      <div class="tabs-line">
        <div class="tabs small" role="tablist" aria-label="Parts of the message">${TABS.map(([name, label]) => (name === "all" && row.message ? null : html`
          <button role="tab" aria-selected=${tab === name} onClick=${() => setTab(name)}>${label}${name === "all" ? html` <span class="count">${messages.length}</span>` : null}</button>`))}</div>
        ${tab === "layout" && !row.message ? html`<label class="check"><input type="checkbox" checked=${only} onChange=${event => setOnly(event.target.checked)} /> Only differences</label>` : null}
      </div>
      <div class="detail-body" role="tabpanel" tabindex="0" aria-label=${tab}>
        ${tab === "all"
          ? html`<${AllMessages} source=${source} row=${row} messages=${messages} key=${row.seq} />`
          : row.message
            ? html`<${One} source=${source} message=${row.message} label=${wayText(row.message, row)} tab=${tab} key=${row.seq} />`
            : html`<${Exchange} source=${source} row=${row} legs=${legs} tab=${tab} only=${only} key=${row.seq} />`}
      </div>
    </section>`;
};

// Finds the four messages of a request: the first question and the last answer on each leg.
const legsOf = (row, messages, attempt) => {
  if (row.message) return {};
  const chosen = row.attempts?.[attempt ?? row.attempts.length - 1];
  const is = (leg, way, kind) => each =>
    each.leg === leg && each.way === way && each.kind === kind && (leg === "client" || !chosen || each.channel === chosen.channel);
  const find = test => messages.find(test) ?? null;
  return {
    server: chosen?.server ?? row.server,
    asked: find(is("client", "in", "request")),
    sent: find(is("server", "out", "request")),
    answered: find(is("server", "in", "response")),
    returned: messages.findLast(is("client", "out", "response")) ?? null,
  };
};

const wayText = ({leg, way}, row) => {
  const peer = leg === "client" ? row.client || "the client" : row.server;
  return way === "in" ? `Received from ${peer}` : `Sent to ${peer}`;
};

const Facts = ({row, onFilter}) => {
  const facts = [
    ["client", row.client], ["server", serverText(row), row.server], ["session", row.session], ["principal", row.principal],
    ["id", row.id], ["revision", row.revision], ["transport", row.transport],
  ];
  return html`
    <dl class="facts">
      <div><dt>at</dt><dd>${clock(row.at)}</dd></div>
      ${facts.filter(([, value]) => value).map(([name, value, sought = value]) => html`
        <div><dt>${name}</dt><dd><button class="link" title=${`Show only ${name}:${plain(sought)}`} onClick=${() => onFilter(name, sought)}>${visible(value)}</button></dd></div>`)}
      ${row.request_bytes === null ? null : html`<div><dt>bytes</dt><dd>${grouped(row.request_bytes)} → ${row.response_bytes === null ? "…" : grouped(row.response_bytes)}</dd></div>`}
      ${row.attempts?.[0]?.revision && row.attempts[0].revision !== row.revision ? html`<div><dt>server speaks</dt><dd>${visible(row.attempts[0].revision)}</dd></div>` : null}
      ${row.questions ? html`<div><dt>questions</dt><dd>${row.questions}</dd></div>` : null}
    </dl>`;
};

// A bar of the time from request to answer: what the server took, and what passed before and after.
const Timing = ({row}) => {
  if (row.ms === null) return null;
  const total = Math.max(row.ms, 0.001);
  const within = value => Math.min(1, Math.max(0, value / total));
  const attempts = (row.attempts ?? []).map((each, i) => {
    const start = within((each.at - row.at) * 1000);
    const took = each.ms === null || each.ms === undefined ? null : each.ms;
    return {each, i, start, size: Math.max(0.004, Math.min(1 - start, took === null ? 1 - start : within(took))), took};
  });
  const atServers = attempts.reduce((sum, {took}) => sum + (took ?? 0), 0);
  const parts = attempts.map(({each, took}) => `${each.server} ${took === null ? "did not answer" : `${ms(took)} ms`}`);
  const own = total - atServers;
  const text = [...parts, ...(attempts.length && own > 0 ? [`Isthmus ${ms(own)} ms`] : []), `${ms(total)} ms in all`].join(" · ");
  return html`
    <div class="timing">
      <div class="timing-bar" role="img" aria-label=${plain(text)}>
        ${attempts.map(({i, start, size, took}) => html`<span class=${took === null ? "lost" : ""} key=${i} style=${{"--start": start, "--size": size}}></span>`)}
      </div>
      <span class="quiet">${visible(text)}</span>
    </div>`;
};

// Loads a message. Returns {message, label, loaded, parsed, error}, or null without one.
const useSide = (source, message, label) => {
  const [[loaded, error], set] = useState([null, null]);
  useEffect(() => {
    set([null, null]);
    if (!message) return;
    let isOver = false;
    source.message(message).then(
      found => isOver || set([found, null]),
      failure => isOver || set([null, failure]),
    );
    return () => (isOver = true);
  }, [source, message]);
  const parsed = useParsed(loaded);
  return message ? {message, label, loaded, parsed, error} : null;
};

// A request and its response, each as received beside as sent. Where both were passed on as they came, each is shown
// once, and they stand beside each other.
const Exchange = ({source, row, legs, tab, only}) => {
  const [client, server] = [row.client || "the client", legs.server];
  const asked = useSide(source, legs.asked, `Received from ${client}`);
  const sent = useSide(source, legs.sent, `Sent to ${server}`);
  const answered = useSide(source, legs.answered, `Received from ${server}`);
  const returned = useSide(source, legs.returned, `Sent to ${client}`);
  const request = useMemo(() => differencesOf(asked?.parsed, sent?.parsed), [asked?.parsed, sent?.parsed]);
  const response = useMemo(() => differencesOf(answered?.parsed, returned?.parsed), [answered?.parsed, returned?.parsed]);
  const missing = {
    request: asked ? (row.state === "open" ? "Not sent to the server yet." : source.isFile ? "No message to a server was found for it. A trace does not tell which server a combined endpoint asked." : "Answered by Isthmus: the server was not asked.") : "The gateway keeps this request no longer.",
    response: row.state === "open" ? "There is no response yet." : answered ? "The gateway keeps what was sent to the client no longer." : source.isFile ? "No response of a server was found for it." : "No response of a server: this one is of Isthmus.",
  };
  if (!answered && !returned && row.state !== "open") missing.response = "The gateway keeps no response to this request.";
  const isOne = (left, right, differences) => !(left && right) || (tab === "layout" && (!differences || differences.isPassedOn));
  const isBeside = isOne(asked, sent, request) && isOne(answered, returned, response);
  return html`
    <div class=${isBeside ? "beside-each-other" : ""}>
      <${Pair} title="Request" left=${asked} right=${sent} differences=${request} missing=${missing.request} tab=${tab} only=${only} />
      <${Pair} title="Response" left=${answered} right=${returned} differences=${response} missing=${missing.response} tab=${tab} only=${only} />
    </div>`;
};

const One = ({source, message, label, tab}) => {
  const side = useSide(source, message, label);
  return html`<${Pair} left=${side} right=${null} tab=${tab} />`;
};

const Pair = ({title, left, right, differences, missing, tab, only}) => {
  const sides = [left, right].filter(Boolean);
  const isPassedOn = tab === "layout" && differences?.isPassedOn;
  const failed = sides.find(each => each.error);
  return html`
    <section class="pair-box">
      ${title ? html`<h3>${title} ${differences ? html`<span class=${"chip " + (differences.count ? "differs" : "equal")}>${differences.text}</span>` : null}</h3>` : null}
      ${sides.length ? html`<div class=${"pair-heads" + (sides.length > 1 && !isPassedOn ? "" : " single")}>${sides.map(each => html`<${Head} ...${each} key=${each.label} />`)}</div>` : null}
      ${tab !== "layout"
        ? html`<div class=${"pair-sides" + (sides.length > 1 ? "" : " single")}>${sides.map(each => html`<div key=${each.label}><${Side} ...${each} tab=${tab} /></div>`)}</div>`
        : failed ? html`<p class="quiet pad">${visible(failed.error.message)}</p>`
        : sides.some(each => !each.parsed) ? html`<p class="quiet pad">Loading …</p>`
        : sides.length ? html`<${Layout} left=${left?.parsed} right=${right?.parsed} isPassedOn=${isPassedOn} onlyDifferences=${only} />` : null}
      ${title && sides.length < 2 ? html`<p class="quiet pad">${missing}</p>` : null}
    </section>`;
};

const Head = ({message, label, loaded}) => html`
  <div class="pair-head">
    <span class=${"arrow " + message.way} aria-hidden="true">${message.way === "in" ? "↓" : "↑"}</span>
    <span class="label">${visible(label)}</span>
    <span class="number">${grouped(message.bytes)} B</span>
    ${message.is_cut ? html`<span class="chip">cut</span>` : null}
    ${loaded?.redacted.length ? html`<span class="chip" title=${loaded.redacted.map(plain).join("\n")}>${many(loaded.redacted.length, "value")} redacted</span>` : null}
    ${message.event_id ? html`<span class="quiet">event ${visible(message.event_id)}</span>` : null}
    <span class="spring"></span>
    ${loaded ? html`<${Copy} text=${() => decode(loaded.bytes)} />` : null}
  </div>`;

const Side = ({message, loaded, parsed, error, tab}) => {
  if (error) return html`<p class="quiet pad">${visible(error.message)}</p>`;
  if (!parsed) return html`<p class="quiet pad">Loading …</p>`;
  if (tab === "raw") return html`<${Raw} parsed=${parsed} />`;
  return html`<${HeaderList} loaded=${loaded} hasStatus=${message.leg === "client" ? message.way === "out" : message.way === "in"} />`;
};

// The messages of a request in their order: progress, questions and what was sent again stand between.
const AllMessages = ({source, row, messages}) => {
  const [chosen, choose] = useState(null);
  return html`
    <table class="list compact">
      <thead><tr><th>After</th><th>Direction</th><th>Message</th><th>id</th><th class="right">Bytes</th></tr></thead>
      <tbody>
        ${messages.map(each => html`
          <tr key=${each.n} class=${each === chosen ? "selected" : ""}>
            <td class="number">+${ms(Math.max(0, (each.at - row.at) * 1000))} ms</td>
            <td>${each.way === "in" ? "from" : "to"} ${visible(each.leg === "client" ? row.client || "the client" : each.server)}</td>
            <td><button class="link" onClick=${() => choose(each === chosen ? null : each)}>${each.method ? html`<${Method} name=${each.method} />` : each.kind}</button></td>
            <td class="quiet">${visible(each.id)}</td>
            <td class="number right">${bytes(each.bytes)}</td>
          </tr>
          ${each === chosen ? html`<tr key=${"b" + each.n}><td colspan="5"><${One} source=${source} message=${each} label=${wayText(each, row)} tab="layout" /></td></tr>` : null}`)}
      </tbody>
    </table>
    ${messages.length ? null : html`<p class="quiet pad">The gateway keeps the messages of this request no longer.</p>`}`;
};
