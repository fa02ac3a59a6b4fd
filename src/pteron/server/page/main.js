// The chat page of the server: answers come from its own API.

import { startChat } from "./chat.js";
import { node } from "./markdown.js";
import { stored } from "./theme.js";

const $ = (id) => document.getElementById(id);

function headers() {
  const key = sessionStorage.getItem("key");
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

function request(messages, settings) {
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  if ($("model").value) body.model = $("model").value;
  for (const name of ["temperature", "top_p", "min_p", "top_k", "repeat_penalty", "max_tokens", "seed"]) {
    if (settings[name] !== "") body[name] = Number(settings[name]);
  }
  return body;
}

async function* answers(messages, settings, signal) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST", headers: headers(), body: JSON.stringify(request(messages, settings)), signal,
  });
  if (!response.ok) throw await refusal(response);
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices[0];
    const note = choice?.finish_reason === "length" ? "cut: the limit of tokens" : undefined;
    yield { text: choice?.delta.content, tokens: event.usage?.completion_tokens, note };
  }
}

/** The JSON objects of a stream of server-sent events. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  if (response.status === 401) askForKey();
  return new Error(body?.error?.message ?? `The server answered with status ${response.status}.`);
}

function askForKey() {
  $("key-note").hidden = false;
  if (!$("settings").open) $("settings").showModal();
  $("key").focus();
}

async function loadModels() {
  try {
    const response = await fetch("/v1/models", { headers: headers() });
    if (!response.ok) throw await refusal(response);
    const names = (await response.json()).data.map((model) => model.id);
    $("model").replaceChildren(...names.map((name) => node("option", name, { value: name })));
    const last = stored(localStorage, "model", null);
    if (names.includes(last)) $("model").value = last;
    $("model").hidden = names.length < 2;
    $("model-name").textContent = names.length === 1 ? names[0] : "";
  } catch (error) { $("model-name").textContent = error.message; }
}

$("promise").textContent = "Answers come from this server, and from nowhere else.";
$("key-field").hidden = false;
$("key").value = sessionStorage.getItem("key") ?? "";
$("key").addEventListener("input", () => sessionStorage.setItem("key", $("key").value));
$("settings").addEventListener("close", () => { if (!$("key-note").hidden) { $("key-note").hidden = true; loadModels(); } });
$("model").addEventListener("change", () => localStorage.setItem("model", JSON.stringify($("model").value)));

startChat(answers);
loadModels();
