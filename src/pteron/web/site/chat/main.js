// The chat page of a static site: the model runs in a worker of this tab.

import { startChat } from "./chat.js";

const $ = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "min_p", "top_k", "repeat_penalty", "max_tokens", "seed"];
const worker = new Worker("worker.js", { type: "module" });
const receivers = new Map();  // by the number of the answer
let last = 0;

async function* answers(messages, settings, signal) {
  const id = ++last, received = [];
  let wake;
  receivers.set(id, (message) => { received.push(message); wake?.(); });
  const options = Object.fromEntries(NUMBERS.filter((name) => settings[name] !== "").map((name) => [name, Number(settings[name])]));
  signal.addEventListener("abort", () => worker.postMessage({ stop: id }));
  worker.postMessage({ id, messages, options });
  try {
    for (;;) {
      while (!received.length) await new Promise((resolve) => { wake = resolve; });
      const { event, done, error } = received.shift();
      if (error) throw Object.assign(new Error(error.message), { name: error.name });
      if (done) return;
      yield event;
    }
  } finally { receivers.delete(id); }
}

const megabytes = (bytes) => (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);

function showProgress({ loaded, total, compiled, pipelines }) {
  $("loaded").value = (loaded / total + (pipelines ? compiled / pipelines : 0)) / 2;
  $("loading-text").textContent = `${megabytes(loaded)} of ${megabytes(total)} MB · ${compiled} of ${pipelines} kernels`;
}

function showFailure(text) {
  $("loading-text").textContent = text;
  $("loading-text").className = "note";
  $("loaded").hidden = true;
}

worker.onmessage = ({ data }) => {
  if (data.id) receivers.get(data.id)?.(data);
  else if (data.progress) showProgress(data.progress);
  else if (data.failed) showFailure(data.failed);
  else {
    $("loading").hidden = true;
    $("model-name").textContent = data.ready.name;
    document.title = data.ready.name;
    startChat(answers);
  }
};
worker.onerror = (event) => showFailure(event.message || "The worker of the page cannot be started.");

$("promise").textContent = "The model runs in this tab. Nothing that you write leaves it.";
$("loading").hidden = false;
$("loading-text").textContent = "Loading the model …";
navigator.serviceWorker?.register("service-worker.js").catch(() => {});  // without it, the site needs the network
