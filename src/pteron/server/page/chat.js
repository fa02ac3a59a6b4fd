"use strict";
// The chat page. It uses the server's own API, and builds all text as nodes: nothing from a model becomes HTML.

const $ = (id) => document.getElementById(id);
const DEFAULTS = { system: "", temperature: 0.8, top_p: 0.95, min_p: 0.05, top_k: 40, repeat_penalty: 1, max_tokens: "", seed: "" };
const stored = (store, name, fallback) => {
  try { return JSON.parse(store.getItem(name)) ?? fallback; } catch { return fallback; }
};
const settings = { ...DEFAULTS, ...stored(localStorage, "settings", {}) };
let messages = stored(sessionStorage, "messages", []);  // {role, content, note?, error?}
let running = null;  // the AbortController of the answer that is being written

// -- markdown -----------------------------------------------------------------------------------

function node(name, content = [], attributes = {}) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// The first alternative that matches at the leftmost place wins. Contents are read again, except those of code.
const INLINE = /(`+)(?<code>[^]*?[^`])\1(?!`)|\*\*(?<bold>[^]+?)\*\*(?!\*)|__(?<bold2>[^]+?)__(?!\w)|\*(?<italic>[^\s*](?:[^*]*[^\s*])?)\*|(?<!\w)_(?<italic2>[^\s_](?:[^_]*[^\s_])?)_(?!\w)|~~(?<gone>[^]+?)~~|\[(?<label>[^\]]+)\]\((?<target>[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+"[^"]*")?\)|(?<bare>https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?])|\\(?<escaped>[\\`*_{}[\]()#+.!~|>-])|(?<br> {2,}\n|\\\n|<br ?\/?>)/;

function inline(text) {
  const nodes = [];
  while (text) {
    const found = INLINE.exec(text);
    if (!found) { nodes.push(text); break; }
    if (found.index) nodes.push(text.slice(0, found.index));
    const got = found.groups;
    const strong = got.bold ?? got.bold2, emphasis = got.italic ?? got.italic2;
    if (got.code !== undefined) nodes.push(node("code", got.code.replace(/^ (.*) $/s, "$1")));
    else if (strong !== undefined) nodes.push(node("strong", inline(strong)));
    else if (emphasis !== undefined) nodes.push(node("em", inline(emphasis)));
    else if (got.gone !== undefined) nodes.push(node("del", inline(got.gone)));
    else if (got.label !== undefined) nodes.push(link(got.target, inline(got.label), found[0]));
    else if (got.bare !== undefined) nodes.push(link(got.bare, [got.bare], got.bare));
    else if (got.br !== undefined) nodes.push(node("br"));
    else nodes.push(got.escaped);
    text = text.slice(found.index + found[0].length);
  }
  return nodes;
}

function link(target, content, written) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return written;  // no javascript:, no paths of this server
  return node("a", content, { href: target, target: "_blank", rel: "noopener noreferrer" });
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/, HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/, RULE = /^ {0,3}([-*_])( *\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/, QUOTE = /^ {0,3}>\s?(.*)$/, DELIMITER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MOST_DEPTH = 20;

function markdown(text, depth = 0) {
  const lines = text.split("\n"), blocks = [];
  let at = 0;
  const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || QUOTE.test(line);
  while (at < lines.length) {
    const line = lines[at];
    let found;
    if (!line.trim()) at++;
    else if ((found = FENCE.exec(line))) at = fence(lines, at, found, blocks);
    else if ((found = HEADING.exec(line))) { blocks.push(node(`h${found[1].length}`, inline(found[2]))); at++; }
    else if (RULE.test(line)) { blocks.push(node("hr")); at++; }
    else if (QUOTE.test(line) && depth < MOST_DEPTH) {
      const inner = [];
      while (at < lines.length && (found = QUOTE.exec(lines[at]))) { inner.push(found[1]); at++; }
      blocks.push(node("blockquote", markdown(inner.join("\n"), depth + 1)));
    } else if (ITEM.test(line) && depth < MOST_DEPTH) at = list(lines, at, blocks, depth);
    else if (line.includes("|") && DELIMITER.test(lines[at + 1] ?? "")) at = table(lines, at, blocks);
    else {
      const paragraph = [line];
      for (at++; at < lines.length && lines[at].trim() && !startsBlock(lines[at]); at++) paragraph.push(lines[at]);
      blocks.push(node("p", inline(paragraph.join("\n").trim())));
    }
  }
  return blocks;
}

function fence(lines, at, found, blocks) {
  const code = [], end = new RegExp(`^ {0,3}${found[1][0]}{${found[1].length},}\\s*$`);
  for (at++; at < lines.length && !end.test(lines[at]); at++) code.push(lines[at]);
  const text = code.join("\n"), copy = node("button", "Copy", { type: "button" });
  copy.addEventListener("click", () => copyText(text, copy));
  const top = node("div", [node("span", found[2] || "text"), copy], { class: "code-top" });
  blocks.push(node("figure", [top, node("pre", node("code", text))]));
  return at + 1;
}

function list(lines, at, blocks, depth) {
  const first = ITEM.exec(lines[at]), indent = first[1].length, ordered = /\d/.test(first[2]), items = [];
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[1].length > indent + 1 || found[1].length < indent || /\d/.test(found[2]) !== ordered || RULE.test(lines[at])) break;
    const inner = [found[3] ?? ""];
    for (at++; at < lines.length; at++) {  // what is further to the right belongs to the item
      const blank = !lines[at].trim(), after = lines[at + 1] ?? "";
      if (blank ? !/^\s{2,}\S/.test(after) : !lines[at].startsWith(" ".repeat(indent + 2))) break;
      inner.push(lines[at].slice(Math.min(indent + found[2].length + 1, lines[at].search(/\S|$/))));
    }
    const content = markdown(inner.join("\n"), depth + 1);
    items.push(node("li", content.length && content[0].tagName === "P" ? [...content[0].childNodes, ...content.slice(1)] : content));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? "")) at++;
  }
  const start = ordered && parseInt(first[2], 10) !== 1 ? { start: parseInt(first[2], 10) } : {};
  blocks.push(node(ordered ? "ol" : "ul", items, start));
  return at;
}

