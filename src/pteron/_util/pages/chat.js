// The chat page: the conversation, its settings and its controls. The answers come from elsewhere: see `startChat`.

import { answerNodes, copyText, node } from "./markdown.js";
import { stored } from "./theme.js";

const $ = (id) => document.getElementById(id);
const DEFAULTS = { system: "", temperature: 0.8, top_p: 0.95, min_p: 0.05, top_k: 40, repeat_penalty: 1, max_tokens: "", seed: "" };
const settings = { ...DEFAULTS, ...stored(localStorage, "settings", {}) };
let messages = stored(sessionStorage, "messages", []);  // {role, content, note?, error?}
let earlier = stored(sessionStorage, "earlier", []);  // conversations before this one, the last at the end
let running = null;  // the AbortController of the answer that is being written
let answers = null;  // see `startChat`

/**
 * Begin. `getAnswers(messages, settings, signal)` is called for each answer. It returns an async iterable of
 * {text, tokens, note}: more text, the number of tokens so far, and a remark at the end. All are optional.
 */
export function startChat(getAnswers) {
  answers = getAnswers;
  updateSend();
}

// -- the conversation ---------------------------------------------------------------------------

function show(message) {
  const item = node("li", [], { class: `message ${message.role}` });
  item.append(node("span", message.role === "user" ? "You wrote: " : "The model answered: ", { class: "hidden" }));
  const text = node("div", [], { class: "text" });
  item.append(text);
  if (message.role === "user") { text.textContent = message.content; text.className = ""; }
  else fill(item, message);
  $("messages").append(item);
  return item;
}

function fill(item, message) {
  const isUnfolded = item.querySelector("details")?.open;
  item.classList.toggle("error", Boolean(message.error));
  item.querySelector(".text").replaceChildren(...(message.error ? [node("p", message.error)] : answerNodes(message.content)));
  if (isUnfolded) item.querySelector("details")?.setAttribute("open", "");
}

function addFacts(item, message, isLast) {
  item.querySelector(".facts")?.remove();
  const facts = node("div", [], { class: "facts" });
  const button = (label, work) => {
    const made = node("button", label, { type: "button" });
    made.addEventListener("click", () => work(made));
    facts.append(made);
  };
  if (message.content) button("Copy", (made) => copyText(message.content, made));
  if (isLast) button(message.error ? "Try again" : "Regenerate", regenerate);
  if (message.note) facts.append(node("span", message.note));
  item.append(facts);
}

function redraw() {
  $("messages").replaceChildren();
  messages.forEach((message, place) => {
    const item = show(message);
    if (message.role === "assistant") addFacts(item, message, place === messages.length - 1);
  });
  $("welcome").hidden = messages.length > 0;
  $("back").hidden = $("undo").hidden = earlier.length === 0;
  save();
  toEnd(true);
}

function save() {
  try {
    sessionStorage.setItem("messages", JSON.stringify(messages));
    sessionStorage.setItem("earlier", JSON.stringify(earlier));
  } catch { /* it is full: the page still works */ }
}

function isAtEnd() {
  const box = $("scroller");
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
}

function toEnd(force) {
  if (force) $("scroller").scrollTop = $("scroller").scrollHeight;
}

function say(text) { $("status").textContent = text; }

// -- answers --------------------------------------------------------------------------------------

async function answer() {
  const message = { role: "assistant", content: "" };
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  const history = [...system, ...messages.filter((m) => !m.error).map(({ role, content }) => ({ role, content }))];
  messages.push(message);
  const item = show(message);
  item.setAttribute("aria-busy", "true");
  $("messages").querySelectorAll(".facts button:nth-child(n+2)").forEach((button) => button.remove());
  setRunning(new AbortController());
  const speed = { began: performance.now(), first: 0, chunks: 0, tokens: 0 };
  let drawing = 0;
  const draw = () => { drawing = 0; const follow = isAtEnd(); fill(item, message); toEnd(follow); };
  toEnd(true);
  try {
    for await (const event of answers(history, settings, running.signal)) {
      speed.tokens = event.tokens ?? speed.tokens;
      message.note = event.note ?? message.note;
      if (!event.text) continue;
      speed.first ||= performance.now();
      speed.chunks++;
      message.content += event.text;
      drawing ||= requestAnimationFrame(draw);
    }
  } catch (error) {
    if (error.name === "AbortError") message.note = "stopped";
    else if (message.content) message.note = `ended: ${error.message}`;
    else message.error = error.message || "The answer failed.";
  }
  cancelAnimationFrame(drawing);
  const follow = isAtEnd();
  item.setAttribute("aria-busy", "false");
  message.note = [rate(speed), message.note].filter(Boolean).join(" · ");
  fill(item, message);
  addFacts(item, message, true);
  toEnd(follow);
  setRunning(null);
  save();
  say(message.error ? "The answer failed" : "The answer is complete");
}

