// One file in the page: its graph, what is known of it at the current sizes, and its drawing.

import { el, plural, shapeText, shortName, milliseconds } from "./dom.js";
import { GraphModel } from "./graph_model.js";
import { GraphView } from "./graph_view.js";
import { Layout } from "./layout.js";
import { heat, matchesDark, palette } from "./palette.js";
import { ask } from "./questions.js";

const MOST_BOXES = 80; // that are shown at the start

export class Pane {
  constructor(file, info, events) {
    Object.assign(this, { file, info, events, method: null, model: null, live: null, memory: null, values: null });
    this.byTime = false;
    this.open = new Set();
    this.layout = new Layout();
    this.canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": `Graph of ${info.name}: arrow keys move the selection` });
    this.caption = el("p", { class: "caption" });
    this.element = el("div", { class: "pane" }, this.canvas, this.caption);
    const look = { texts: (item) => this.texts(item), colour: (item) => this.colour(item), badge: (item) => this.badge(item) };
    this.view = new GraphView(this.canvas, look, {
      select: (item) => events.select(this, item),
      toggle: (item) => this.toggle(item),
      hover: (item, x, y) => events.hover(this, item, x, y),
    });
  }

  question(rest = {}) { return { file: this.file, method: this.method, ...this.settings, sizes: this.mySizes(), ...rest }; }

  /** The sizes that this file has controls for. */
  mySizes() {
    const names = new Set(this.controls.map((control) => control.name));
    return Object.fromEntries(Object.entries(this.sizes).filter(([name]) => names.has(name)));
  }

  get controls() { return this.model?.graph.controls ?? []; }

  // -- loading -------------------------------------------------------------------------------------

  async load(method, settings, sizes) {
    Object.assign(this, { method, settings, sizes, model: null, live: null, memory: null, values: null });
    this.view.selected = null;
    this.view.show(null);
    const graph = await ask("graph", this.question());
    this.model = new GraphModel(graph);
    [this.live, this.memory] = await Promise.all([ask("live", this.question()), ask("memory", this.question())]);
    this.open = this.#openAtFirst();
    await this.arrange();
    this.view.begin();
  }

