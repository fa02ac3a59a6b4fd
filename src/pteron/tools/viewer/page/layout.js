// What the layout worker needs to know of a graph, and its answer as boxes with absolute positions.

const CHARACTER = 7.1; // the width of a letter in a title, about
const NODE_HEIGHT = 42;
const SLIM_HEIGHT = 22;
const GROUP_HEIGHT = 50;

export class Layout {
  #worker = new Worker("/layout_worker.js", { type: "module" });
  #number = 0;

  /** Place the items of a model. `open` has the ids of the open groups; `texts` gives the lines of an item. */
  async place(model, open, texts) {
    const number = ++this.#number;
    const root = described(model, model.root, open, texts);
    const placed = await new Promise((resolve) => {
      const heard = ({ data }) => {
        if (data.number !== number) return;
        this.#worker.removeEventListener("message", heard);
        resolve(data.placed);
      };
      this.#worker.addEventListener("message", heard);
      this.#worker.postMessage({ number, root });
    });
    return number === this.#number ? flattened(model, placed) : null; // null: a later call has come
  }

  close() { this.#worker.terminate(); }
}

function described(model, group, open, texts) {
  const children = group.children.map((item) => (item.kind === "group" && open.has(item.id)
    ? described(model, item, open, texts) : { id: item.id, ...sizeOf(item, texts) }));
  const inside = children.map((child) => child.key ?? "").join("");
  return {
    id: group.id,
    key: `${model.serial} ${group.id}(${inside})`,
    title: texts(group)[0].length * CHARACTER + 60,
    children,
    edges: group.edges.map(({ from, to }) => [from.id, to.id]),
    entries: [...(group.entries ?? [])],
    exits: [...(group.exits ?? [])],
  };
}

function sizeOf(item, texts) {
  const [title, below] = texts(item);
  const badge = item.kind === "node" && item.node.fused > 1 ? 30 : 0;
  const w = Math.round(Math.max(title.length * CHARACTER + badge, (below ?? "").length * 6.2) + 28);
  if (item.kind === "group") return { w: w + 26, h: GROUP_HEIGHT };
  return { w, h: item.kind === "node" && item.node.free ? SLIM_HEIGHT : NODE_HEIGHT };
}

/** Boxes in drawing order (a group before its items), and edges, all with absolute positions. */
function flattened(model, placed) {
  const boxes = [];
  const edges = [];
  const visit = (group, left, top, depth) => {
    for (const edge of group.edges) {
      edges.push({ ...edge, points: edge.points.map(([x, y]) => [x + left, y + top]) });
    }
    for (const box of group.boxes) {
      const shown = { item: model.items.get(box.id), x: box.x + left, y: box.y + top, w: box.w, h: box.h, depth, open: Boolean(box.inner) };
      boxes.push(shown);
      if (box.inner) visit(box.inner, shown.x + (box.w - box.inner.w) / 2, shown.y, depth + 1);
    }
  };
  visit(placed, 0, 0, 0);
  return { w: placed.w, h: placed.h, boxes, edges, byId: new Map(boxes.map((box) => [box.item.id, box])) };
}
