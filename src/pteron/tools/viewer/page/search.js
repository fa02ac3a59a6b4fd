// Find a node by its operator, values, route, group or number.

import { $, el, shortName } from "./dom.js";

const MOST = 100;

export class Search {
  constructor(panes, go) {
    Object.assign(this, { panes, go, results: [], chosen: 0 });
    $("query").addEventListener("input", () => this.#find());
    $("query").addEventListener("keydown", (event) => this.#key(event));
    $("search").addEventListener("click", (event) => event.target === $("search") && $("search").close());
  }

  open() {
    $("query").value = "";
    this.#find();
    $("search").showModal();
  }

  #find() {
    const words = ($("query").value.toLowerCase().match(/"[^"]+"|[^\s"]+/g) ?? []).map((word) => word.replaceAll('"', ""));
    this.results = words.length ? this.panes().flatMap((pane) => matches(pane, words)).slice(0, MOST) : [];
    this.chosen = 0;
    $("found").replaceChildren(...this.results.map(({ pane, item }, number) => el("li", {
      role: "option", id: `found${number}`, "aria-selected": String(number === 0), onclick: () => this.#take(number),
    }, el("span", { class: `swatch ${item.node?.family ?? "other"}` }),
    el("span", {}, item.kind === "node" ? shortName(item.node.operator) : item.name),
    el("span", { class: "at" }, [item.kind === "node" ? `node ${item.index}` : item.kind, ...pane.model.path(item).slice(-1).map((g) => g.name), this.panes().length > 1 ? pane.info.name : null].filter(Boolean).join(" · ")))));
    $("query").setAttribute("aria-activedescendant", this.results.length ? "found0" : "");
  }

  #key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && this.results.length) {
      event.preventDefault();
      this.chosen = (this.chosen + by + this.results.length) % this.results.length;
      [...$("found").children].forEach((row, i) => row.setAttribute("aria-selected", String(i === this.chosen)));
      $("found").children[this.chosen].scrollIntoView({ block: "nearest" });
      $("query").setAttribute("aria-activedescendant", `found${this.chosen}`);
    } else if (event.key === "Enter" && this.results.length) {
      event.preventDefault();
      this.#take(this.chosen);
    }
  }

  #take(number) {
    const { pane, item } = this.results[number];
    $("search").close();
    this.go(pane, item);
  }
}

/** The items that have all words. A number is that of a node, a value or a block; nodes come first. */
function matches(pane, words) {
  if (!pane.model) return [];
  const { values } = pane.model.graph;
  const text = (item) => {
    if (item.kind !== "node") return `${item.kind} ${item.name}`.toLowerCase();
    const names = [...item.node.reads, ...item.node.writes].map((id) => values[id].name);
    const groups = pane.model.path(item).map((group) => group.name);
    return `#${item.index} ${item.node.operator} ${item.node.family} ${pane.live.routes[item.index]} ${groups.join(" ")} ${names.join(" ")}`.toLowerCase();
  };
  const has = (found, word) => (/^\d+$/.test(word) ? new RegExp(`(\\b|v)${word}\\b`).test(found) : found.includes(word));
  const named = (item) => words.some((word) => item.index === Number(word));
  return [...pane.model.items.values()]
    .filter((item) => { const found = text(item); return words.every((word) => has(found, word)); })
    .sort((a, b) => named(b) - named(a))
    .map((item) => ({ pane, item }));
}
