// A slider for every size and integer that a call may choose.

import { $, el, plural } from "./dom.js";

export class Controls {
  constructor(changed) {
    this.changed = changed;
    this.sizes = {};
    this.inputs = new Map(); // name -> [slider, field, range]
  }

  /** The controls of all files. A control that two files have moves both. */
  show(controls) {
    const known = new Map();
    for (const control of controls) {
      const other = known.get(control.name);
      known.set(control.name, other ? { ...other, high: Math.max(other.high, control.high) } : control);
    }
    this.inputs.clear();
    const kept = this.sizes;
    this.sizes = {};
    const rows = [...known.values()].map((control, number) => {
      const value = Math.max(control.low, Math.min(control.high, kept[control.name] ?? control.value));
      this.sizes[control.name] = value;
      const limits = { min: control.low, max: control.high, step: control.step, value };
      const slider = el("input", { type: "range", id: `size${number}`, ...limits, oninput: () => this.set(control.name, slider.valueAsNumber) });
      const field = el("input", { type: "number", ...limits, "aria-label": `${control.name}, as a number`,
        onchange: () => this.set(control.name, field.valueAsNumber) });
      const range = el("div", { class: "range", "aria-hidden": "true" });
      this.inputs.set(control.name, [slider, field, range]);
      showRange(range, control.low, control.high, control.size);
      return el("div", { class: "control" }, el("label", { for: `size${number}` }, control.name), field, slider, range);
    });
    $("controls").replaceChildren(...(rows.length ? rows : [el("p", { class: "note" }, "Every size of this method is fixed.")]));
  }

  set(name, wanted) {
    const [slider, field] = this.inputs.get(name);
    const value = Math.max(Number(slider.min), Math.min(Number(slider.max), Math.round(wanted) || 0));
    slider.value = field.value = value;
    this.sizes = { ...this.sizes, [name]: value };
    this.changed();
  }

  step(by) {
    const [name] = this.inputs.keys();
    if (name !== undefined) this.set(name, this.sizes[name] + by);
  }

  /** Integers have other ranges at other sizes: a position and a length share a cache. */
  limit(ranges) {
    for (const [name, [low, high]] of Object.entries(ranges)) {
      const [slider, field, range] = this.inputs.get(name) ?? [];
      if (!slider || (Number(slider.min) === low && Number(slider.max) === high)) continue;
      slider.min = field.min = low;
      slider.max = field.max = Math.max(high, this.sizes[name]);
      slider.value = this.sizes[name];
      showRange(range, low, high);
    }
  }
}

function showRange(element, low, high) {
  element.replaceChildren(el("span", {}, String(low)), el("span", {}, String(high)));
}

/** What the last move of a slider changed. */
export function showChanges(counts) {
  const routes = [...counts.routes].sort((a, b) => b[1] - a[1]);
  const total = routes.reduce((sum, [, count]) => sum + count, 0);
  $("changes").replaceChildren(
    el("p", { class: "note" }, `Changed: ${plural(counts.shapes, "shape")}, ${plural(counts.grids, "grid")}, ${plural(total, "route")}`),
    el("ul", {}, routes.map(([text, count]) => el("li", {}, count > 1 ? `${text} (${count} nodes)` : text))));
}
