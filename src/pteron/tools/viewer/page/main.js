// The page: loads the files, and connects its parts.

import { Controls, showChanges } from "./controls.js";
import { showDetails } from "./details.js";
import { $, el, milliseconds, nbytes, plural, say } from "./dom.js";
import { MemoryPanel } from "./memory_panel.js";
import { showOperators } from "./operators_panel.js";
import { heat, matchesDark, readPalette } from "./palette.js";
import { Pane } from "./pane.js";
import { ask, giveInput, latest, Refused, takeInputsBack } from "./questions.js";
import { Search } from "./search.js";
import { TimePanel } from "./time_panel.js";

const FAMILIES = ["product", "attention", "convolution", "normalisation", "elementwise", "reduction", "lookup", "shape", "other"];
const settings = { kind: "GPU", fused: true };
let panes = [];
let active = null;
const go = async (pane, item) => {
  await pane.reveal(item);
  select(pane, item);
};
const controls = new Controls(() => moved());
const memory = new MemoryPanel({ select: (pane, node) => go(pane, pane.model.nodes[node]), tip: showTip });
const times = new TimePanel({
  select: (pane, node) => go(pane, pane.model.nodes[node]),
  shown: (pane, profile) => { pane.useProfile(profile); colourBy(profile.gpu !== null); },
});
const search = new Search(() => panes, go);

// -- loading ----------------------------------------------------------------------------------------

async function start() {
  readPalette();
  const { files, kinds } = await ask("files");
  $("title").textContent = files.map((file) => file.name).join(" and ");
  document.title = `${$("title").textContent} – Pteron`;
  $("kind").replaceChildren(...kinds.map((kind) => el("option", {}, kind)));
  const events = { select, hover, status: say };
  panes = files.map((file, number) => new Pane(number, file, events));
  $("panes").replaceChildren(...panes.map((pane) => pane.element));
  const names = [...new Set(files.flatMap((file) => file.methods.filter((m) => !m.constant).map((m) => m.name)))];
  $("method").replaceChildren(...names.map((name) => el("option", {}, name)));
  $("method").hidden = names.length < 2;
  await reload();
}

const reload = latest(async () => {
  document.body.setAttribute("aria-busy", "true");
  $("refusal").hidden = true;
  active = panes[0];
  times.clear();
  colourBy(false);
  for (const pane of panes) {
    pane.element.querySelector(".problem")?.remove();
    pane.useProfile(null);
    try {
      await pane.load($("method").value, { ...settings }, controls.sizes);
      pane.caption.textContent = `${panes.length > 1 ? `${pane.info.name}: ` : ""}${plural(pane.model.nodes.length, "node")}`;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      pane.element.append(el("div", { class: "problem", role: "alert" }, error.message));
    }
  }
  controls.show(panes.flatMap((pane) => pane.controls));
  if (Object.keys(controls.sizes).length) await move();
  $("changes").replaceChildren();
  memory.show(panes);
  showOperators(panes.filter((pane) => pane.model));
  showLegend();
  showSummary();
  showGiven();
  select(active, null);
  document.body.setAttribute("aria-busy", "false");
});

// -- sizes -------------------------------------------------------------------------------------------

async function move() {
  let counts = null;
  try {
    for (const pane of panes.filter((p) => p.model)) {
      const found = await pane.move(controls.sizes);
      if (pane === active) counts = found;
      controls.limit(pane.live.ranges);
    }
    $("refusal").hidden = true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    $("refusal").textContent = error.message;
    $("refusal").hidden = false;
  }
  return counts;
}

const moved = latest(async () => {
  const counts = await move();
  if (!counts) return;
  showChanges(counts);
  memory.draw();
  if (!$("operators").hidden) showOperators(panes.filter((pane) => pane.model));
  await showDetails(active, active.view.selected, (item) => go(active, item));
});

// -- selection ----------------------------------------------------------------------------------------

function select(pane, item) {
  active = pane;
  for (const other of panes) {
    other.element.classList.toggle("active", other === pane && panes.length > 1);
    other.view.selected = other === pane ? item : null;
    other.view.draw();
  }
  memory.draw();
  showDetails(pane, item, (other) => go(pane, other));
}

function hover(pane, item, x, y) {
  if (!item || item.kind !== "node") return showTip(null);
  const { node, index } = item;
  const reads = node.reads.filter((id) => pane.model.graph.values[id].kind !== "integer").map((id) => pane.shapeOf(id));
  const route = pane.live.routes[index];
  return showTip(`${node.operator}\n${reads.join(", ")} → ${node.writes.map((id) => pane.shapeOf(id)).join(", ")}`
    + (route && route !== "only" ? `\nroute: ${route}` : node.free ? "\nruns no kernel" : ""), x, y);
}

