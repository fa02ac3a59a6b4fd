// Everything about the selected node, group, input or output.

import { $, amount, el, milliseconds, nbytes, plural, say, shapeText, shortName, table } from "./dom.js";
import { ask, Refused } from "./questions.js";
import { facts, tensorPanel } from "./tensor_panel.js";
import { wgsl } from "./wgsl.js";

let number = 0;
let openKernels = new Set();

export async function showDetails(pane, item, go) {
  const mine = ++number;
  if (!pane?.model || !item) return $("details").replaceChildren(el("p", { class: "empty" }, "Select a node to see its shapes, its kernels, and why this route was chosen."));
  if (item.kind === "group") return show(groupParts(pane, item, go));
  if (item.kind !== "node") return show(portParts(pane, item, go));
  try {
    const found = await ask("node", pane.question({ node: item.index }));
    if (mine === number) show(nodeParts(pane, item, found, go)); // else another one was selected meanwhile
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (mine === number) show([part("", el("p", { class: "refusal" }, error.message))]);
  }
}

function show(parts) {
  const panel = $("details");
  const top = panel.scrollTop;
  panel.replaceChildren(...parts.filter(Boolean));
  panel.scrollTop = top;
}

const part = (title, ...children) => el("section", {}, title ? el("h2", {}, title) : null, ...children);

function nodeParts(pane, item, found, go) {
  const path = pane.model.path(item).map((group) => group.name).join(" › ");
  openKernels = new Set([...document.querySelectorAll("details.kernel[open]")].map((d) => d.dataset.kernel));
  const seconds = pane.times?.seconds.get(item.index);
  say(`node ${item.index}, ${shortName(found.operator)}, ${found.route}`);
  return [
    part("",
      el("h3", {}, shortName(found.operator)),
      el("p", { class: "where" }, `node ${item.index}${path ? ` in ${path}` : ""}`),
      el("p", { class: "where" }, el("code", {}, found.operator), found.origin ? ` from ${found.origin}` : ""),
      found.meaning ? el("p", { class: "meaning" }, found.meaning.split("\n")[0]) : null),
    part("Shapes", shapes(pane, found.arguments.filter((a) => a.value !== undefined), go)),
    attributes(found.arguments.filter((a) => a.text !== undefined)),
    part("Route", el("ul", { class: "routes" }, sameReason(found.routes).map((route) => el("li", { class: route.chosen ? "chosen" : "" },
      el("b", {}, route.names.join(", ")), route.chosen && route.kernels?.length ? ` (${route.kernels.join(", ")})` : "",
      el("span", { class: "why" }, route.why))))),
    found.dispatches.length ? part(plural(found.dispatches.length, "kernel"), found.dispatches.map(kernel)) : null,
    found.fused_from.length ? part(`Fused from ${found.fused_from.length} operators`,
      el("ol", { class: "sources" }, found.fused_from.map((source) => el("li", {}, shortName(source.operator), el("span", {}, ` ${source.origin}`))))) : null,
    part("Cost", el("dl", {},
      el("dt", {}, "bytes read and written"), el("dd", {}, nbytes(found.nbytes)),
      found.flops !== null ? [el("dt", {}, "operations"), el("dd", {}, `${amount(found.flops)}FLOP`)] : [],
      seconds !== undefined ? [el("dt", {}, "time"), el("dd", {}, `${milliseconds(seconds)} ms`)] : [],
      seconds && found.flops ? [el("dt", {}, "rate"), el("dd", {}, `${amount(found.flops / seconds)}FLOP/s`)] : [],
      seconds ? [el("dt", {}, "bandwidth"), el("dd", {}, `${nbytes(found.nbytes / seconds)}/s`)] : [])),
  ];
}

/** Routes that follow each other and have the same reason, as one. */
function sameReason(routes) {
  const merged = [];
  for (const route of routes) {
    const last = merged[merged.length - 1];
    if (last && !last.chosen && !route.chosen && last.why === route.why) last.names.push(route.name);
    else merged.push({ ...route, names: [route.name] });
  }
  return merged;
}

function shapes(pane, args, go) {
  return table(["", "live shape", ""], args.map((argument) => {
    const value = pane.model.graph.values[argument.value];
    const name = argument.role === "result" ? el("b", {}, `→ ${argument.name}`) : argument.role === "changed" ? `⟳ ${argument.name}` : argument.name;
    return el("tr", {}, el("td", { title: value.name }, name), el("td", { class: "value" }, shapeCell(argument, value)),
      el("td", {}, more(pane, argument, value, go)));
  }), { class: "shapes" });
}

/** The sizes as formulas of the inputs' sizes; nothing if they never change. */
function formulaText({ formulas, shape }) {
  const texts = (formulas ?? []).map((formula, d) => formula ?? (shape ? `≤${shape[d]}` : "?"));
  return texts.some((text, d) => text !== String(shape?.[d])) ? `[${texts.join(", ")}]` : "";
}

