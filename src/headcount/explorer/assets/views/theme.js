/** Colours of the page, which differ between light and dark, and of the heads. */

const readers = [];
const theme = {};

const isDark = window.matchMedia("(prefers-color-scheme: dark)");
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

/** Whether the reader asked for less motion. */
export const prefersCalm = () => calm.matches;

function read() {
  const style = getComputedStyle(document.documentElement);
  const names = ["text", "soft", "line", "page", "raised", "link", "wrong", "faint"];
  for (const name of names) theme[name] = style.getPropertyValue(`--${name}`).trim();
  theme.heads = isDark.matches ? PALETTE.map((colour) => DARK[colour] ?? colour) : PALETTE;
}

// Colours that are too dark on a dark page.
const DARK = { "#000000": "#f2f2f2", "#0072B2": "#3391cf", "#777777": "#9a9a9a" };
const PALETTE = JSON.parse(document.getElementById("palette").textContent);
read();
isDark.addEventListener("change", () => {
  read();
  for (const reader of readers) reader();
});

/** The colours now: text, soft, line, page, raised, link, wrong, faint. */
export const colours = theme;

/** Call when the colours have changed. */
export const onTheme = (reader) => readers.push(reader);

/** The colour of head k; a ninth head and those after it get lighter ones. */
export function headColour(k) {
  const base = theme.heads[k % theme.heads.length];
  return k < theme.heads.length ? base : mixed(base, theme.page, 0.45);
}

/** Red, green and blue of a colour such as #0072b2. */
export function channels(colour) {
  const value = Number.parseInt(colour.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** A colour between two, `share` of the way to the second. */
export function mixed(first, second, share) {
  const [a, b] = [channels(first), channels(second)];
  const parts = a.map((x, i) => Math.round(x + (b[i] - x) * share));
  return `#${parts.map((x) => x.toString(16).padStart(2, "0")).join("")}`;
}
