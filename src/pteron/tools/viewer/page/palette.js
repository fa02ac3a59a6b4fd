// The colours of the style sheet, for drawing on a canvas.

const NAMES = ["page", "raised", "sunk", "line", "text", "muted", "accent", "glow", "danger", "group",
  "product", "attention", "convolution", "normalisation", "elementwise", "reduction", "lookup", "shape", "other", "port"];

export const palette = {};

export function readPalette() {
  const probe = document.createElement("span");
  document.body.append(probe);
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    palette[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

/** A colour between cold and hot, for a share from 0 to 1. */
export function heat(share) {
  const dark = matchesDark();
  const hue = 215 - 200 * Math.min(1, share) ** 0.6;
  const light = dark ? 26 + 26 * share : 90 - 34 * share;
  return `hsl(${hue} ${dark ? 55 : 80}% ${light}%)`;
}

export function matchesDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Red, white or black, blue: for numbers from -1 to 1. */
export function diverging(value) {
  const v = Math.max(-1, Math.min(1, value));
  const middle = matchesDark() ? [24, 27, 32] : [250, 249, 246];
  const end = v < 0 ? [46, 111, 210] : [214, 69, 52];
  const share = Math.abs(v) ** 0.7;
  return middle.map((m, i) => Math.round(m + (end[i] - m) * share));
}
