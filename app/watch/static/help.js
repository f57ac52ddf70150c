// The keys of the page and the language of its filter.

import {html} from "./preact.js";
import {KEYS} from "./filter.js";
import {Dialog} from "./parts.js";

const KEYS_OF_PAGE = [
  ["Everywhere", [["1 – 7", "the views, in the order of their tabs"], ["?", "this help"], ["Esc", "close what is open, then the selection"]]],
  ["Live", [
    ["/", "to the filter"], ["j k  ↓ ↑", "next and previous row"], ["g G", "first and last row"], ["Enter", "open the row"],
    ["m", "let the message fill the page"], ["s", "its session as a sequence"], ["p", "pin the row: it stays at the top"],
    ["r", "send the request again"], ["Space", "pause the table, and go on"], ["f", "follow the newest row"],
    ["e", "export the rows shown"], ["Shift C", "clear"],
  ]],
  ["Sequence", [["j k  ↓ ↑", "next and previous message"], ["Enter", "open the message"]]],
];

const EXAMPLES = [
  ["server:files outcome:error", "what failed at one server"],
  ["method:tools/* ms:>500", "slow calls of tools and the like"],
  ["outcome:cancelled,open", "one of several: a comma"],
  ['target:"read file"', "spaces: quotes"],
  ["-client:cursor", "not: a minus"],
  ["“some text”, or a word", "in any field of a row; bodies are not searched"],
];

export const Help = ({onClose}) => html`
  <${Dialog} title="Keys and filter" onClose=${onClose} wide>
    <div class="help">
      <div>
        ${KEYS_OF_PAGE.map(([title, keys]) => html`
          <h3>${title}</h3>
          <dl>${keys.map(([key, about]) => html`<dt>${key.split(/ +/).map(each => (each === "–" ? " – " : html`<kbd>${each}</kbd> `))}</dt><dd>${about}</dd>`)}</dl>`)}
      </div>
      <div>
        <h3>Filter: examples</h3>
        <dl class="examples">${EXAMPLES.map(([text, about]) => html`<dt><code>${text}</code></dt><dd>${about}</dd>`)}</dl>
        <h3>Filter: words</h3>
        <dl>${Object.entries(KEYS).map(([key, {about}]) => html`<dt><code>${key}:</code></dt><dd>${about}</dd>`)}</dl>
        <p class="quiet"><code>outcome:error</code> finds errors of tools and of the protocol; <code>tool-error</code> and <code>protocol-error</code> tell them apart. Numbers take <code>${"> >= < <="}</code> and <code>k</code>, <code>M</code>.</p>
      </div>
    </div>
  </${Dialog}>`;