function table(lines, at, blocks) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => inline(cell.trim().replaceAll("\\|", "|")));
  const head = cells(lines[at]), rows = [];
  for (at += 2; at < lines.length && lines[at].includes("|"); at++) rows.push(cells(lines[at]));
  const row = (name, values) => node("tr", head.map((_, i) => node(name, values[i] ?? [])));
  const made = node("table", [node("thead", row("th", head)), node("tbody", rows.map((values) => row("td", values)))]);
  blocks.push(node("div", made, { class: "table" }));
  return at;
}

/** An answer. What a model thinks before it answers can be unfolded. */
function answerNodes(text) {
  const thought = /^\s*<think>([^]*?)(<\/think>|$)/.exec(text);
  if (!thought) return markdown(text);
  const label = thought[2] ? "Thoughts" : "Thinking …";
  return [node("details", [node("summary", label), ...markdown(thought[1])]), ...markdown(text.slice(thought[0].length))];
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
  save();
  toEnd(true);
}

function save() {
  try { sessionStorage.setItem("messages", JSON.stringify(messages)); } catch { /* it is full: the page still works */ }
}

function isAtEnd() {
  const box = $("scroller");
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
}

function toEnd(force) {
  if (force) $("scroller").scrollTop = $("scroller").scrollHeight;
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
    button.textContent = "Copied";
  } catch { button.textContent = "Not allowed"; }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

function say(text) { $("status").textContent = text; }

// -- answers --------------------------------------------------------------------------------------

function request() {
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  const body = {
    messages: [...system, ...messages.filter((m) => !m.error).map(({ role, content }) => ({ role, content }))],
    stream: true,
    stream_options: { include_usage: true },
  };
  if ($("model").value) body.model = $("model").value;
  for (const name of ["temperature", "top_p", "min_p", "top_k", "repeat_penalty", "max_tokens", "seed"]) {
    if (settings[name] !== "") body[name] = Number(settings[name]);
  }
  return body;
}

