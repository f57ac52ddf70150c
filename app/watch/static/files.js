// The files that the gateway stores: what clients uploaded, and what tools made.

import {html, useEffect, useRef, useState} from "./preact.js";
import {bytes, dateTime, duration, grouped, many} from "./format.js";
import {Copy, Dialog, Empty, Failed, Sure, usePoll} from "./parts.js";
import {decode, plain, visible} from "./text.js";

const PERIOD_S = 4;
// Bytes of an image that is fetched for its thumbnail. Larger ones are shown when they are opened.
const THUMBNAIL_MAX_BYTES = 4 * 1024 * 1024;
// Bytes of a text that are fetched to show it.
const TEXT_MAX_BYTES = 256 * 1024;
// Files drawn. Reached: the oldest are left out, and a search finds them.
const SHOWN_MAX = 300;

// Types a browser draws without running anything. SVG and HTML are shown as text.
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];
const kindOf = ({mime_type: type}) => {
  if (IMAGES.includes(type)) return "image";
  if (type === "application/pdf") return "pdf";
  if (/^text\/|[/+](json|xml|yaml|javascript|csv|toml|sql)$|^application\/(x-ndjson|jsonl|x-sh)$/.test(type)) return "text";
  return "other";
};

const pathOf = file => `files/${encodeURIComponent(file.id)}`;

export const Files = ({source, overview, onFilter}) => {
  const [answer, error, ask] = usePoll(() => source.api.get("files"), PERIOD_S, [source]);
  const [open, setOpen] = useState(null);
  const [sought, seek] = useState("");
  const [said, say] = useState("");
  if (!answer) return error ? html`<div class="view"><${Failed} error=${error} what="The files" /></div>` : html`<div class="view"></div>`;
  if (!answer.files.length) {
    return html`<div class="view"><${Empty} title="No files stored"><p>What a client uploads, and what a tool writes, is here until it expires. Files are stored where a server has <code>files: true</code> or is known to handle files.</p></${Empty}></div>`;
  }
  const remove = async file => {
    say("");
    try {
      await source.api.delete(pathOf(file));
      setOpen(null);
    } catch (failure) {
      say(failure.message);
    }
    ask();
  };
  const words = sought.toLowerCase().split(/\s+/).filter(Boolean);
  const textOf = file => [file.filename, file.mime_type, file.server, file.tool, file.principal, file.session, file.sha256, file.kind].join(" ").toLowerCase();
  const files = answer.files.filter(file => words.every(word => textOf(file).includes(word))).sort((a, b) => b.stored_at_unix - a.stored_at_unix);
  const total = answer.files.reduce((sum, file) => sum + file.size_bytes, 0);
  const chosen = open && answer.files.find(file => file.id === open);
  return html`
    <div class="view scrolled" tabindex="0" role="region" aria-label="Files">
      <div class="toolbar inner">
        <input type="search" aria-label="Search files" placeholder="Name, type, tool, server or hash" value=${sought} onInput=${event => seek(event.target.value)} />
        <span class="quiet number">${many(answer.files.length, "file")}, ${bytes(total)}</span>
      </div>
      ${said ? html`<p class="note" role="alert">${visible(said)}</p>` : null}
      ${files.length ? null : html`<p class="quiet pad">No file fits “${visible(sought)}”.</p>`}
      <ul class="gallery">
        ${files.slice(0, SHOWN_MAX).map(file => html`
          <li key=${file.id}>
            <button class="file" onClick=${() => setOpen(file.id)} title="Open">
              <${Thumbnail} source=${source} file=${file} />
              <span class="file-name">${visible(file.filename)}</span>
              <span class="quiet">${bytes(file.size_bytes)} · ${file.tool ? html`made by ${visible(file.tool)}` : "uploaded"}</span>
              <span class="quiet">${visible(file.server)}, ${duration(file.age_s)} ago</span>
            </button>
          </li>`)}
      </ul>
      ${chosen ? html`<${Opened} source=${source} file=${chosen} canDelete=${overview?.actions} onClose=${() => setOpen(null)} onDelete=${() => remove(chosen)} onFilter=${onFilter} />` : null}
    </div>`;
};

