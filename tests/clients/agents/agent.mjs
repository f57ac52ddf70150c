// The protocol between the journey and a client in JavaScript: one line of JSON each way, on stdin and stdout.
//
// The script of a client calls `run` with a function that takes the target and returns an agent: `tools()`,
// `call(name, arguments)`, and where there is a way to, `read(uri)` and `close()`. README.md has the requests and the
// answers. The runner copies this file and the script into the client's own folder, where Node finds its packages.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

for (const name of ["log", "info", "debug"]) console[name] = console.error; // stdout is the protocol's

const answer = (members) => process.stdout.write(`${JSON.stringify(members)}\n`);

const describe = (error) => {
  const causes = [...(error.errors ?? []), ...(error.cause instanceof Error ? [error.cause] : [])];
  return [`${error.name}: ${error.message}`, ...causes.map(describe)].join("; ");
};

export async function run(connect, packages) {
  const versions = {};
  for (const name of packages) {
    versions[name] = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
  }
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  let agent;
  try {
    agent = await connect(JSON.parse((await lines.next()).value));
    answer({ value: versions });
  } catch (error) {
    answer({ error: describe(error), versions });
    process.exit(1);
  }
  for await (const line of lines) {
    const request = JSON.parse(line);
    if (!agent[request.op]) {
      answer({ is_missing: true });
      continue;
    }
    try {
      answer({ value: await carryOut(agent, request) });
    } catch (error) {
      answer({ error: describe(error) });
    }
  }
  await agent.close?.();
  process.exit(0);
}

function carryOut(agent, request) {
  if (request.op === "tools") return agent.tools();
  if (request.op === "call") return agent.call(request.name, request.arguments);
  return agent.read(request.uri).then((bytes) => bytes.toString("hex"));
}

// The bytes of a text or blob that a resource was read as.
export const content = (resource) =>
  resource.text === undefined ? Buffer.from(resource.blob, "base64") : Buffer.from(resource.text);