function shapeCell(argument, value) {
  const formula = (d) => value.formulas[d] ?? "no formula";
  if (argument.shape === undefined) return [el("span", { title: formula(0) }, `${argument.number}`)];
  const varies = (d) => formula(d) !== String(value.shape[d]);
  const dims = argument.shape.map((size, d) => (size === value.shape[d] && !varies(d) ? String(size)
    : el("span", { class: size === value.shape[d] ? "" : "small", title: `${formula(d)}, at most ${value.shape[d]}` }, String(size))));
  const joined = dims.flatMap((dim, d) => (d ? ["×", dim] : [dim]));
  const isSmaller = shapeText(argument.shape) !== shapeText(value.shape), formulas = formulaText(value);
  return [...(joined.length ? joined : ["scalar"]), ` ${argument.dtype}`, isSmaller ? el("span", { class: "max" }, ` of ${shapeText(value.shape)}`) : "",
    formulas ? el("div", { class: "formula" }, formulas) : ""];
}

/** Where a value comes from or goes to, and its numbers. */
function more(pane, argument, value, go) {
  const parts = [];
  const other = argument.role === "argument" ? pane.model.graph.edges.find(([, , id]) => id === argument.value)?.[0] : null;
  if (other !== null && other !== undefined) parts.push(el("button", { type: "button", class: "link-button", onclick: () => go(pane.model.item(other)) },
    typeof other === "number" ? `node ${other}` : pane.model.item(other).name));
  if (value.kind === "constant" || pane.values?.[argument.value]) {
    const what = value.kind === "constant" ? "constant" : "tensor";
    parts.push(el("button", {
      type: "button", class: "link-button", "aria-expanded": "false",
      onclick: (event) => openTensor(event.target, (wanted) => ask(what, pane.question({ value: argument.value, ...wanted }))),
    }, value.kind === "constant" ? "constant" : "values"));
  }
  if (value.kind === "state") parts.push(el("span", { class: "chip" }, "state"));
  return parts.flatMap((item, i) => (i ? [" ", item] : [item]));
}

function openTensor(button, load) {
  const row = button.closest("tr");
  if (row.nextElementSibling?.matches(".opened")) {
    row.nextElementSibling.remove();
    button.setAttribute("aria-expanded", "false");
    return;
  }
  button.setAttribute("aria-expanded", "true");
  row.after(el("tr", { class: "opened" }, el("td", { colspan: 3 }, tensorPanel(load))));
}

function attributes(args) {
  const given = args.filter((argument) => argument.text !== "none");
  if (!given.length) return null;
  return part("Attributes", el("dl", { class: "pairs" }, given.flatMap((a) => [el("dt", {}, a.name), el("dd", {}, a.text || "empty")])));
}

function pairs(title, object) {
  const entries = Object.entries(object);
  if (!entries.length) return [];
  return [el("h4", {}, title), el("dl", { class: "pairs" }, entries.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))];
}

function kernel(dispatch) {
  const copy = el("button", { type: "button", class: "link-button", onclick: () => navigator.clipboard.writeText(dispatch.text).then(() => say("The shader is copied")) }, "Copy");
  return el("details", { class: "kernel", "data-kernel": dispatch.kernel, open: openKernels.has(dispatch.kernel) },
    el("summary", {}, el("span", {}, dispatch.kernel), el("span", {}, `grid ${dispatch.grid.join(" × ")}`)),
    el("div", {}, ...pairs("Parameters", dispatch.params), ...pairs("Bindings", dispatch.bindings), ...pairs("Defines", dispatch.defines),
      el("h4", {}, "Shader text ", copy), wgsl(dispatch.text)));
}

function groupParts(pane, group, go) {
  const seconds = pane.times ? pane.secondsOf(group) : 0;
  const nodes = [...pane.model.nodesOf(group)];
  say(`${group.name}, ${plural(group.count, "node")}`);
  return [
    part("", el("h3", {}, group.name), el("p", { class: "where" }, `${plural(group.count, "node")}${seconds ? `, ${milliseconds(seconds)} ms` : ""}`),
      el("button", { type: "button", class: "link-button", onclick: () => pane.toggle(group) }, pane.open.has(group.id) ? "Fold" : "Open")),
    part("Nodes", table(["", "operator", "result"], nodes.slice(0, 200).map((item) => el("tr", {},
      el("td", { class: "number" }, String(item.index)),
      el("td", {}, el("button", { type: "button", class: "link-button", onclick: () => go(item) }, shortName(item.node.operator))),
      el("td", { class: "value" }, item.node.writes.length ? pane.shapeOf(item.node.writes[0]) : ""))))),
  ];
}

function portParts(pane, item, go) {
  const { port } = item;
  const found = pane.values?.[port.value];
  const links = item.kind === "input" ? item.into : item.from;
  say(`${item.kind} ${item.name}`);
  return [
    part("", el("h3", {}, item.name), el("p", { class: "where" }, `${item.kind} of ${pane.method}`)),
    part("Shape", el("p", { class: "value" }, `${port.dtype} ${pane.shapeOf(port.value)} of ${pane.shapeOf(port.value, true)}`),
      el("p", { class: "formula" }, port.value === null ? "" : formulaText(pane.model.graph.values[port.value]))),
    part(item.kind === "input" ? "Read by" : "Written by", el("ul", { class: "sources" }, [...new Set(links.map((l) => l.item))].map((other) =>
      el("li", {}, el("button", { type: "button", class: "link-button", onclick: () => go(other) }, other.kind === "node" ? `${shortName(other.node.operator)}, node ${other.index}` : other.name))))),
    found ? part("Values", ...facts(found), tensorPanel((wanted) => ask("tensor", pane.question({ value: port.value, ...wanted })))) : null,
  ];
}
