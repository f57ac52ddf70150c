// A recorded request sent again, with the difference of its results, and the choice of a trace file.

import {html, useMemo, useRef, useState} from "./preact.js";
import {Layout} from "./body.js";
import {countDifferences, compare} from "./diff.js";
import {clock, many, ms} from "./format.js";
import {member, parse} from "./json.js";
import {Method} from "./parts.js";
import {TraceError, openTrace} from "./trace.js";
import {plain, visible} from "./text.js";

const RUNS_MAX = 20; // runs that are listed; reached: the oldest are dropped

export class ReplayState {
  constructor() {
    this.asked = null; // {row, message} to be sent again
    this.server = "";
    this.runs = [];
    this.count = 0;
    this.chosen = null;
  }
}

export const Replay = ({source, overview, state, onTrace, onLive}) => {
  const [, draw] = useState({});
  const change = made => (Object.assign(state, made), draw({}));
  const [isBusy, setBusy] = useState(false);
  const [failure, fail] = useState("");
  const send = async () => {
    const {row, message} = state.asked;
    const server = state.server || serverOf(row);
    setBusy(true);
    fail("");
    try {
      const text = await source.api.postText("ui/api/replay", {message: message.n, server});
      const run = {row, server, at: Date.now() / 1000, answer: parse(text).value, number: ++state.count};
      state.runs = [run, ...state.runs].slice(0, RUNS_MAX);
      state.chosen = run;
    } catch (error) {
      fail(error.message);
    }
    setBusy(false);
  };
  return html`
    <div class="view scrolled replay" tabindex="0" role="region" aria-label="Replay">
      <div class="columns">
        <section class="panel">
          <h2>Open a trace</h2>
          <p>A file that <code>isthmus serve --trace FILE</code> or <code>isthmus wrap --trace FILE</code> wrote. It is read in this browser and sent nowhere.</p>
          <${TraceChoice} source=${source} onTrace=${onTrace} onLive=${onLive} />
        </section>
        <section class="panel">
          <h2>Send a request again</h2>
          ${source.isFile ? html`<p class="quiet">Go back to the gateway first: requests of a file are only shown.</p>`
          : !overview?.actions ? html`<p>Actions are off. Set <code>ui.actions: true</code> in the configuration to send requests again from this page.</p>`
          : !state.asked ? html`<p>Choose a request in <b>Live</b>, open it and press <b>Send again…</b>, or <kbd>r</kbd>. Its result is compared with the recorded one here.</p>`
          : html`
            <p><${Method} name=${state.asked.row.method} /> <b>${visible(state.asked.row.target)}</b> of ${visible(state.asked.row.client || "a client")}, ${clock(state.asked.row.at)}</p>
            <p class="quiet">It runs in a session of its own. All that the request does happens once more.</p>
            <div class="buttons">
              <label>To <select value=${state.server || serverOf(state.asked.row)} onChange=${event => change({server: event.target.value})}>
                ${(overview.servers ?? []).map(id => html`<option value=${id}>${id}</option>`)}
              </select></label>
              <button class="primary" disabled=${isBusy} onClick=${send}>${isBusy ? "Sending …" : "Send"}</button>
            </div>
            ${failure ? html`<p class="note" role="alert">${visible(failure)}</p>` : null}`}
        </section>
      </div>
      ${state.runs.length ? html`
        <section class="runs">
          <div class="tabs small" role="tablist" aria-label="Runs">
            ${state.runs.map(run => html`<button role="tab" key=${run.number} aria-selected=${run === state.chosen} onClick=${() => change({chosen: run})}>${run.number}. ${plain(run.row.target || run.row.method)} <span class="quiet">${clock(run.at).slice(0, 8)}</span></button>`)}
          </div>
          ${state.chosen ? html`<${Run} run=${state.chosen} key=${state.chosen.number} />` : null}
        </section>` : null}
    </div>`;
};

const serverOf = row => row.attempts?.at(-1).server ?? row.server;

const sideOf = value => (value ? {value, text: value.raw, isCut: false, error: ""} : null);

const Run = ({run}) => {
  const [only, setOnly] = useState(false);
  const {answer} = run;
  const anew = member(answer, "result") ?? member(answer, "error");
  const recorded = member(answer, "recorded");
  const isRecorded = recorded && recorded.raw !== "null";
  const [left, right] = useMemo(() => [isRecorded ? sideOf(recorded) : null, sideOf(anew)], [run]);
  const count = useMemo(() => (left && right ? countDifferences(compare(left.value, right.value)) : null), [left, right]);
  const took = Number(member(answer, "ms")?.raw);
  return html`
    <div class="run">
      <p>
        ${count === null ? html`<span class="chip">no recorded result to compare with</span>`
        : html`<span class=${"chip " + (count ? "differs" : "equal")}>${count ? many(count, "difference") : "the same result"}</span>`}
        ${member(answer, "error") ? html` <span class="outcome error">error</span>` : null}
        <span class="quiet"> ${visible(run.server)}${Number.isFinite(took) ? `, ${ms(took)} ms` : ""}</span>
        <label class="check"><input type="checkbox" checked=${only} onChange=${event => setOnly(event.target.checked)} /> Only differences</label>
      </p>
      <div class="pair-heads"><div class="pair-head"><span class="label">Recorded</span></div><div class="pair-head"><span class="label">Now</span></div></div>
      <${Layout} left=${left} right=${right} onlyDifferences=${only} />
    </div>`;
};

export const TraceChoice = ({source, onTrace, onLive}) => {
  const field = useRef(null);
  const [progress, setProgress] = useState(null);
  const [failure, fail] = useState("");
  const onChange = async event => {
    const [file] = event.target.files;
    if (!file) return;
    fail("");
    setProgress(0);
    try {
      onTrace(file.name, await openTrace(file, setProgress));
    } catch (error) {
      fail(error instanceof TraceError ? error.message : `${file.name} cannot be read: ${error.message}`);
      setProgress(null);
    }
    event.target.value = "";
  };
  return html`
    <div class="buttons">
      <input ref=${field} type="file" class="unseen" tabindex="-1" aria-label="Trace file" onChange=${onChange} />
      <button class=${source?.isFile ? "" : "primary"} onClick=${() => field.current.click()} disabled=${progress !== null && !source?.isFile}>Choose a file …</button>
      ${progress !== null && !source?.isFile ? html`<progress value=${progress} aria-label="Reading"></progress>` : null}
      ${source?.isFile && onLive ? html`<button onClick=${onLive}>Back to the gateway</button> <span class="quiet">Shown now: ${visible(source.name)}</span>` : null}
    </div>
    ${failure ? html`<p class="note" role="alert">${visible(failure)}</p>` : null}`;
};
