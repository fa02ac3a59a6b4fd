// The memory plan: buffers over program order, which tensors share them, and how much is in use.

import { $, el, nbytes, plural } from "./dom.js";
import { palette } from "./palette.js";

const CURVE = 46;
const GAP = 3;
const LEFT = 62;

export class MemoryPanel {
  /** events: {select(pane, node), tip(text, x, y)}. */
  constructor(events) {
    this.events = events;
    new ResizeObserver(() => this.draw()).observe($("memory"));
  }

  show(panes) {
    this.parts = panes.filter((pane) => pane.memory).map((pane) => {
      const canvas = el("canvas", { role: "img", "aria-label": `Memory plan of ${pane.info.name}` });
      const chart = { pane, canvas, boxes: [] };
      canvas.addEventListener("mousemove", (event) => this.#hover(chart, event));
      canvas.addEventListener("mouseleave", () => this.events.tip(null));
      canvas.addEventListener("click", (event) => {
        const box = boxAt(chart, event);
        if (box) this.events.select(pane, Math.max(0, box.tensor.first));
      });
      chart.element = el("div", { class: "memory" }, factsOf(pane, panes.length > 1), canvas);
      return chart;
    });
    $("memory").replaceChildren(...this.parts.map((chart) => chart.element));
    this.draw();
  }

  draw() {
    if ($("memory").hidden || this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      for (const chart of this.parts ?? []) drawChart(chart, this.parts.length);
    });
  }

  #hover(chart, event) {
    const box = boxAt(chart, event);
    if (!box) return this.events.tip(null);
    const { tensor } = box;
    const sharing = chart.pane.memory.tensors.filter((other) => other.buffer === tensor.buffer).length - 1;
    const used = liveBytes(chart.pane, tensor);
    const from = tensor.first < 0 ? "the start" : `node ${tensor.first}`;
    const to = tensor.last >= chart.pane.model.nodes.length ? "the end" : `node ${tensor.last}`;
    return this.events.tip(`${tensor.name}\n${nbytes(used)} live of ${nbytes(tensor.nbytes)}, from ${from} to ${to}\n`
      + `buffer ${tensor.buffer}, shared with ${plural(sharing, "other tensor")}`
      + (tensor.aliases.length > 1 ? `\n${plural(tensor.aliases.length - 1, "view")} of the same bytes` : ""), event.clientX, event.clientY);
  }
}

function factsOf(pane, named) {
  const { memory } = pane;
  const fact = (name, value) => el("span", {}, `${name} `, el("b", {}, value));
  return el("div", { class: "facts" }, named ? el("b", {}, pane.info.name) : null,
    fact("activations", `${nbytes(memory.activations)} in ${plural(memory.buffers.length, "buffer")}`),
    fact("most in use at once", nbytes(Math.max(0, ...memory.needed))),
    fact("without sharing", nbytes(memory.unshared)),
    fact("state", nbytes(memory.state)),
    fact("constants", nbytes(memory.constants)));
}

function liveBytes(pane, tensor) {
  const { values } = pane.model.graph;
  const sizes = tensor.aliases.map((id) => (pane.live.values[id] ?? []).reduce((a, b) => a * b, 1) * values[id].itemsize);
  return sizes.length ? Math.min(tensor.nbytes, Math.max(...sizes)) : tensor.nbytes;
}

/** Rows have heights by the square root of their bytes, so that small buffers can be seen, too. */
function rowsOf(memory, height) {
  const roots = memory.buffers.map(Math.sqrt);
  const total = roots.reduce((a, b) => a + b, 0) || 1;
  const room = height - CURVE - 18 - GAP * memory.buffers.length;
  let top = CURVE + 8;
  return roots.map((root) => {
    const row = { top, height: Math.max(3, (room * root) / total) };
    top += row.height + GAP;
    return row;
  });
}

function drawChart(chart, parts) {
  const { pane, canvas } = chart;
  const { memory } = pane;
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = Math.max(120, ($("memory").clientHeight - 20) / parts - 30);
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const c = canvas.getContext("2d");
  c.scale(ratio, ratio);
  const count = pane.model.nodes.length;
  const step = (width - LEFT - 8) / (count + 2);
  const x = (at) => LEFT + (at + 1) * step;
  const rows = rowsOf(memory, height);
  drawCurve(c, pane, x, step);
  c.font = "10.5px system-ui, sans-serif";
  c.textBaseline = "middle";
  memory.buffers.forEach((size, i) => {
    c.fillStyle = palette.sunk;
    c.fillRect(LEFT, rows[i].top, width - LEFT - 8, rows[i].height);
    c.fillStyle = palette.muted;
    if (rows[i].height >= 9) c.fillText(nbytes(size), 0, rows[i].top + rows[i].height / 2);
  });
  const chosen = pane.view.selected?.index;
  chart.boxes = memory.tensors.map((tensor) => {
    const row = rows[tensor.buffer];
    const box = { tensor, left: x(tensor.first), width: Math.max(1.5, (tensor.last - tensor.first + 1) * step - 0.6), ...row };
    const writer = pane.model.nodes[tensor.first];
    const colour = palette[writer ? writer.node.family : "port"];
    const most = memory.buffers[tensor.buffer];
    const full = row.height * Math.sqrt(tensor.nbytes / most);
    const live = row.height * Math.sqrt(liveBytes(pane, tensor) / most);
    c.fillStyle = colour;
    c.globalAlpha = 0.3;
    c.fillRect(box.left, row.top + row.height - full, box.width, full);
    c.globalAlpha = 1;
    c.fillRect(box.left, row.top + row.height - live, box.width, live);
    const isUsed = chosen !== undefined && tensor.first <= chosen && chosen <= tensor.last;
    c.strokeStyle = isUsed ? palette.glow : palette.muted;
    c.lineWidth = isUsed ? 1.5 : 0.7;
    c.globalAlpha = isUsed ? 1 : 0.6;
    c.strokeRect(box.left, row.top + row.height - full, box.width, full);
    c.globalAlpha = 1;
    return box;
  });
  if (chosen !== undefined) {
    c.fillStyle = palette.glow;
    c.fillRect(x(chosen) + step / 2 - 0.5, 0, 1.2, height - 8);
  }
}

function drawCurve(c, pane, x, step) {
  const { needed } = pane.memory;
  const peak = Math.max(...needed, 1);
  const y = (value) => CURVE - (CURVE - 12) * (value / peak);
  c.beginPath();
  c.moveTo(x(0), CURVE);
  needed.forEach((value, i) => { c.lineTo(x(i), y(value)); c.lineTo(x(i) + step, y(value)); });
  c.lineTo(x(needed.length), CURVE);
  c.fillStyle = palette.accent;
  c.globalAlpha = 0.25;
  c.fill();
  c.globalAlpha = 1;
  c.strokeStyle = palette.accent;
  c.lineWidth = 1.2;
  c.stroke();
  const at = needed.indexOf(peak);
  c.fillStyle = palette.text;
  c.font = "600 10.5px system-ui, sans-serif";
  c.textBaseline = "alphabetic";
  const label = `peak ${nbytes(peak)}`;
  c.fillText(label, Math.min(x(at) + 4, x(needed.length) - c.measureText(label).width), 10);
  c.fillStyle = palette.muted;
  c.font = "10.5px system-ui, sans-serif";
  c.fillText("in use", 0, CURVE - 4);
}

function boxAt(chart, event) {
  const [x, y] = [event.offsetX, event.offsetY];
  return chart.boxes.find((b) => x >= b.left && x <= b.left + b.width && y >= b.top && y <= b.top + b.height) ?? null;
}