  /** Outer groups are opened first, as long as the graph stays small, and the first of equal blocks. */
  #openAtFirst() {
    const open = new Set();
    let shown = this.model.root.children.length;
    for (const group of this.model.groups) {
      const isFirst = group.parent.children.find((child) => child.kind === "group") === group;
      const reachable = group.parent === this.model.root || open.has(group.parent.id);
      const grown = shown + group.children.length - 1;
      if (reachable && grown <= MOST_BOXES && (isFirst || group.parent === this.model.root)) {
        open.add(group.id);
        shown = grown;
      }
    }
    return open;
  }

  /** The live shapes at other sizes. Returns the nodes that changed: [item, whether its route changed]. */
  async move(sizes) {
    const before = this.live;
    this.sizes = sizes;
    this.live = await ask("live", this.question());
    const differs = (a, b) => JSON.stringify(a) !== JSON.stringify(b);
    const changed = [];
    const counts = { shapes: 0, grids: 0, routes: new Map() };
    for (const item of this.model.nodes) {
      const { index, node } = item;
      const route = before.routes[index] !== this.live.routes[index];
      const grid = differs(before.grids[index], this.live.grids[index]);
      const shape = node.writes.some((value) => differs(before.values[value], this.live.values[value]));
      if (route) {
        const key = `${shortName(node.operator)}: ${before.routes[index]} → ${this.live.routes[index]}`;
        counts.routes.set(key, (counts.routes.get(key) ?? 0) + 1);
      }
      counts.shapes += shape;
      counts.grids += grid;
      if (route || grid || shape) changed.push([item, route]);
    }
    this.view.glow(changed);
    return counts;
  }

  // -- groups -----------------------------------------------------------------------------------------

  async arrange() {
    const placed = await this.layout.place(this.model, this.open, (item) => this.texts(item, true));
    if (placed) this.view.show(placed);
  }

  async toggle(group, open = !this.open.has(group.id)) {
    if (open) this.open.add(group.id);
    else this.open.delete(group.id);
    await this.view.holding(group, () => this.arrange());
    this.events.status(`${group.name} is ${open ? "open" : "folded"}`);
  }

  async openAll(open) {
    this.open = new Set(open ? this.model.groups.map((group) => group.id) : []);
    await this.arrange();
    this.view.begin();
    this.events.status(`All groups are ${open ? "open" : "folded"}`);
  }

  async reveal(item) {
    const closed = this.model.path(item).filter((group) => !this.open.has(group.id));
    for (const group of closed) this.open.add(group.id);
    if (closed.length) await this.arrange();
    this.view.reveal(item);
  }

  // -- how items look -----------------------------------------------------------------------------------

  shapeOf(value, largest = false) {
    const { kind, shape } = this.model.graph.values[value];
    if (kind === "integer") return largest ? "= 0000" : `= ${this.live?.values[value] ?? "?"}`;
    return shapeText(largest ? shape : this.live?.values[value] ?? shape);
  }

  /** The title of an item and the line below it. `largest`: at the largest shape, for the layout. */
  texts(item, largest = false) {
    if (item.kind === "group") return [item.name, this.byTime && this.times && !largest ? `${milliseconds(this.secondsOf(item))} ms` : groupText(item)];
    if (item.kind !== "node") return [item.name, `${item.port.dtype} ${this.shapeOf(item.port.value, largest)}`];
    const { node } = item;
    const result = node.writes.length ? this.shapeOf(node.writes[0], largest) : "";
    const title = shortName(node.operator);
    if (node.free) return [`${title}  ${result}`];
    const more = node.writes.length > 1 ? ` +${node.writes.length - 1}` : "";
    const seconds = this.byTime && this.times && !largest ? this.times.seconds.get(item.index) : undefined;
    return [title, seconds === undefined ? `${result}${more}` : `${milliseconds(seconds)} ms`];
  }

  badge(item) {
    if (item.kind === "node" && item.node.fused > 1) return `⊕${item.node.fused}`;
    return item.kind === "group" ? String(item.count) : "";
  }

  colour(item) {
    if (this.byTime && this.times && (item.kind === "group" || (item.kind === "node" && !item.node.free))) {
      const share = this.secondsOf(item) / (item.kind === "group" ? this.times.total : this.times.largest);
      return { fill: heat(share || 0), edge: palette.line, ink: palette.text };
    }
    if (item.kind === "group") return { fill: palette.raised, edge: palette.line, ink: palette.text };
    if (item.kind !== "node") return { fill: palette.port, edge: palette.port, ink: matchesDark() ? "#101316" : "#ffffff" };
    const base = palette[item.node.family];
    if (item.node.free) return { fill: palette.page, edge: palette.line, ink: palette.muted };
    return { fill: base, edge: palette.line, ink: palette.text };
  }

  // -- time -----------------------------------------------------------------------------------------------

  /** Show the times of a profile as heat. */
  useProfile(profile) {
    const seconds = new Map((profile?.nodes ?? []).filter((n) => n.seconds !== null).map((n) => [n.index, n.seconds]));
    const all = [...seconds.values()];
    this.times = all.length ? { seconds, largest: Math.max(...all), total: all.reduce((a, b) => a + b, 0) } : null;
    this.view.draw();
  }

  secondsOf(item) {
    let total = 0;
    for (const { index } of this.model.nodesOf(item)) total += this.times?.seconds.get(index) ?? 0;
    return total;
  }

  close() { this.layout.close(); }
}

function groupText(group) {
  const named = [...group.families].sort((a, b) => b[1] - a[1]).slice(0, 3);
  return named.map(([family, count]) => `${count} ${family}`).join(" · ") || plural(group.count, "node");
}
