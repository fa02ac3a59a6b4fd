// The graph as a tree of groups. Every edge belongs to the innermost group that contains both of its ends.

const MOST_READERS = 6; // a value with more readers in one group, such as a mask, is drawn only when selected

let models = 0;

export class GraphModel {
  constructor(graph) {
    this.graph = graph;
    this.serial = ++models;
    this.root = { id: "root", kind: "group", name: graph.name, parent: null, children: [], depth: 0 };
    this.items = new Map();
    this.groups = graph.groups.map((group, index) => this.#add({ id: `g${index}`, kind: "group", name: group.name, children: [] },
      group.parent === null ? this.root : this.items.get(`g${group.parent}`)));
    graph.inputs.forEach((port, index) => port.value !== null
      && this.#add({ id: `i${index}`, kind: "input", name: port.name, port }, this.root));
    this.nodes = graph.nodes.map((node, index) => this.#add({ id: `n${index}`, kind: "node", index, node },
      node.group === null ? this.root : this.groups[node.group]));
    graph.outputs.forEach((port, index) => port.value !== null
      && this.#add({ id: `o${index}`, kind: "output", name: port.name, port }, this.root));
    this.#connect();
    this.#summarise(this.root);
  }

  #add(item, parent) {
    Object.assign(item, { parent, depth: parent.depth + 1, into: [], from: [] });
    parent.children.push(item);
    this.items.set(item.id, item);
    return item;
  }

  item(end) { return this.items.get(typeof end === "number" ? `n${end}` : end); }

  /** All groups around an item, the outermost first. */
  path(item) {
    const groups = [];
    for (let group = item.parent; group && group !== this.root; group = group.parent) groups.unshift(group);
    return groups;
  }

  #connect() {
    const levels = new Map([this.root, ...this.groups].map((group) => [group, new Map()]));
    for (const [source, target, value] of this.graph.edges) {
      let [from, to] = [this.item(source), this.item(target)];
      from.into.push({ item: to, value });
      to.from.push({ item: from, value });
      if (this.graph.values[value].kind === "integer") continue;
      const outside = [];
      while (from.depth > to.depth) { outside.push([from, "exits"]); from = from.parent; }
      while (to.depth > from.depth) { outside.push([to, "entries"]); to = to.parent; }
      while (from.parent !== to.parent) {
        outside.push([from, "exits"], [to, "entries"]);
        from = from.parent;
        to = to.parent;
      }
      for (const [item, end] of outside) {
        item.parent[end] ??= new Set();
        item.parent[end].add(item.id);
      }
      const edges = levels.get(from.parent);
      const key = `${from.id} ${to.id}`;
      if (!edges.has(key)) edges.set(key, { from, to, values: [] });
      edges.get(key).values.push(value);
    }
    for (const [group, edges] of levels) group.edges = withoutHubs([...edges.values()]);
  }

  #summarise(group) {
    group.count = 0;
    group.families = new Map();
    group.first = Infinity;
    for (const child of group.children) {
      if (child.kind === "group") this.#summarise(child);
      group.count += child.kind === "group" ? child.count : child.kind === "node" ? 1 : 0;
      group.first = Math.min(group.first, child.kind === "group" ? child.first : child.index ?? Infinity);
      const families = child.kind === "group" ? child.families : new Map(child.node && !child.node.free ? [[child.node.family, 1]] : []);
      for (const [family, count] of families) group.families.set(family, (group.families.get(family) ?? 0) + count);
    }
  }

  /** The nodes of an item, also of the groups in it. */
  *nodesOf(item) {
    if (item.kind === "node") yield item;
    for (const child of item.children ?? []) yield* this.nodesOf(child);
  }
}

function withoutHubs(edges) {
  const readers = new Map();
  for (const { to, values } of edges) {
    for (const value of values) readers.set(value, (readers.get(value) ?? new Set()).add(to));
  }
  return edges.filter(({ values }) => values.some((value) => readers.get(value).size <= MOST_READERS));
}
