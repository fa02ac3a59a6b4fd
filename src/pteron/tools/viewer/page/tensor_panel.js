// The values of a tensor: statistics, a histogram, and a slice as a picture.

import { el, number, plural } from "./dom.js";
import { diverging, palette } from "./palette.js";
import { Refused } from "./questions.js";

const HEIGHT = 54;

/** `load({axes, at})` asks the server for the tensor. */
export function tensorPanel(load) {
  const element = el("div", { class: "tensor" }, el("p", { class: "note" }, "reading…"));
  const refresh = async (wanted = {}) => {
    try {
      const { statistics, slice } = await load(wanted);
      element.replaceChildren(...facts(statistics), ...plane(slice, statistics, refresh));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      element.replaceChildren(el("p", { class: "note" }, error.message));
    }
  };
  refresh();
  return element;
}

export function facts(found) {
  const bad = found.nan + found.infinite;
  const line = el("div", { class: "facts" },
    ...["min", "max", "mean", "deviation"].filter((name) => name in found)
      .map((name) => el("span", {}, `${name} `, el("b", {}, number(found[name])))),
    el("span", {}, "zero ", el("b", {}, `${((100 * found.zero) / Math.max(found.count, 1)).toFixed(1)}%`)),
    bad ? el("span", { class: "bad" }, `${plural(found.nan, "NaN")}, ${found.infinite} infinite`) : null);
  return found.histogram ? [line, histogram(found)] : [line];
}

function histogram({ histogram: counts, edges, count }) {
  const canvas = el("canvas", { height: HEIGHT, role: "img", "aria-label": `Histogram from ${number(edges[0])} to ${number(edges[1])}` });
  requestAnimationFrame(() => {
    const ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    canvas.width = width * ratio;
    canvas.height = HEIGHT * ratio;
    canvas.style.height = `${HEIGHT}px`;
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    const most = Math.max(...counts);
    const step = width / counts.length;
    c.fillStyle = palette.accent;
    counts.forEach((n, i) => {
      const height = n ? Math.max(1.5, (HEIGHT - 14) * (n / most) ** 0.5) : 0;
      c.fillRect(i * step + 0.5, HEIGHT - 12 - height, step - 1, height);
    });
    c.fillStyle = palette.muted;
    c.font = "10px system-ui, sans-serif";
    c.fillText(number(edges[0]), 0, HEIGHT - 1);
    const right = number(edges[1]);
    c.fillText(right, width - c.measureText(right).width, HEIGHT - 1);
  });
  canvas.title = `${count} values; the height is the square root of a count`;
  return canvas;
}

function plane(slice, statistics, refresh) {
  const [rows, columns] = slice.size;
  const bytes = Uint8Array.from(atob(slice.numbers), (character) => character.charCodeAt(0));
  const numbers = new Float32Array(bytes.buffer);
  const most = Math.max(Math.abs(statistics.min ?? 0), Math.abs(statistics.max ?? 0)) || 1;
  const canvas = el("canvas", { class: "plane", width: columns, height: rows, role: "img", "aria-label": "Slice of the tensor" });
  const c = canvas.getContext("2d");
  const image = c.createImageData(columns, rows);
  numbers.forEach((value, i) => {
    const [r, g, b] = Number.isFinite(value) ? diverging(value / most) : [255, 0, 255];
    image.data.set([r, g, b, 255], 4 * i);
  });
  c.putImageData(image, 0, 0);
  canvas.style.height = `${Math.max(14, Math.min(240, (340 * rows) / columns))}px`;
  const under = el("p", { class: "note" }, `rows: dimension ${slice.axes[0]}, columns: dimension ${slice.axes[1]}`
    + (Math.max(...slice.step) > 1 ? `; shown: one of ${slice.step[0]} rows, one of ${slice.step[1]} columns` : ""));
  const normal = under.textContent;
  canvas.addEventListener("mousemove", (event) => {
    const row = Math.min(rows - 1, Math.floor((event.offsetY / canvas.clientHeight) * rows));
    const column = Math.min(columns - 1, Math.floor((event.offsetX / canvas.clientWidth) * columns));
    const at = [...slice.at];
    at[slice.axes[0]] = row * slice.step[0];
    at[slice.axes[1]] = column * slice.step[1];
    under.textContent = `[${at.join(", ")}] = ${number(numbers[row * columns + column])}`;
  });
  canvas.addEventListener("mouseleave", () => { under.textContent = normal; });
  return [canvas, under, axes(slice, refresh)];
}

function axes(slice, refresh) {
  const long = slice.shape.map((_, d) => d);
  if (long.length <= 2) return "";
  const choice = (place, label) => el("label", {}, `${label} `, el("select", {
    onchange: (event) => {
      const wanted = [...slice.axes];
      wanted[place] = Number(event.target.value);
      if (wanted[0] === wanted[1]) wanted[1 - place] = slice.axes[place];
      refresh({ axes: wanted, at: slice.at });
    },
  }, long.map((d) => el("option", { value: d, selected: slice.axes[place] === d }, String(d)))));
  const index = (d) => el("label", {}, `index of ${d} `, el("input", {
    type: "number", min: 0, max: slice.shape[d] - 1, value: slice.at[d],
    onchange: (event) => {
      const at = [...slice.at];
      at[d] = Math.max(0, Math.min(slice.shape[d] - 1, event.target.valueAsNumber || 0));
      refresh({ axes: slice.axes, at });
    },
  }));
  const others = long.filter((d) => !slice.axes.includes(d) && slice.shape[d] > 1);
  return el("div", { class: "axes" }, choice(0, "rows"), choice(1, "columns"), others.map(index));
}
