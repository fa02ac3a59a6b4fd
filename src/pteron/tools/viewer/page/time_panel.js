// Profiles as a table: one, or two side by side.

import { $, amount, el, milliseconds, nbytes, plural, shortName, table } from "./dom.js";

export class TimePanel {
  /** events: {select(pane, node), shown(pane, profile)}. */
  constructor(events) {
    Object.assign(this, { events, taken: [], chosen: [null, null], by: "operator" });
  }

  clear() {
    this.taken = [];
    this.chosen = [null, null];
    this.show();
  }

  add(pane, profile) {
    const sizes = Object.entries(profile.sizes).map(([name, size]) => `${name}=${size}`).join(", ");
    const entry = { pane, profile, name: `${this.taken.length + 1}: ${pane.info.name}${sizes ? ` at ${sizes}` : ""}` };
    const other = this.chosen[1] ?? this.chosen[0];
    this.taken.push(entry);
    this.chosen = other ? [other, entry] : [entry, null];
    this.events.shown(pane, profile);
    this.show();
  }

  show() {
    const [first, second] = this.chosen;
    if (!first) {
      return $("time").replaceChildren(el("p", { class: "note" },
        "No profile yet. “Profile” at the left runs the method on this device at the live sizes. Two profiles, or those of two files, are shown side by side."));
    }
    const pick = (place) => el("select", {
      "aria-label": place ? "Second profile" : "First profile",
      onchange: (event) => {
        this.chosen[place] = this.taken[Number(event.target.value)] ?? null;
        if (this.chosen[place]) this.events.shown(this.chosen[place].pane, this.chosen[place].profile);
        this.show();
      },
    }, place ? el("option", { value: -1 }, "none") : null,
    this.taken.map((entry, i) => el("option", { value: i, selected: entry === this.chosen[place] }, entry.name)));
    const by = (what) => el("button", { type: "button", "aria-pressed": String(this.by === what), onclick: () => { this.by = what; this.show(); } }, `by ${what}`);
    const bar = el("div", { class: "toolbar" }, el("div", { class: "segments", role: "group", "aria-label": "Rows" }, by("operator"), by("node")), pick(0), "and", pick(1), summary(first), second ? summary(second) : null);
    const rows = this.by === "operator" ? operatorRows(first, second) : this.#nodeRows(first, second);
    const head = [this.by === "operator" ? "operator" : "node", this.by === "operator" ? "nodes" : "route", ...columns(second)];
    return $("time").replaceChildren(bar, table(head.map((text) => text), rows));
  }

  #nodeRows(first, second) {
    const other = new Map((second?.profile.nodes ?? []).map((node) => [node.index, node]));
    const total = first.profile.gpu;
    const same = second?.pane === first.pane;
    return [...first.profile.nodes].sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0)).slice(0, 300).map((node) => {
      const operator = first.pane.model.nodes[node.index].node.operator;
      const open = () => this.events.select(first.pane, node.index);
      return el("tr", { class: "link", tabindex: 0, onclick: open, onkeydown: (event) => event.key === "Enter" && open() },
        el("td", {}, `${node.index}  ${shortName(operator)}`), el("td", {}, node.route),
        ...cells(node, total, second ? (same ? other.get(node.index) : null) : undefined));
    });
  }
}

const columns = (second) => (second ? ["ms", "ms, second", "ratio", ""] : ["ms", "share", "bytes", "rate"]);

function cells(node, total, other) {
  const share = node.seconds && total ? node.seconds / total : 0;
  const bar = el("i", {});
  bar.style.width = `${Math.max(1, 100 * share)}%`;
  if (other !== undefined) {
    const ratio = node.seconds && other?.seconds ? other.seconds / node.seconds : null;
    return [el("td", { class: "number" }, milliseconds(node.seconds)), el("td", { class: "number" }, milliseconds(other?.seconds)),
      el("td", { class: "number" }, ratio ? `×${ratio.toFixed(2)}` : ""), el("td", { class: "share" }, bar)];
  }
  const rate = node.seconds ? (node.flops ? `${amount(node.flops / node.seconds)}FLOP/s` : `${nbytes(node.nbytes / node.seconds)}/s`) : "";
  return [el("td", { class: "number" }, milliseconds(node.seconds)),
    el("td", { class: "share", title: `${(100 * share).toFixed(1)}%` }, bar), el("td", { class: "number" }, nbytes(node.nbytes)), el("td", { class: "number" }, rate)];
}

function operatorRows(first, second) {
  const sums = grouped(first);
  const others = second ? grouped(second) : null;
  const names = [...new Set([...sums.keys(), ...(others?.keys() ?? [])])];
  const none = { seconds: null, nbytes: 0, flops: 0, count: 0 };
  return names.map((name) => [name, sums.get(name) ?? none, others ? others.get(name) ?? none : undefined])
    .sort((a, b) => (b[1].seconds ?? 0) - (a[1].seconds ?? 0))
    .map(([name, sum, other]) => el("tr", {}, el("td", {}, name),
      el("td", { class: "number" }, other && other.count !== sum.count ? `${sum.count} / ${other.count}` : String(sum.count)), ...cells(sum, first.profile.gpu, other)));
}

function grouped({ pane, profile }) {
  const sums = new Map();
  for (const node of profile.nodes) {
    const name = shortName(pane.model.nodes[node.index].node.operator);
    const sum = sums.get(name) ?? { seconds: 0, nbytes: 0, flops: 0, count: 0 };
    sum.seconds = sum.seconds === null || node.seconds === null ? null : sum.seconds + node.seconds;
    sum.nbytes += node.nbytes;
    sum.flops += node.flops ?? 0;
    sum.count += 1;
    sums.set(name, sum);
  }
  return sums;
}

function summary({ profile }) {
  const kernels = profile.gpu === null ? "this adapter has no timestamps" : `${milliseconds(profile.gpu)} ms in kernels`;
  return el("span", {}, el("b", {}, `${milliseconds(profile.wall)} ms a call`), `, ${kernels}, ${profile.device}, ${plural(profile.calls, "call")}`);
}
