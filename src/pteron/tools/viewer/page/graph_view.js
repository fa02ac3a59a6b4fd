// Draws a graph on a canvas. Only what is in the window is drawn, so large graphs stay fluent.

import { palette } from "./palette.js";

const FONT = '"Inter", system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "Noto Sans Mono", monospace';
const SMALLEST_TEXT = 0.42; // the scale below which texts are not drawn
const GLOW_MS = 1400;

export class GraphView {
  /** look: {texts(item), colour(item), badge(item)}; events: {select(item), toggle(item), hover(item, x, y)}. */
  constructor(canvas, look, events) {
    Object.assign(this, { canvas, look, events, scene: null, selected: null, hovered: null });
    this.context = canvas.getContext("2d");
    this.camera = { x: 0, y: 0, scale: 1 };
    this.glowing = new Map(); // item id -> {until, strong}
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    new ResizeObserver(() => this.draw()).observe(canvas);
    this.#listen();
  }

  show(scene) {
    this.scene = scene;
    this.draw();
  }

  // -- the camera ---------------------------------------------------------------------------------

  fit() {
    if (!this.scene) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = Math.min(1.1, (width - 40) / this.scene.w, (height - 40) / this.scene.h);
    this.#look(this.scene.w / 2, this.scene.h / 2, Math.max(scale, 0.02));
  }

  /** The beginning of the graph, at a scale at which texts can be read. */
  begin() {
    if (!this.scene) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = Math.max(0.55, Math.min(1, (width - 30) / this.scene.w));
    const x = this.scene.w * scale < width ? this.scene.w / 2 : width / 2 / scale - 12 / scale;
    this.#look(x, Math.min(this.scene.h, height / scale) / 2 - 16 / scale, scale);
  }

  /** Move so that an item can be seen, if it cannot. */
  reveal(item) {
    const box = this.boxOf(item);
    if (!box) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = Math.max(this.camera.scale, 0.5);
    const [x, y] = this.#toScreen(box.x + box.w / 2, box.y + Math.min(box.h, 40) / 2);
    const inside = x > 60 && x < width - 60 && y > 40 && y < height - 40;
    if (!inside || scale !== this.camera.scale) this.#look(box.x + box.w / 2, box.y + Math.min(box.h / 2, height / scale / 3), scale);
    this.draw();
  }

  /** Keep an item where it is on the screen while the graph around it changes. */
  async holding(item, change) {
    const before = item && this.boxOf(item);
    const at = before && this.#toScreen(before.x + before.w / 2, before.y);
    await change();
    const after = item && this.boxOf(item);
    if (!at || !after) return;
    this.camera.x = after.x + after.w / 2 - at[0] / this.camera.scale;
    this.camera.y = after.y - at[1] / this.camera.scale;
    this.draw();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const { camera } = this;
    const scale = Math.max(0.02, Math.min(3, camera.scale * factor));
    camera.x += x / camera.scale - x / scale;
    camera.y += y / camera.scale - y / scale;
    camera.scale = scale;
    this.draw();
  }

  pan(dx, dy) {
    this.camera.x -= dx / this.camera.scale;
    this.camera.y -= dy / this.camera.scale;
    this.draw();
  }

  /** The box of an item, or of the closed group that contains it. */
  boxOf(item) {
    for (let shown = item; shown; shown = shown.parent) {
      const box = this.scene?.byId.get(shown.id);
      if (box) return box;
    }
    return null;
  }