// Fetches content with the token, and returns an address of it that only this page can use. Forgets it in the end.
const useContent = (source, file, isWanted, type, onLoad) => {
  const [state, set] = useState([null, null]);
  useEffect(() => {
    if (!isWanted) return;
    const abort = new AbortController();
    let made = null;
    (async () => {
      try {
        const response = await source.api.open(`${pathOf(file)}/content`, {signal: abort.signal, range: type === "text" ? `bytes=0-${TEXT_MAX_BYTES - 1}` : undefined});
        const content = await response.arrayBuffer();
        if (abort.signal.aborted) return;
        if (type === "text") return set([decode(new Uint8Array(content)), null]);
        made = URL.createObjectURL(new Blob([content], {type})); // the type that was judged, whatever the response says
        set([made, null]);
      } catch (error) {
        if (error.name !== "AbortError") set([null, error]);
      }
    })();
    return () => {
      abort.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [file.id, file.sha256, isWanted]);
  return state;
};

const Thumbnail = ({source, file}) => {
  const box = useRef(null);
  const [isSeen, see] = useState(false);
  const isImage = kindOf(file) === "image" && file.size_bytes <= THUMBNAIL_MAX_BYTES;
  useEffect(() => {
    if (!isImage) return;
    const observer = new IntersectionObserver(entries => entries.some(entry => entry.isIntersecting) && see(true), {rootMargin: "200px"});
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [isImage]);
  const [url] = useContent(source, file, isImage && isSeen, file.mime_type);
  const ending = /\.([A-Za-z0-9]{1,6})$/.exec(file.filename)?.[1] ?? file.mime_type.split("/")[1] ?? "";
  return html`<span class="thumbnail" ref=${box}>${url ? html`<img src=${url} alt="" />` : html`<span class="ending" aria-hidden="true">${visible(ending)}</span>`}</span>`;
};

const Opened = ({source, file, canDelete, onClose, onDelete, onFilter}) => {
  const kind = kindOf(file);
  const type = {image: file.mime_type, pdf: "application/pdf", text: "text"}[kind];
  const [content, error] = useContent(source, file, kind !== "other", type);
  const download = async () => {
    const response = await source.api.open(`${pathOf(file)}/content`);
    const url = URL.createObjectURL(new Blob([await response.arrayBuffer()], {type: "application/octet-stream"}));
    const link = document.createElement("a");
    link.href = url;
    link.download = plain(file.filename);
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  };
  return html`
    <${Dialog} title=${file.filename} onClose=${onClose} wide>
      <div class="opened">
        <div class="preview">
          ${error ? html`<p class="note">${visible(error.message)} It may have expired.</p>`
          : kind === "other" ? html`<p class="quiet pad">${visible(file.mime_type)} is not shown here. Save it to look into it.</p>`
          : content === null ? html`<p class="quiet pad">Loading …</p>`
          : kind === "image" ? html`<img src=${content} alt=${plain(file.filename)} />`
          : kind === "pdf" ? html`<iframe src=${content} title=${plain(file.filename)}></iframe>`
          : html`<pre class="raw" tabindex="0">${visible(content, "\n\t\r")}</pre>${file.size_bytes > TEXT_MAX_BYTES ? html`<p class="note">Cut here: ${bytes(TEXT_MAX_BYTES)} of ${bytes(file.size_bytes)} are shown.</p>` : null}`}
        </div>
        <dl class="file-facts">
          <dt>Type</dt><dd>${visible(file.mime_type)}</dd>
          <dt>Size</dt><dd>${grouped(file.size_bytes)} bytes</dd>
          <dt>Made by</dt><dd>${file.tool ? html`<button class="link" onClick=${() => (onClose(), onFilter("target", file.tool))}>${visible(file.tool)}</button>` : "an upload"} ${file.principal ? html`of ${visible(file.principal)}` : null}</dd>
          <dt>Server</dt><dd>${visible(file.server)}</dd>
          <dt>Session</dt><dd><button class="link" onClick=${() => (onClose(), onFilter("session", file.session))}>${visible(file.session)}</button>${file.is_live ? "" : " (over)"}</dd>
          <dt>Stored</dt><dd>${file.stored_at_unix ? dateTime(file.stored_at_unix) : "not known"}</dd>
          <dt>Expires in</dt><dd>${duration(file.expires_in_s)}</dd>
          <dt>SHA-256</dt><dd class="hash">${file.sha256} <${Copy} text=${() => file.sha256} /></dd>
          <dt>URI</dt><dd class="hash">${visible(file.uri)}</dd>
          <div class="buttons">
            <button onClick=${download}>Save …</button>
            ${canDelete ? html`<${Sure} label="Delete" sure="Delete it for good" disabled=${file.pins > 0} onSure=${onDelete} />` : null}
            ${file.pins > 0 ? html`<span class="quiet">A call uses it now.</span>` : null}
          </div>
        </dl>
      </div>
    </${Dialog}>`;
};
