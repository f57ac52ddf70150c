// Writes the official JSON Schemas of the protocol, one file a revision, into a folder: `node schemas.mjs BUNDLE FOLDER`.
// BUNDLE is dist/index.js of @modelcontextprotocol/conformance, which carries them as object literals.
import fs from "node:fs";
import vm from "node:vm";

const [bundle, folder] = process.argv.slice(2);
const text = fs.readFileSync(bundle, "utf8");
const listed = /\{"2025-03-26":([\w$]+),"2025-06-18":([\w$]+),"2025-11-25":([\w$]+),\[[\w$]+\]:([\w$]+)\}/.exec(text);
if (listed === null) throw new Error(`${bundle}: the table of schemas is not where it was`);

for (const [index, revision] of ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"].entries()) {
  const name = listed[index + 1];
  const start = text.indexOf(`${name}={$schema:`) + name.length + 1;
  fs.writeFileSync(`${folder}/${revision}.json`, JSON.stringify(literalAt(start), null, 1));
}

// The object literal that begins there: its end is where all brackets outside texts are closed.
function literalAt(start) {
  let depth = 0;
  let quote = "";
  for (let at = start; ; at++) {
    const sign = text[at];
    if (quote !== "") {
      if (sign === "\\") at++;
      else if (sign === quote) quote = "";
    } else if ("`\"'".includes(sign)) quote = sign;
    else if ("{[".includes(sign)) depth++;
    else if ("}]".includes(sign) && --depth === 0) return vm.runInNewContext(`(${text.slice(start, at + 1)})`);
  }
}
