// Light or dark: as the system says, or as a person chose.

import {html, useState} from "./preact.js";

const KEY = "isthmus-theme";
const NEXT = {auto: "light", light: "dark", dark: "auto"};
const SIGNS = {auto: "◐", light: "☀", dark: "☾"};

const chosen = () => localStorage.getItem(KEY) ?? "auto";

export const applyTheme = () => (document.documentElement.dataset.theme = chosen());

export const Theme = () => {
  const [theme, setTheme] = useState(chosen);
  const onClick = () => {
    localStorage.setItem(KEY, NEXT[theme]);
    applyTheme();
    setTheme(NEXT[theme]);
  };
  const name = theme === "auto" ? "as the system" : theme;
  return html`<button class="plain" onClick=${onClick} aria-label=${`Colours: ${name}`} title=${`Colours: ${name}`}>${SIGNS[theme]}</button>`;
};
