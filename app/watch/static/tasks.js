// The tasks that the gateway keeps, and their end.

import {html, useState} from "./preact.js";
import {bytes, dateTime, duration} from "./format.js";
import {Cell, Empty, Failed, State, Sure, usePoll} from "./parts.js";
import {visible} from "./text.js";

const PERIOD_S = 2;
const OVER = ["completed", "failed", "cancelled"];

export const Tasks = ({source, overview, onFilter}) => {
  const [answer, error, ask] = usePoll(() => source.api.get("tasks"), PERIOD_S, [source]);
  const [said, say] = useState("");
  if (!answer) return error ? html`<div class="view"><${Failed} error=${error} what="The tasks" /></div>` : html`<div class="view"></div>`;
  const cancel = async id => {
    say("");
    try {
      await source.api.post(`tasks/${encodeURIComponent(id)}/cancel`);
    } catch (failure) {
      say(failure.message);
    }
    ask();
  };
  const tasks = [...answer.tasks].sort((a, b) => OVER.includes(a.status) - OVER.includes(b.status) || b.created_at_unix - a.created_at_unix);
  if (!tasks.length) {
    return html`<div class="view"><${Empty} title="No tasks"><p>A call becomes a task when its client asks for one, as <code>tools/call</code> with <code>params.task</code>. It is kept here until it expires.</p></${Empty}></div>`;
  }
  return html`
    <div class="view scrolled" tabindex="0" role="region" aria-label="Tasks">
      ${said ? html`<p class="note" role="alert">${visible(said)}</p>` : null}
      <table class="list">
        <thead><tr><th>Status</th><th>Tool</th><th>Server</th><th>Message</th><th>Session</th><th class="extra">Principal</th><th class="right">Age</th><th class="right">Expires in</th><th class="right extra">Outcome</th><th class="extra">id</th><th><span class="unseen">Actions</span></th></tr></thead>
        <tbody>
          ${tasks.map(task => html`
            <tr key=${task.id}>
              <td><${State} name=${task.status.replace("_", " ")} /></td>
              <td><${Cell} text=${task.tool} /></td>
              <td>${visible(task.server)}</td>
              <td><${Cell} name="wide" text=${task.message || ""} /></td>
              <td>${task.session ? html`<button class="link" onClick=${() => onFilter("session", task.session)}>${visible(task.session)}</button>` : html`<span class="quiet">none</span>`}</td>
              <td class="extra">${visible(task.principal || "")}</td>
              <td class="number right" title=${`created ${dateTime(task.created_at_unix)}`}>${duration(task.age_s)}</td>
              <td class="number right">${duration(task.expires_in_s)}</td>
              <td class="number right extra">${task.size_bytes ? bytes(task.size_bytes) : ""}</td>
              <td class="extra"><${Cell} name="id" text=${task.id} /></td>
              <td class="actions">${overview?.actions && !OVER.includes(task.status) ? html`<${Sure} label="Cancel" sure="Cancel it for good" onSure=${() => cancel(task.id)} />` : null}</td>
            </tr>`)}
        </tbody>
      </table>
    </div>`;
};
