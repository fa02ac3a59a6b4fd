// Small helpers for elements and texts.

export const $ = (id) => document.getElementById(id);

/** An element: attributes, event listeners (`onclick`), and children that are elements or texts. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export function table(head, rows, attributes = {}) {
  return el("table", attributes,
    el("thead", {}, el("tr", {}, head.map((cell) => el("th", { scope: "col" }, cell)))),
    el("tbody", {}, rows));
}

export const say = (text) => { $("status").textContent = text; };

export function nbytes(count) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let power = 0;
  while (count >= 1024 && power < units.length - 1) { count /= 1024; power += 1; }
  return `${power && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[power]}`;
}

export function amount(count) {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= size) return `${(count / size).toFixed(count < 100 * size ? 1 : 0)} ${unit}`;
  }
  return String(count);
}

export const milliseconds = (seconds) => (seconds === null || seconds === undefined
  ? "" : (seconds * 1e3).toFixed(seconds < 1e-3 ? 3 : seconds < 1 ? 2 : 0));

export const shapeText = (shape) => (shape.length ? shape.join("×") : "scalar");

export function number(value) {
  if (value === undefined || value === null) return "";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  return Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(3) : value.toPrecision(5);
}

/** `aten.view_copy.default` as `view_copy`. */
export const shortName = (operator) => operator
  .replace(/^(aten|et_vk|pteron|dim_order_ops|quantized_decomposed|llama|etvk)\./, "")
  .replace(/\.(default|Tensor|int|Scalar)$/, "");

export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
