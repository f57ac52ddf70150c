// The field of the filter, with completions and what is wrong with it.

import {html, useEffect, useRef, useState} from "./preact.js";
import {compile, complete} from "./filter.js";
import {visible} from "./text.js";

export const FilterBox = ({source, text, onText, fieldRef}) => {
  const [choices, setChoices] = useState(null);
  const [at, setAt] = useState(-1);
  const {error} = compile(text);
  const isErrorShown = error && !choices?.choices.length;
  const pending = useRef(null);

  useEffect(() => {
    if (pending.current === null) return;
    fieldRef.current.setSelectionRange(pending.current, pending.current);
    pending.current = null;
  }, [text]);

  // At an empty place all names are offered only where nothing else is written, or when they are asked for.
  const propose = (field, isAsked) => {
    const made = complete(field.value, field.selectionStart, key => source.store.valuesOf(key));
    setChoices(isAsked || made.to > made.from || !field.value.trim() || field.value[made.from - 1] === ":" ? made : null);
    setAt(-1);
  };
  const take = ({text: chosen}) => {
    const {from, to} = choices;
    const rest = text.slice(to).replace(/^ /, chosen.endsWith(" ") ? "" : " ");
    pending.current = from + chosen.length;
    onText(text.slice(0, from) + chosen + rest);
    const next = text.slice(0, from) + chosen;
    setChoices(chosen.endsWith(":") ? complete(next, next.length, key => source.store.valuesOf(key)) : null);
    setAt(-1);
  };
  const onKeyDown = event => {
    const count = choices?.choices.length ?? 0;
    if (event.key === "Escape") {
      if (choices) setChoices(null);
      else if (text) onText("");
      else event.target.blur();
      event.stopPropagation();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && count) {
      setAt((at + (event.key === "ArrowDown" ? 1 : at < 0 ? 0 : -1) + count) % count);
    } else if (event.key === "ArrowDown") {
      propose(event.target, true);
    } else if (event.key === "Tab" && count && !event.shiftKey && text && choices.from < choices.to) {
      take(choices.choices[Math.max(0, at)]);
    } else if (event.key === "Enter") {
      if (count && at >= 0) take(choices.choices[at]);
      else setChoices(null), event.target.blur();
    } else {
      return;
    }
    event.preventDefault();
  };

  const isOpen = Boolean(choices?.choices.length);
  return html`
    <div class="filter">
      <input ref=${fieldRef} type="text" role="combobox" aria-label="Filter" aria-expanded=${isOpen} aria-controls="choices" aria-autocomplete="list" aria-invalid=${Boolean(error)}
        aria-activedescendant=${isOpen && at >= 0 ? `choice-${at}` : undefined} aria-describedby="filter-error" autocomplete="off" spellcheck=${false} autocapitalize="off"
        placeholder="Filter: server:files method:tools/* outcome:error ms:>100 “text”" value=${text}
        onInput=${event => (onText(event.target.value), propose(event.target))} onFocus=${event => propose(event.target)} onClick=${event => propose(event.target)}
        onBlur=${() => setChoices(null)} onKeyDown=${onKeyDown} />
      ${text ? html`<button class="plain clear" aria-label="Clear the filter" title="Clear the filter" onClick=${() => onText("")}>✕</button>` : html`<kbd aria-hidden="true">/</kbd>`}
      <div id="choices" role="listbox" aria-label="Completions" hidden=${!isOpen}>
        ${choices?.choices.map((choice, i) => html`
          <div role="option" id=${`choice-${i}`} aria-selected=${i === at} onMouseDown=${event => (event.preventDefault(), take(choice))}>
            <span class="shown">${visible(choice.shown)}</span><span class="quiet">${choice.about}</span>
          </div>`)}
      </div>
      <div id="filter-error" class="filter-error" role="status" hidden=${!isErrorShown}>${isErrorShown ? visible(error) : ""}</div>
    </div>`;
};