function showTip(text, x, y) {
  const tip = $("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(x + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
}

// -- summary, legend, given inputs ------------------------------------------------------------------------

function showSummary() {
  $("summary").replaceChildren(...panes.flatMap((pane) => {
    const method = pane.info.methods.find((m) => m.name === $("method").value);
    if (!method) return [];
    const fact = (name, text) => [el("dt", {}, name), el("dd", {}, text)];
    const running = pane.model?.nodes.filter((item) => !item.node.free).length;
    return [
      ...fact("file", `${panes.length > 1 ? `${pane.info.name}, ` : ""}${nbytes(pane.info.nbytes)}`),
      ...(pane.model ? [...fact("nodes", pane.model.nodes.length), ...fact("with kernels", running)] : []),
      ...fact("constants", `${method.constants.count}, ${nbytes(method.constants.nbytes)}`),
      ...method.delegates.flatMap((d) => fact(d.backend, `${plural(d.calls, "call")}, ${nbytes(d.nbytes)}`)),
      ...fact("several sequences", method.batchable ? "yes" : "no"),
    ];
  }));
}

function showLegend() {
  const used = new Set(panes.flatMap((pane) => pane.model?.graph.nodes.map((node) => node.family) ?? FAMILIES));
  $("legend").replaceChildren(el("div", { class: "legend" }, FAMILIES.filter((f) => used.has(f))
    .map((family) => el("span", {}, el("i", { class: `swatch ${family}` }), family))));
}

/** The heat of times, from nothing to the slowest node. */
function showHeat() {
  const bar = el("div", { class: "heat" });
  bar.style.background = `linear-gradient(to right, ${[0, 0.1, 0.25, 0.5, 0.75, 1].map(heat).join(", ")})`;
  const slowest = Math.max(0, ...panes.map((pane) => pane.times?.largest ?? 0));
  const note = slowest ? `0 to ${milliseconds(slowest)} ms, the slowest node` : "No times yet: run a profile.";
  $("legend").replaceChildren(bar, el("p", { class: "note" }, note));
}

function colourBy(time) {
  for (const pane of panes) {
    pane.byTime = time;
    pane.view.draw();
  }
  $("by-time").setAttribute("aria-pressed", String(time));
  $("by-family").setAttribute("aria-pressed", String(!time));
  if (time) showHeat();
  else showLegend();
}

function showGiven(shapes = {}) {
  const rows = (active.model?.graph.inputs ?? []).filter((port) => port.value !== null).map((port) => {
    const input = el("input", { type: "file", accept: ".npy,.npz", id: `file-${port.name}`, onchange: () => give(port.name, input.files[0]) });
    return el("div", { class: "file-input" }, el("span", {}, port.name, shapes[port.name] ? el("span", { class: "chip" }, ` ${shapes[port.name].join("×")}`) : ""),
      el("span", {}, input, el("label", { for: `file-${port.name}` }, shapes[port.name] ? "change" : ".npy or .npz")));
  });
  const back = el("button", { type: "button", class: "link-button", onclick: () => takeInputsBack(active.file).then(() => showGiven()) }, "Random inputs again");
  $("given").replaceChildren(...rows, Object.keys(shapes).length ? back : el("p", { class: "note" }, "Inputs without a file are random."));
}

async function give(name, file) {
  await reporting(async () => showGiven(await giveInput(active.file, name, await file.arrayBuffer())));
}

// -- what needs a device -------------------------------------------------------------------------------------

async function reporting(task) {
  for (const id of ["run-profile", "run-values"]) $(id).disabled = true;
  try {
    await task();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    $("run-note").textContent = error.message;
  }
  for (const id of ["run-profile", "run-values"]) $(id).disabled = false;
}

$("run-profile").addEventListener("click", () => reporting(async () => {
  for (const pane of panes.filter((p) => p.model)) {
    $("run-note").textContent = `Profiling ${pane.info.name}…`;
    times.add(pane, await ask("profile", pane.question({ kind: "this device" })));
  }
  $("run-note").textContent = settings.kind === "this device" ? "" : "Measured with the kernels of this device. Choose it above to see them.";
  openTab("time");
  await showDetails(active, active.view.selected, (item) => go(active, item));
}));

$("run-values").addEventListener("click", () => reporting(async () => {
  for (const pane of panes.filter((p) => p.model)) {
    $("run-note").textContent = `Running ${pane.info.name} node by node…`;
    const found = await ask("run", pane.question({ kind: "this device" }));
    pane.values = found.values;
    const bad = found.first_not_finite;
    $("run-note").textContent = bad === null ? `All values are finite. Select a node, then “values”.` : `The first NaN or infinity is in node ${bad}.`;
    if (bad !== null) await go(pane, pane.model.nodes[bad]);
  }
  await showDetails(active, active.view.selected, (item) => go(active, item));
}));

// -- the header and the panel below -----------------------------------------------------------------------------

function setFused(fused) {
  settings.fused = fused;
  $("fused").setAttribute("aria-pressed", String(fused));
  $("unfused").setAttribute("aria-pressed", String(!fused));
  return reload();
}

function switchTheme() {
  document.documentElement.dataset.theme = matchesDark() ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  repaint();
}

function repaint() {
  readPalette();
  for (const pane of panes) pane.view.draw();
  memory.draw();
}

function openTab(name) {
  for (const tab of document.querySelectorAll('[role="tab"]')) {
    const isIt = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isIt));
    tab.tabIndex = isIt ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !isIt;
  }
  foldDock(false);
  if (name === "operators") showOperators(panes.filter((pane) => pane.model));
  memory.draw();
}