  #look(x, y, scale) {
    this.camera = { scale, x: x - this.canvas.clientWidth / 2 / scale, y: y - this.canvas.clientHeight / 2 / scale };
    this.draw();
  }

  #toScreen(x, y) { return [(x - this.camera.x) * this.camera.scale, (y - this.camera.y) * this.camera.scale]; }

  // -- light ----------------------------------------------------------------------------------------

  /** Light up items that have changed: strongly if their route is another one. */
  glow(items) {
    const until = performance.now() + GLOW_MS;
    for (const [item, strong] of items) {
      const box = this.boxOf(item);
      if (!box) continue;
      const known = this.glowing.get(box.item.id);
      this.glowing.set(box.item.id, { until, strong: strong || (known?.until === until && known.strong) });
    }
    this.draw();
  }

  // -- drawing --------------------------------------------------------------------------------------

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame((now) => {
      this.waiting = null;
      this.#draw(now);
    });
  }

  #draw(now) {
    const { canvas, context: c, camera, scene } = this;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    this.#dots(width, height);
    if (!scene) return;
    c.setTransform(ratio * camera.scale, 0, 0, ratio * camera.scale, -camera.x * camera.scale * ratio, -camera.y * camera.scale * ratio);
    const view = { left: camera.x, top: camera.y, right: camera.x + width / camera.scale, bottom: camera.y + height / camera.scale };
    const seen = scene.boxes.filter((b) => b.x < view.right && b.y < view.bottom && b.x + b.w > view.left && b.y + b.h > view.top);
    for (const box of seen) if (box.open) this.#openGroup(box, view);
    this.#edges(scene.edges, view);
    for (const box of seen) if (!box.open) this.#box(box, now);
    this.#links(view);
    this.drawn = seen.length; // for tests and measurements
    for (const [id, { until }] of this.glowing) if (until < now) this.glowing.delete(id);
    if (this.glowing.size && !this.still) this.draw();
  }

  #dots(width, height) {
    const { context: c, camera } = this;
    let step = 26 * camera.scale;
    while (step < 16) step *= 2;
    c.fillStyle = palette.line;
    c.globalAlpha = 0.55;
    const [left, top] = [(-camera.x * camera.scale) % step, (-camera.y * camera.scale) % step];
    for (let x = left; x < width; x += step) for (let y = top; y < height; y += step) c.fillRect(x, y, 1.3, 1.3);
    c.globalAlpha = 1;
  }

  #openGroup(box, view) {
    const { context: c } = this;
    rounded(c, box.x, box.y, box.w, box.h, 12);
    c.fillStyle = palette.group;
    c.globalAlpha = 0.5;
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = this.#isSelected(box) ? palette.accent : palette.line;
    c.lineWidth = this.#isSelected(box) ? 2 : 1;
    c.stroke();
    if (this.camera.scale < SMALLEST_TEXT * 0.6) return;
    // The title of a group that begins above the window stays visible.
    const y = Math.min(Math.max(box.y + 19, view.top + 19), box.y + box.h - 8);
    const [title, below] = this.look.texts(box.item);
    c.font = `600 12px ${FONT}`;
    c.fillStyle = palette.text;
    c.fillText(`▾ ${title}`, box.x + 14, y);
    const used = c.measureText(`▾ ${title}`).width;
    c.font = `11px ${FONT}`;
    c.fillStyle = palette.muted;
    if (below && used + below.length * 5.6 + 40 < box.w) c.fillText(below, box.x + 24 + used, y);
  }

  #box(box, now) {
    const { context: c, camera } = this;
    const { item } = box;
    const radius = item.kind === "group" ? 10 : item.kind === "node" && !item.node.free ? 8 : box.h / 2;
    const { fill, edge, ink } = this.look.colour(item);
    const glow = this.glowing.get(item.id);
    if (item.kind === "group") {
      for (const shift of [6, 3]) { // a stack of cards
        rounded(c, box.x + shift, box.y + shift, box.w, box.h, radius);
        c.fillStyle = palette.raised;
        c.fill();
        c.strokeStyle = palette.line;
        c.lineWidth = 1;
        c.stroke();
      }
    }
    if (glow && glow.until > now) {
      const rest = this.still ? 1 : (glow.until - now) / GLOW_MS;
      c.shadowColor = glow.strong ? palette.glow : palette.accent;
      c.shadowBlur = (glow.strong ? 26 : 12) * rest * camera.scale;
    }
    rounded(c, box.x, box.y, box.w, box.h, radius);
    c.fillStyle = fill;
    c.fill();
    c.shadowBlur = 0;
    if (glow && glow.until > now) {
      c.strokeStyle = glow.strong ? palette.glow : palette.accent;
      c.lineWidth = glow.strong ? 2.5 : 1.5;
    } else {
      c.strokeStyle = this.#isSelected(box) ? palette.accent : this.hovered === item ? palette.muted : edge;
      c.lineWidth = this.#isSelected(box) ? 2.5 : 1;
    }
    c.stroke();
    if (item.kind === "group") this.#contents(box);
    if (camera.scale >= SMALLEST_TEXT) this.#texts(box, ink);
  }

  /** A bar with the colours of the nodes in a closed group. */
  #contents(box) {
    const { context: c } = this;
    const shares = [...box.item.families];
    const total = shares.reduce((sum, [, count]) => sum + count, 0) || 1;
    const width = box.w - 26;
    let left = box.x + 13;
    for (const [family, count] of shares) {
      c.fillStyle = palette[family];
      c.fillRect(left, box.y + box.h - 9, (width * count) / total, 4);
      left += (width * count) / total;
    }
  }

  #texts(box, ink) {
    const { context: c } = this;
    const { item } = box;
    const [title, below] = this.look.texts(item);
    const slim = box.h < 30;
    const left = box.x + 13;
    c.fillStyle = ink;
    c.font = `${item.kind === "node" && slim ? 400 : 600} ${slim ? 11 : 12}px ${FONT}`;
    const mark = item.kind === "group" ? "▸ " : "";
    c.fillText(mark + title, left, box.y + (slim ? box.h / 2 + 4 : below ? 18 : box.h / 2 + 4));
    if (below && !slim) {
      c.font = item.kind === "group" ? `11px ${FONT}` : `10.5px ${MONO}`;
      c.globalAlpha = 0.8;
      c.fillText(below, left, box.y + 33);
      c.globalAlpha = 1;
    }
    const badge = this.look.badge(item);
    if (badge) {
      c.font = `600 10px ${FONT}`;
      const width = c.measureText(badge).width;
      c.globalAlpha = 0.85;
      c.fillText(badge, box.x + box.w - width - 9, box.y + (slim ? box.h / 2 + 3.5 : 17));
      c.globalAlpha = 1;
    }
  }

  #edges(edges, view) {
    const { context: c, camera } = this;
    c.strokeStyle = palette.muted;
    c.fillStyle = palette.muted;
    c.globalAlpha = 0.6;
    c.lineWidth = Math.max(1, 0.7 / camera.scale);
    for (const { points, to, square } of edges) {
      const [first, last] = [points[0], points[points.length - 1]];
      if (Math.min(first[1], last[1]) > view.bottom || Math.max(first[1], last[1]) < view.top) continue; // none is seen
      (square ? corners : curve)(c, points);
      c.stroke();
      if (camera.scale >= SMALLEST_TEXT && to !== "exit") arrow(c, points[points.length - 2], last);
    }
    c.globalAlpha = 1;
  }

  /** The real connections of the selected item, also through the borders of groups. */
  #links() {
    if (!this.selected || !this.scene) return;
    const mine = this.boxOf(this.selected);
    if (!mine) return;
    const { context: c } = this;
    c.lineWidth = Math.max(1.8, 1.2 / this.camera.scale);
    const drawn = new Set();
    const link = (from, to, colour) => {
      const key = `${from.item.id} ${to.item.id}`;
      if (from === to || drawn.has(key)) return;
      drawn.add(key);
      c.strokeStyle = c.fillStyle = colour;
      const [x0, y0, x1, y1] = [from.x + from.w / 2, from.y + (from.open ? 24 : from.h), to.x + to.w / 2, to.y];
      const bend = Math.max(18, Math.abs(y1 - y0) * 0.35);
      c.beginPath();
      c.moveTo(x0, y0);
      c.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
      c.stroke();
      arrow(c, [x1, y1 - bend], [x1, y1]);
    };
    if (this.selected.kind === "group") return;
    for (const { item } of this.selected.from) link(this.boxOf(item), mine, palette.accent);
    for (const { item } of this.selected.into) link(mine, this.boxOf(item), palette.glow);
  }

  #isSelected(box) { return this.selected !== null && this.selected === box.item; }

  // -- the mouse --------------------------------------------------------------------------------------

  at(x, y) {
    const [left, top] = [x / this.camera.scale + this.camera.x, y / this.camera.scale + this.camera.y];
    const inside = (b) => left >= b.x && left <= b.x + b.w && top >= b.y && top <= b.y + b.h;
    return this.scene?.boxes.findLast(inside) ?? null;
  }

  #listen() {
    const { canvas } = this;
    let grabbed = null;
    canvas.addEventListener("pointerdown", (event) => {
      grabbed = { x: event.offsetX, y: event.offsetY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (grabbed) {
        const [dx, dy] = [event.offsetX - grabbed.x, event.offsetY - grabbed.y];
        if (grabbed.moved || Math.hypot(dx, dy) > 3) {
          this.pan(dx, dy);
          grabbed = { x: event.offsetX, y: event.offsetY, moved: true };
        }
        return;
      }
      const box = this.at(event.offsetX, event.offsetY);
      const item = box && !box.open ? box.item : null;
      canvas.style.cursor = box ? "pointer" : "grab";
      if (item !== this.hovered) {
        this.hovered = item;
        this.events.hover(item, event.clientX, event.clientY);
        this.draw();
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const clicked = grabbed && !grabbed.moved;
      grabbed = null;
      if (!clicked) return;
      const box = this.at(event.offsetX, event.offsetY);
      this.events.select(box?.item ?? null);
      if (box?.item.kind === "group" && this.#isOnTitle(box, event.offsetY)) this.events.toggle(box.item);
    });
    canvas.addEventListener("pointerleave", () => {
      this.hovered = null;
      this.events.hover(null);
      this.draw();
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * 0.004), event.offsetX, event.offsetY);
      else this.pan(-event.deltaX, -event.deltaY);
    }, { passive: false });
  }

  #isOnTitle(box, y) {
    const top = y / this.camera.scale + this.camera.y;
    return !box.open || top < Math.max(box.y, this.camera.y) + 30;
  }
}

function rounded(c, x, y, w, h, radius) {
  c.beginPath();
  c.roundRect(x, y, w, h, radius);
}

function curve(c, points) {
  c.beginPath();
  c.moveTo(...points[0]);
  for (let i = 1; i < points.length - 1; i += 1) {
    const [x, y] = points[i];
    const [nextX, nextY] = points[i + 1];
    const isLast = i === points.length - 2;
    c.quadraticCurveTo(x, y, isLast ? nextX : (x + nextX) / 2, isLast ? nextY : (y + nextY) / 2);
  }
  if (points.length === 2) c.lineTo(...points[1]);
}

function corners(c, points) {
  c.beginPath();
  c.moveTo(...points[0]);
  for (let i = 1; i < points.length - 1; i += 1) c.arcTo(...points[i], ...points[i + 1], 8);
  c.lineTo(...points[points.length - 1]);
}

function arrow(c, [fromX, fromY], [x, y]) {
  const angle = Math.atan2(y - fromY, x - fromX);
  c.beginPath();
  c.moveTo(x, y);
  for (const turn of [-0.42, 0.42]) c.lineTo(x - 7 * Math.cos(angle + turn), y - 7 * Math.sin(angle + turn));
  c.fill();
}
