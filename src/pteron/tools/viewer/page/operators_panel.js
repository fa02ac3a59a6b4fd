// How often each operator occurs, and by which routes, in one file or in two.

import { $, el, shortName, table } from "./dom.js";

export function showOperators(panes) {
  const counts = panes.map((pane) => {
    const found = new Map();
    for (const { index, node } of pane.model?.nodes ?? []) {
      const entry = found.get(shortName(node.operator)) ?? { count: 0, routes: new Map(), family: node.family };
      entry.count += 1;
      const route = pane.live.routes[index] || (node.free ? "free" : "");
      if (route && route !== "only") entry.routes.set(route, (entry.routes.get(route) ?? 0) + 1);
      found.set(shortName(node.operator), entry);
    }
    return found;
  });
  const names = [...new Set(counts.flatMap((found) => [...found.keys()]))]
    .sort((a, b) => (counts[0].get(b)?.count ?? 0) - (counts[0].get(a)?.count ?? 0));
  const rows = names.map((name) => el("tr", {},
    el("td", {}, el("span", { class: `swatch ${counts.find((found) => found.has(name)).get(name).family}` }), ` ${name}`),
    ...counts.flatMap((found) => {
      const entry = found.get(name);
      const routes = [...(entry?.routes ?? [])].map(([route, count]) => (count > 1 ? `${route} ×${count}` : route)).join(", ");
      return [el("td", { class: "number" }, String(entry?.count ?? 0)), el("td", {}, routes)];
    })));
  $("operators").replaceChildren(table(["operator", ...panes.flatMap((pane) => [panes.length > 1 ? pane.info.name : "nodes", "routes"])], rows));
}