function foldDock(folded = !$("dock").classList.contains("folded")) {
  $("dock").classList.toggle("folded", folded);
  $("fold-dock").setAttribute("aria-expanded", String(!folded));
}

function resizeDock(height) {
  $("dock").style.height = `${Math.max(90, Math.min(innerHeight * 0.75, height))}px`;
}

if (localStorage.getItem("theme")) document.documentElement.dataset.theme = localStorage.getItem("theme");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
$("theme").addEventListener("click", switchTheme);
$("fused").addEventListener("click", () => setFused(true));
$("unfused").addEventListener("click", () => setFused(false));
$("by-time").addEventListener("click", () => colourBy(true));
$("by-family").addEventListener("click", () => colourBy(false));
$("method").addEventListener("change", reload);
$("kind").addEventListener("change", () => { settings.kind = $("kind").value; reload(); });
$("open-search").addEventListener("click", () => search.open());
$("open-help").addEventListener("click", () => $("help").showModal());
document.querySelector("[data-close]").addEventListener("click", () => $("help").close());
$("fold-dock").addEventListener("click", () => foldDock());
const tabs = [...document.querySelectorAll('[role="tab"]')];
for (const [place, tab] of tabs.entries()) {
  tab.addEventListener("click", () => openTab(tab.getAttribute("aria-controls")));
  tab.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.stopPropagation();
    const next = tabs[(place + by + tabs.length) % tabs.length];
    next.focus();
    openTab(next.getAttribute("aria-controls"));
  });
}
$("resize").addEventListener("pointerdown", (event) => $("resize").setPointerCapture(event.pointerId));
$("resize").addEventListener("pointermove", (event) => event.buttons && resizeDock(innerHeight - event.clientY));
$("resize").addEventListener("keydown", (event) => {
  const by = { ArrowUp: 24, ArrowDown: -24 }[event.key];
  if (by) { event.stopPropagation(); resizeDock($("dock").clientHeight + by); }
});

// -- keys ---------------------------------------------------------------------------------------------------------

/** The node after or before the selected one, in program order. */
function neighbour(by) {
  const { model, view } = active;
  const from = view.selected;
  const index = from?.kind === "node" ? from.index + by : from?.kind === "group" ? (by > 0 ? from.first : from.first - 1) : by > 0 ? 0 : model.nodes.length - 1;
  return model.nodes[Math.max(0, Math.min(model.nodes.length - 1, index))];
}

/** The next item that can be seen: a node, or the closed group that contains it. */
function shownNeighbour(by) {
  const { view, model } = active;
  let item = neighbour(by);
  let shown = view.boxOf(item).item;
  while (shown === view.selected && item.index + by >= 0 && item.index + by < model.nodes.length) {
    item = model.nodes[item.index + by];
    shown = view.boxOf(item).item;
  }
  return shown;
}

async function unfold(open) {
  const item = active.view.selected;
  if (item?.kind === "group" && open !== active.open.has(item.id)) return active.toggle(item, open);
  if (open && item?.kind === "group") return go(active, active.model.nodes[item.first]);
  const parent = item?.parent;
  if (!open && parent && parent !== active.model.root) return go(active, parent);
  return undefined;
}

const KEYS = {
  "/": () => search.open(),
  "?": () => $("help").showModal(),
  ArrowDown: () => go(active, shownNeighbour(1)),
  ArrowUp: () => go(active, shownNeighbour(-1)),
  ArrowRight: () => unfold(true),
  ArrowLeft: () => unfold(false),
  Enter: () => active.view.selected?.kind === "group" && active.toggle(active.view.selected),
  Escape: () => select(active, null),
  e: () => active.openAll(true),
  c: () => active.openAll(false),
  f: () => active.view.fit(),
  "+": () => active.view.zoom(1.25),
  "-": () => active.view.zoom(0.8),
  "[": () => controls.step(-1),
  "]": () => controls.step(1),
  m: () => openTab("memory"),
  t: () => openTab("time"),
  o: () => openTab("operators"),
  b: () => foldDock(),
  d: switchTheme,
};

document.addEventListener("keydown", (event) => {
  const sliding = event.target.matches('input[type="range"]') && /^(Arrow|Page|Home|End)/.test(event.key);
  const typing = event.target.matches('input:not([type="range"]), select') || document.querySelector("dialog[open]");
  const pressing = event.target.matches("button, summary, [tabindex='0']:not(canvas)") && event.key === "Enter";
  if (typing || sliding || pressing || event.ctrlKey || event.metaKey || event.altKey || !active?.model) return;
  const act = KEYS[event.key] ?? KEYS[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  act();
});

start().catch((error) => {
  $("panes").replaceChildren(el("div", { class: "pane" }, el("div", { class: "problem", role: "alert" }, error.message)));
  document.body.setAttribute("aria-busy", "false");
  throw error;
});
