// Two parts with a bar between them that is moved by mouse or keys: beside each other where there is room.

import {html, useEffect, useRef, useState} from "./preact.js";

const BESIDE_FROM_PX = 1500; // two columns of JSON and the table need so much

export const Split = ({isOpen, isWide, first, second}) => {
  const box = useRef(null);
  const [isBeside, setBeside] = useState(innerWidth >= BESIDE_FROM_PX);
  const [share, setShare] = useState(null); // of the second part; null: as the style sheet says
  useEffect(() => {
    const onResize = () => (setBeside(innerWidth >= BESIDE_FROM_PX), setShare(null));
    addEventListener("resize", onResize);
    return () => removeEventListener("resize", onResize);
  }, []);
  const seen = share ?? (isBeside ? 0.56 : 0.58);
  const set = value => setShare(Math.min(0.85, Math.max(0.2, value)));
  const onPointerDown = event => {
    event.target.setPointerCapture(event.pointerId);
    event.preventDefault();
  };
  const onPointerMove = event => {
    if (!event.target.hasPointerCapture(event.pointerId)) return;
    const {left, top, width, height} = box.current.getBoundingClientRect();
    set(isBeside ? 1 - (event.clientX - left) / width : 1 - (event.clientY - top) / height);
  };
  const onKeyDown = event => {
    const step = {ArrowLeft: 0.03, ArrowUp: 0.03, ArrowRight: -0.03, ArrowDown: -0.03}[event.key];
    if (!step) return;
    set(seen + step);
    event.preventDefault();
  };
  const names = ["split", isBeside ? "beside" : "below", isOpen ? "open" : "", isOpen && isWide ? "wide-detail" : ""];
  return html`
    <div class=${names.join(" ")} ref=${box} style=${{"--second": seen}}>
      ${first}
      ${isOpen ? html`
        <div class="splitter" role="separator" tabindex="0" aria-label="Size of the message" aria-orientation=${isBeside ? "vertical" : "horizontal"} aria-valuemin="20" aria-valuemax="85" aria-valuenow=${Math.round(seen * 100)}
          onPointerDown=${onPointerDown} onPointerMove=${onPointerMove} onKeyDown=${onKeyDown}></div>
        ${second}` : null}
    </div>`;
};
