// The page of a program: its inputs, with a slider for each live size, and its outputs.

import { load } from "./pteron/pteron.js";
import "./theme.js";

const $ = (id) => document.getElementById(id);
const SHOWN = 256;  // elements of an output that are shown as numbers
let program, at;  // the program, and the current live point

function node(name, content = [], attributes = {}) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const count = (shape) => shape.reduce((product, size) => product * size, 1);
const isFloat = (dtype) => /float/.test(dtype);

// -- inputs -------------------------------------------------------------------------------------------

const FILLS = {
  random: (n, dtype) => Array.from({ length: n }, () => isFloat(dtype) ? 2 * Math.random() - 1 : Math.floor(2 * Math.random())),
  zeros: (n) => new Array(n).fill(0),
  ones: (n) => new Array(n).fill(1),
  ramp: (n, dtype) => Array.from({ length: n }, (_, i) => isFloat(dtype) ? i / Math.max(1, n - 1) : i),
};

/** The dynamic dimensions in the order of a point: {input, dim}. */
const shapeOf = (input) => program.shapes(at)[input.name];

function showSizes() {
  program.sizes.forEach((_, place) => {
    $(`size-${place}`).value = at[place];
    $(`size-${place}`).parentElement.querySelector("output").value = at[place];
  });
  program.inputs.forEach((input, i) => {
    const shape = $(`shape-${i}`);
    if (shape) shape.textContent = `${input.dtype} [${shapeOf(input).join(", ")}]`;
  });
}

/** A slider for a number that sizes follow from. Sizes that vary together have one. */
function slider({ name, low, high, step }, place) {
  const range = node("input", [], { id: `size-${place}`, type: "range", min: low, max: high, step, value: at[place] });
  range.addEventListener("input", () => { at[place] = Number(range.value); showSizes(); });
  return node("div", [node("label", name, { for: range.id }), node("output", [], { for: range.id }), range], { class: "range" });
}

function inputCard(input, i) {
  const card = node("section", [node("h3", input.name)], { class: "card" });
  if (!input.shape) {
    if (isInteger(input)) card.append(node("input", [], { id: `value-${i}`, type: "number", step: 1, value: 0, "aria-label": input.name }));
    else card.append(node("p", `always ${input.fixed}`, { class: "quiet" }));
    return card;
  }
  card.append(node("p", [], { id: `shape-${i}`, class: "quiet" }));
  const fill = node("select", [...Object.keys(FILLS), "numbers"].map((name) => node("option", name, { value: name })), { id: `fill-${i}`, "aria-label": `Values of ${input.name}` });
  const numbers = node("textarea", [], { id: `numbers-${i}`, rows: 3, hidden: "", "aria-label": `Numbers of ${input.name}`, placeholder: "1, 2, 3 …" });
  if (!isFloat(input.dtype)) fill.value = "zeros";
  fill.addEventListener("change", () => { numbers.hidden = fill.value !== "numbers"; });
  card.append(fill, numbers);
  return card;
}

/** Whether an input is an integer that may vary. */
function isInteger(input) {
  return !input.shape && input.dtype === "int" && input.fixed === undefined;
}

function given() {
  const inputs = {};
  program.inputs.forEach((input, i) => {
    if (!input.shape) { inputs[input.name] = isInteger(input) ? Number($(`value-${i}`).value) : input.fixed; return; }
    const shape = shapeOf(input), fill = $(`fill-${i}`).value;
    const data = fill === "numbers" ? ($(`numbers-${i}`).value.match(/[^\s,[\]]+/g) ?? []).map(Number) : FILLS[fill](count(shape), input.dtype);
    inputs[input.name] = { data: isFloat(input.dtype) ? Float32Array.from(data) : data, shape };
  });
  return inputs;
}

// -- outputs ------------------------------------------------------------------------------------------

function outputCard(name, value) {
  if (typeof value !== "object" || value === null) return node("section", [node("h3", name), node("p", String(value))], { class: "card" });
  const { data, shape } = value, card = node("section", [node("h3", name)], { class: "card" });
  let low = Infinity, high = -Infinity, sum = 0;
  for (const x of data) { low = Math.min(low, x); high = Math.max(high, x); sum += x; }
  const facts = data.length ? ` · from ${number(low)} to ${number(high)} · mean ${number(sum / data.length)}` : "";
  card.append(node("p", `[${shape.join(", ")}]${facts}`, { class: "quiet" }));
  if (data.length > 1) card.append(picture(data, shape, low, high, name));
  const numbers = Array.from(data.subarray(0, SHOWN), number).join(", ");
  card.append(node("details", [node("summary", "Numbers"), node("pre", data.length > SHOWN ? `${numbers}, …` : numbers)]));
  return card;
}

const number = (value) => Number.isInteger(value) ? String(value) : value.toPrecision(4);

/** The last dimension from left to right, the others from top to bottom. */
function picture(data, shape, low, high, name) {
  const width = Math.min(shape.at(-1) || 1, 512), height = Math.max(1, Math.min(Math.floor(data.length / (shape.at(-1) || 1)), 512));
  const canvas = node("canvas", [], { width, height, role: "img", "aria-label": `${name} as a picture` });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const share = (data[y * shape.at(-1) + x] - low) / (high - low || 1), place = 4 * (y * width + x);
      image.data.set([20 + 200 * share, 40 + 170 * share, 90 + 60 * (1 - share), 255], place);
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

async function run() {
  $("run").disabled = true;
  $("problem").textContent = "";
  try {
    const began = performance.now(), outputs = await program.run(given());
    $("time").textContent = `${(performance.now() - began).toFixed(1)} ms`;
    $("outputs").replaceChildren(...Object.entries(outputs).map(([name, value]) => outputCard(name, value)));
  } catch (error) { $("problem").textContent = error.message; }
  $("run").disabled = false;
}

// -- loading ------------------------------------------------------------------------------------------

async function start() {
  const facts = await (await fetch("site.json")).json();
  document.title = facts.name;
  $("model-name").textContent = facts.name;
  try {
    program = await load("model.json", { onProgress: ({ loaded, total }) => { $("loaded").value = loaded / total; } });
  } catch (error) {
    $("problem").textContent = error.message;
    return;
  } finally { $("loading").hidden = true; }
  at = program.sizes.map(({ high }) => high);
  const sizes = at.length ? [node("section", [node("h3", "Sizes"), ...program.sizes.map(slider)], { class: "card" })] : [];
  $("inputs").replaceChildren(...sizes, ...program.inputs.map(inputCard));
  showSizes();
  $("run").disabled = false;
  $("run").addEventListener("click", run);
}

navigator.serviceWorker?.register("service-worker.js").catch(() => {});  // without it, the site needs the network
start();
