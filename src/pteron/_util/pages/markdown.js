// Markdown as nodes of the page: nothing from a model becomes HTML.

export function node(name, content = [], attributes = {}) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// The first alternative that matches at the leftmost place wins. Contents are read again, except those of code.
const INLINE = /(`+)(?<code>[^]*?[^`])\1(?!`)|\*\*(?<bold>[^]+?)\*\*(?!\*)|__(?<bold2>[^]+?)__(?!\w)|\*(?<italic>[^\s*](?:[^*]*[^\s*])?)\*|(?<!\w)_(?<italic2>[^\s_](?:[^_]*[^\s_])?)_(?!\w)|~~(?<gone>[^]+?)~~|\[(?<label>[^\]]+)\]\((?<target>[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+"[^"]*")?\)|(?<bare>https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?])|\\(?<escaped>[\\`*_{}[\]()#+.!~|>-])|(?<br> {2,}\n|\\\n|<br ?\/?>)/;

function inline(text) {
  const nodes = [];
  while (text) {
    const found = INLINE.exec(text);
    if (!found) { nodes.push(text); break; }
    if (found.index) nodes.push(text.slice(0, found.index));
    const got = found.groups;
    const strong = got.bold ?? got.bold2, emphasis = got.italic ?? got.italic2;
    if (got.code !== undefined) nodes.push(node("code", got.code.replace(/^ (.*) $/s, "$1")));
    else if (strong !== undefined) nodes.push(node("strong", inline(strong)));
    else if (emphasis !== undefined) nodes.push(node("em", inline(emphasis)));
    else if (got.gone !== undefined) nodes.push(node("del", inline(got.gone)));
    else if (got.label !== undefined) nodes.push(link(got.target, inline(got.label), found[0]));
    else if (got.bare !== undefined) nodes.push(link(got.bare, [got.bare], got.bare));
    else if (got.br !== undefined) nodes.push(node("br"));
    else nodes.push(got.escaped);
    text = text.slice(found.index + found[0].length);
  }
  return nodes;
}

function link(target, content, written) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return written;  // no javascript:, no paths of this server
  return node("a", content, { href: target, target: "_blank", rel: "noopener noreferrer" });
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/, HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/, RULE = /^ {0,3}([-*_])( *\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/, QUOTE = /^ {0,3}>\s?(.*)$/, DELIMITER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MOST_DEPTH = 20;

export function markdown(text, depth = 0) {
  const lines = text.split("\n"), blocks = [];
  let at = 0;
  const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || QUOTE.test(line);
  while (at < lines.length) {
    const line = lines[at];
    let found;
    if (!line.trim()) at++;
    else if ((found = FENCE.exec(line))) at = fence(lines, at, found, blocks);
    else if ((found = HEADING.exec(line))) { blocks.push(node(`h${found[1].length}`, inline(found[2]))); at++; }
    else if (RULE.test(line)) { blocks.push(node("hr")); at++; }
    else if (QUOTE.test(line) && depth < MOST_DEPTH) {
      const inner = [];
      while (at < lines.length && (found = QUOTE.exec(lines[at]))) { inner.push(found[1]); at++; }
      blocks.push(node("blockquote", markdown(inner.join("\n"), depth + 1)));
    } else if (ITEM.test(line) && depth < MOST_DEPTH) at = list(lines, at, blocks, depth);
    else if (line.includes("|") && DELIMITER.test(lines[at + 1] ?? "")) at = table(lines, at, blocks);
    else {
      const paragraph = [line];
      for (at++; at < lines.length && lines[at].trim() && !startsBlock(lines[at]); at++) paragraph.push(lines[at]);
      blocks.push(node("p", inline(paragraph.join("\n").trim())));
    }
  }
  return blocks;
}

function fence(lines, at, found, blocks) {
  const code = [], end = new RegExp(`^ {0,3}${found[1][0]}{${found[1].length},}\\s*$`);
  for (at++; at < lines.length && !end.test(lines[at]); at++) code.push(lines[at]);
  const text = code.join("\n"), copy = node("button", "Copy", { type: "button" });
  copy.addEventListener("click", () => copyText(text, copy));
  const top = node("div", [node("span", found[2] || "text"), copy], { class: "code-top" });
  blocks.push(node("figure", [top, node("pre", node("code", text))]));
  return at + 1;
}

function list(lines, at, blocks, depth) {
  const first = ITEM.exec(lines[at]), indent = first[1].length, ordered = /\d/.test(first[2]), items = [];
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[1].length > indent + 1 || found[1].length < indent || /\d/.test(found[2]) !== ordered || RULE.test(lines[at])) break;
    const inner = [found[3] ?? ""];
    for (at++; at < lines.length; at++) {  // what is further to the right belongs to the item
      const blank = !lines[at].trim(), after = lines[at + 1] ?? "";
      if (blank ? !/^\s{2,}\S/.test(after) : !lines[at].startsWith(" ".repeat(indent + 2))) break;
      inner.push(lines[at].slice(Math.min(indent + found[2].length + 1, lines[at].search(/\S|$/))));
    }
    const content = markdown(inner.join("\n"), depth + 1);
    items.push(node("li", content.length && content[0].tagName === "P" ? [...content[0].childNodes, ...content.slice(1)] : content));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? "")) at++;
  }
  const start = ordered && parseInt(first[2], 10) !== 1 ? { start: parseInt(first[2], 10) } : {};
  blocks.push(node(ordered ? "ol" : "ul", items, start));
  return at;
}

function table(lines, at, blocks) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => inline(cell.trim().replaceAll("\\|", "|")));
  const head = cells(lines[at]), rows = [];
  for (at += 2; at < lines.length && lines[at].includes("|"); at++) rows.push(cells(lines[at]));
  const row = (name, values) => node("tr", head.map((_, i) => node(name, values[i] ?? [])));
  const made = node("table", [node("thead", row("th", head)), node("tbody", rows.map((values) => row("td", values)))]);
  blocks.push(node("div", made, { class: "table" }));
  return at;
}

/** An answer. What a model thinks before it answers can be unfolded. */
export function answerNodes(text) {
  const thought = /^\s*<think>([^]*?)(<\/think>|$)/.exec(text);
  if (!thought) return markdown(text);
  const label = thought[2] ? "Thoughts" : "Thinking …";
  return [node("details", [node("summary", label), ...markdown(thought[1])]), ...markdown(text.slice(thought[0].length))];
}

/** Copy a text, and say so on the button. */
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch { button.textContent = "Not allowed"; }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
