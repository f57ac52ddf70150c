/* The search of a site that is opened as a file. Browsers start no workers there, so its script runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => {
        window.addEventListener("message", (event) => {
          if (event.source !== frame.contentWindow) return;
          const copy = new MessageEvent("message", { data: event.data });
          this.dispatchEvent(copy);
          if (this.onmessage) this.onmessage(copy);
        });
        frame.addEventListener("load", () => resolve(frame.contentWindow), { once: true });
      });
      const setting = `
        window.postMessage = (data) => parent.postMessage(data, "*");
        window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
          const script = document.createElement("script");
          script.src = url;
          script.onload = done;
          document.head.appendChild(script);
        })), Promise.resolve());`;
      frame.srcdoc = `<script>${setting}</scr` + `ipt><script src="${new URL(url, location)}"></scr` + `ipt>`;
      document.body.appendChild(frame);
    }

    postMessage(data) {
      this.ready.then((frame) => frame.dispatchEvent(new frame.MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