function headers() {
  const key = sessionStorage.getItem("key");
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
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

async function answer() {
  const message = { role: "assistant", content: "" };
  const history = request();
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
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(history), signal: running.signal,
    });
    if (!response.ok) throw await refusal(response);
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      speed.tokens = event.usage?.completion_tokens ?? speed.tokens;
      const choice = event.choices[0];
      if (choice?.finish_reason === "length") message.note = "cut: the limit of tokens";
      const more = choice?.delta.content;
      if (!more) continue;
      speed.first ||= performance.now();
      speed.chunks++;
      message.content += more;
      drawing ||= requestAnimationFrame(draw);
    }
  } catch (error) {
    if (error.name === "AbortError") message.note = "stopped";
    else if (message.content) message.note = `ended: ${error.message}`;
    else message.error = error.message || "The server cannot be reached.";
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

async function refusal(response) {
  const body = await response.json().catch(() => null);
  if (response.status === 401) askForKey();
  return new Error(body?.error?.message ?? `The server answered with status ${response.status}.`);
}

function setRunning(controller) {
  running = controller;
  document.body.classList.toggle("busy", Boolean(running));
  $("send").setAttribute("aria-label", running ? "Stop" : "Send");
  $("send").title = running ? "Stop (Esc)" : "Send (Enter)";
  updateSend();
}

function send(text) {
  if (running || !text.trim()) return;
  messages = messages.filter((message) => !message.error);
  messages.push({ role: "user", content: text.trim() });
  $("prompt").value = "";
  grow();
  redraw();
  answer();
  if (matchMedia("(pointer: fine)").matches) $("prompt").focus();  // a touch keyboard would hide the answer
}

function regenerate() {
  if (running) return;
  while (messages.at(-1)?.role === "assistant") messages.pop();
  redraw();
  answer();
}

function startAgain() {
  running?.abort();
  messages = [];
  redraw();
  $("prompt").focus();
}

// -- controls ---------------------------------------------------------------------------------------

function grow() {
  const box = $("prompt");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
  updateSend();
}

function updateSend() { $("send").disabled = !running && !$("prompt").value.trim(); }

function askForKey() {
  $("key-note").hidden = false;
  if (!$("settings").open) $("settings").showModal();
  $("key").focus();
}

function showSettings() {
  for (const input of document.querySelectorAll("[data-setting]")) {
    input.value = settings[input.dataset.setting];
    const output = input.parentElement.querySelector("output");
    if (output) output.value = input.value;
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
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
  if (event.altKey && event.key.toLowerCase() === "s") { event.preventDefault(); $("open-settings").click(); }
});
$("ideas").addEventListener("click", (event) => { if (event.target.matches("button")) send(event.target.textContent); });
$("new").addEventListener("click", startAgain);
$("theme").addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", JSON.stringify(next));
});
$("open-settings").addEventListener("click", () => { if (!$("settings").open) $("settings").showModal(); });
$("settings").addEventListener("click", (event) => { if (event.target === $("settings")) $("settings").close(); });
$("settings").addEventListener("close", () => { if (!$("key-note").hidden) { $("key-note").hidden = true; loadModels(); } });
$("settings").addEventListener("input", (event) => {
  const name = event.target.dataset.setting;
  if (!name) { sessionStorage.setItem("key", $("key").value); return; }
  settings[name] = event.target.value;
  localStorage.setItem("settings", JSON.stringify(settings));
  showSettings();
});
$("defaults").addEventListener("click", () => {
  Object.assign(settings, DEFAULTS);
  localStorage.removeItem("settings");
  showSettings();
});
$("model").addEventListener("change", () => localStorage.setItem("model", JSON.stringify($("model").value)));

const theme = stored(localStorage, "theme", null);
if (theme) document.documentElement.dataset.theme = theme;
$("key").value = sessionStorage.getItem("key") ?? "";
showSettings();
redraw();
updateSend();
loadModels();
