// Colours for the words of a shader.

import { el } from "./dom.js";

const TOKEN = /(?<comment>\/\/[^\n]*)|(?<word>\b(?:fn|var|let|const|struct|return|if|else|for|loop|while|break|continue|switch|case|default|alias|enable|override|true|false)\b|@\w+)|(?<type>\b(?:f32|f16|i32|u32|bool|vec[234]|mat\dx\d|array|atomic|storage|uniform|workgroup|function|private|read_write|read|ptr)\b)|(?<literal>\b(?:0x[\da-fA-F]+|\d+\.?\d*(?:e[+-]?\d+)?)[uifh]?\b)/g;

export function wgsl(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [kind] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    parts.push(text.slice(end, match.index), el("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  return el("pre", { tabindex: 0 }, el("code", {}, parts, text.slice(end)));
}
