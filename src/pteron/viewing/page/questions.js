// Questions to the server.

export class Refused extends Error {}

async function answered(response) {
  const body = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Refused(body.error);
  return body;
}

export async function ask(what, question = {}) {
  const body = JSON.stringify(question);
  return answered(await fetch(`/api/${what}`, { method: "POST", headers: { "Content-Type": "application/json" }, body }));
}

export async function giveInput(file, name, data) {
  const headers = { "Content-Type": "application/octet-stream" };
  return answered(await fetch(`/api/inputs/${file}/${encodeURIComponent(name)}`, { method: "PUT", headers, body: data }));
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
    while (next) {
      const now = next;
      next = null;
      await task(...now);
    }
    running = false;
  };
}
