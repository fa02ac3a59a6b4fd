// Questions to the server.

export class Refused extends Error {}

async function answered(sent) {
  const response = await sent.catch(() => { throw new Refused("The server does not answer. Is `pteron view` still running?"); });
  const body = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Refused(body.error);
  return body;
}

export function ask(what, question = {}) {
  const body = JSON.stringify(question);
  return answered(fetch(`/api/${what}`, { method: "POST", headers: { "Content-Type": "application/json" }, body }));
}

export function giveInput(file, name, data) {
  const headers = { "Content-Type": "application/octet-stream" };
  return answered(fetch(`/api/inputs/${file}/${encodeURIComponent(name)}`, { method: "PUT", headers, body: data }));
}

export const takeInputsBack = (file) => fetch(`/api/inputs/${file}`, { method: "DELETE" });

/** Runs an asynchronous task one at a time. While it runs, only the latest call is remembered. */
export function latest(task) {
  let running = false;
  let next = null;
  return async function run(...args) {
    next = args;
    if (running) return;
    running = true;
    try {
      while (next) {
        const now = next;
        next = null;
        await task(...now);
      }
    } finally {
      running = false;
    }
  };
}
