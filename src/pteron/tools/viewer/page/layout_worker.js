// Places the items of every open group, in a thread of its own: layouts of large graphs take seconds.

import { Graph, layout } from "/dagre.js";

const HEADER = 30;
const PADDING = 14;
const SHORTEST_ROW = 6;
const MOST_FOR_DAGRE = 200;
const ROW_GAP = 26;
const COLUMN_GAP = 32;
const kept = new Map(); // a group with the same open groups inside has the same layout

/** group: {id, key, title, children: [{id, w, h} or a group], edges: [[from, to]], entries: [id], exits: [id]}. */
function place(group, isRoot) {
  const known = kept.get(group.key);
  if (known) return known;
  const boxes = group.children.map((child) => {
    if (!child.children) return child;
    const inner = place(child, false);
    return { id: child.id, w: Math.max(inner.w, child.title), h: inner.h, inner };
  });
  const column = asColumns(group, boxes);
  if (column) {
    kept.set(group.key, column);
    return column;
  }
  const graph = new Graph({ directed: true, multigraph: false });
  graph.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 30, edgesep: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const box of boxes) graph.setNode(box.id, { width: box.w, height: box.h });
  for (const [from, to] of group.edges) graph.setEdge(from, to, {});
  const ends = [["entry", group.entries, true], ["exit", group.exits, false]];
  for (const [name, ids, isEntry] of ends) {
    if (!ids.length) continue;
    graph.setNode(name, { width: 1, height: 1 });
    for (const id of ids) {
      if (isEntry) graph.setEdge(name, id, {});
      else graph.setEdge(id, name, {});
    }
  }
  layout(graph);
  const paths = graph.edges().map(({ v, w }) => ({ from: v, to: w, points: graph.edge(v, w).points.map(({ x, y }) => [x, y]) }));
  const places = boxes.map((box) => ({ ...box, ...graph.node(box.id) }));
  const xs = [...places.flatMap(({ x, w }) => [x - w / 2, x + w / 2]), ...paths.flatMap(({ points }) => points.map(([x]) => x))];
  const first = xs.reduce((a, b) => Math.min(a, b), 0); // edges may bend beyond the outermost items
  const last = xs.reduce((a, b) => Math.max(a, b), 0);
  const [left, top] = isRoot ? [-first, 0] : [PADDING - first, HEADER];
  const result = {
    id: group.id,
    w: last - first + (isRoot ? 0 : 2 * PADDING),
    h: graph.graph().height + top + (isRoot ? 0 : PADDING),
    boxes: places.map(({ id, x, y, w, h, inner }) => ({ id, x: x - w / 2 + left, y: y - h / 2 + top, w, h, inner })),
    edges: paths.map((path) => ({ ...path, points: path.points.map(([x, y]) => [x + left, y + top]) })),
  };
  kept.set(group.key, result);
  return result;
}

/**
 * Blocks in a row, side by side in columns: a tower of thirty layers would fit no window.
 * So are the items of a very large group, in program order: dagre would take too long.
 */
function asColumns(group, boxes) {
  const place = new Map(boxes.map((box, i) => [box.id, i]));
  const isRow = group.edges.every(([from, to]) => place.get(to) === place.get(from) + 1) && group.edges.length >= boxes.length - 1;
  const isLarge = boxes.length > MOST_FOR_DAGRE;
  if (!isLarge && (!isRow || boxes.length < SHORTEST_ROW)) return null;
  const height = boxes.reduce((sum, box) => sum + box.h + ROW_GAP, 0);
  const widest = boxes.reduce((most, box) => Math.max(most, box.w), 0);
  const count = Math.max(1, Math.min(isLarge ? 40 : 8, Math.round(Math.sqrt((1.5 * height) / widest))));
  const placed = [];
  const edges = [];
  let [left, top, columnWidth, bottom] = [PADDING, HEADER + ROW_GAP, 0, 0];
  let column = [];
  const finish = () => {
    for (const box of column) box.x += (columnWidth - box.w) / 2;
    left += columnWidth + COLUMN_GAP;
    column = [];
  };
  for (const box of boxes) {
    if (column.length && top + box.h / 2 > (1.08 * height) / count + HEADER) {
      finish();
      [top, columnWidth] = [HEADER + ROW_GAP, 0];
    }
    const shown = { ...box, x: left, y: top };
    column.push(shown);
    placed.push(shown);
    columnWidth = Math.max(columnWidth, box.w);
    top += box.h + ROW_GAP;
    bottom = Math.max(bottom, top);
  }
  finish();
  const middle = (box) => box.x + box.w / 2;
  for (const [from, to] of group.edges) {
    const [box, next] = [placed[place.get(from)], placed[place.get(to)]];
    const down = [middle(box), box.y + box.h];
    const goal = [middle(next), next.y];
    const gap = next.x - COLUMN_GAP / 2;
    const points = next.y > box.y || place.get(to) !== place.get(from) + 1 ? [down, goal]
      : [down, [down[0], down[1] + 14], [gap, down[1] + 14], [gap, next.y - 14], [goal[0], next.y - 14], goal];
    edges.push({ from, to, points, square: true });
  }
  if (group.entries.length) edges.push({ from: "entry", to: placed[0].id, points: [[middle(placed[0]), HEADER], [middle(placed[0]), placed[0].y]] });
  return { id: group.id, w: left - COLUMN_GAP + PADDING, h: bottom - ROW_GAP + PADDING + 4, boxes: placed, edges };
}

onmessage = ({ data: { number, root } }) => postMessage({ number, placed: place(root, true) });