function rate({ began, first, chunks, tokens }) {
  if (!first) return "";
  const count = tokens || chunks, seconds = (performance.now() - first) / 1000;
  const speed = count > 1 && seconds > 0 ? `${((count - 1) / seconds).toFixed(1)} tokens/s · ` : "";
  return `${count} tokens · ${speed}first after ${((first - began) / 1000).toFixed(2)} s`;
}

function setRunning(controller) {
  running = controller;
  document.body.classList.toggle("busy", Boolean(running));
  $("send").setAttribute("aria-label", running ? "Stop" : "Send");
  $("send").title = running ? "Stop (Esc)" : "Send (Enter)";
  updateSend();
}

function send(text) {
  if (running || !answers || !text.trim()) return;
  messages = messages.filter((message) => !message.error);
  messages.push({ role: "user", content: text.trim() });
  $("prompt").value = "";
  grow();
  redraw();
  answer();
  if (matchMedia("(pointer: fine)").matches) $("prompt").focus();  // a touch keyboard would hide the answer
}

function regenerate() {
  if (running || !answers) return;
  while (messages.at(-1)?.role === "assistant") messages.pop();
  redraw();
  answer();
}

function startAgain() {
  running?.abort();
  if (messages.length) earlier.push(messages);
  messages = [];
  redraw();
  if (earlier.length) say("New chat. The last one can be brought back");
  $("prompt").focus();
}

/** Show the last conversation again. This one comes before all others, so going back again and again shows each. */
function goBack() {
  if (!earlier.length) return;
  running?.abort();
  const last = earlier.pop();
  if (messages.length) earlier.unshift(messages);
  messages = last;
  redraw();
  say("The last chat is back");
  $("prompt").focus();
}

// -- controls ---------------------------------------------------------------------------------------

function grow() {
  const box = $("prompt");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
  updateSend();
}

function updateSend() { $("send").disabled = !running && (!answers || !$("prompt").value.trim()); }

function showSettings() {
  for (const input of document.querySelectorAll("[data-setting]")) {
    input.value = settings[input.dataset.setting];
    const output = input.parentElement.querySelector("output");
    if (output) output.value = input.value;
  }
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) running.abort();
  else send($("prompt").value);
});
$("prompt").addEventListener("input", grow);
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running) send($("prompt").value);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !$("settings").open) running.abort();
  if (event.altKey && event.key.toLowerCase() === "n") { event.preventDefault(); startAgain(); }
  if (event.altKey && event.key.toLowerCase() === "z") { event.preventDefault(); goBack(); }
  if (event.altKey && event.key.toLowerCase() === "s") { event.preventDefault(); $("open-settings").click(); }
});
$("ideas").addEventListener("click", (event) => { if (event.target.matches("button")) send(event.target.textContent); });
$("new").addEventListener("click", startAgain);
$("back").addEventListener("click", goBack);
$("undo").addEventListener("click", goBack);
$("open-settings").addEventListener("click", () => { if (!$("settings").open) $("settings").showModal(); });
$("settings").addEventListener("click", (event) => { if (event.target === $("settings")) $("settings").close(); });
$("settings").addEventListener("input", (event) => {
  const name = event.target.dataset.setting;
  if (!name) return;
  settings[name] = event.target.value;
  localStorage.setItem("settings", JSON.stringify(settings));
  showSettings();
});
$("defaults").addEventListener("click", () => {
  Object.assign(settings, DEFAULTS);
  localStorage.removeItem("settings");
  showSettings();
});

showSettings();
redraw();
updateSend();
