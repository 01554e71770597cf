/**
 * The state of the page: what the sliders say, what is chosen, and how far training has come where
 * it is paused. The address keeps it, so that a link reproduces it. A value that is the default is
 * left out of the address.
 */

// A page that carries weights opens with them.
const FIRST = document.getElementById("embedded") ? "weights" : "watch";

/** Name: [default, least, most, step] of a number, or [default, choices]. */
export const FIELDS = {
  view: [FIRST, ["watch", "problem", "interference", "transition", "plan", "weights"]],
  graph: ["permutation", ["permutation", "antonyms"]],
  m: [64, 8, 192, 2],
  d: [16, 4, 64, 1],
  h: [4, 1, 8, 1],
  k: [8, 1, 32, 1],
  g: [0, 0, 8, 1], // key heads; 0: as many as heads
  seed: [1, 0, 9999, 1],
  speed: [900, 10, 50000, 1], // steps a second
  step: [0, 0, 1e6, 1], // where the runs are paused; 0: they play, or have not begun
  item: [-1, -1, 2047, 1], // the one pointed out on the circles; −1: none
  group: [1, 0, 1, 1], // whether score matrices have the edges of a head together
  inside: ["auto", ["auto", "open", "closed"]], // of the score matrices; auto: open where wide
  context: [0, 0, 999999, 1],
  im: [128, 16, 256, 8],
  id: [64, 8, 128, 4],
  ik: [64, 4, 256, 4],
  ih: [2, 1, 32, 1],
  ii: [0, 0, 255, 1],
  ij: [-1, -1, 255, 1], // −1: the target of ii
  tm: [48, 16, 96, 1],
  td: [16, 8, 24, 1],
  th: [1, 1, 3, 1],
  tstep: [0, 0, 20000, 1], // as `step`
  pm: [256, 8, 4096, 1],
  pd: [32, 4, 512, 1],
  pr: [1, 1, 16, 1],
  ps: [50000, 5000, 100000, 5000],
};

const listeners = [];
const values = Object.fromEntries(Object.entries(FIELDS).map(([name, [first]]) => [name, first]));

/** The state as a plain object. */
export const state = values;

/** Call with the names that changed, and whether the address changed them. */
export const onState = (listener) => listeners.push(listener);

/** The value that a field takes for a text or number: in its range, on its grid. */
function fitting(name, given) {
  const [first, low, high, step] = FIELDS[name];
  if (Array.isArray(low)) return low.includes(given) ? given : first;
  const number = given === "" || given === null ? Number.NaN : Number(given);
  if (!Number.isFinite(number)) return first;
  const snapped = low + Math.round((number - low) / step) * step;
  return Math.min(high, Math.max(low, snapped));
}

/** Key heads that divide the heads; all of them where the number given does not. */
export const keyHeads = () => (values.g && values.h % values.g === 0 ? values.g : values.h);

/** Heads of the construction: each has at least one item. */
export const constructedHeads = () => Math.min(values.ih, values.im);

/** Items of the plan: enough for their edges. */
export const plannedItems = () => Math.max(values.pm, values.pr + 2);

/** Set some values, remember them in the address, and tell who listens. */
export function change(given, { recalled = false } = {}) {
  const changed = [];
  for (const [name, value] of Object.entries(given)) {
    const fits = fitting(name, value);
    if (values[name] === fits) continue;
    values[name] = fits;
    changed.push(name);
  }
  if (!changed.length) return;
  if (!recalled) remember();
  for (const listener of listeners) listener(changed, recalled);
}

/** The address part that reproduces the state, or the state with some values changed. */
export function hash(changed = {}) {
  const parts = Object.entries({ ...values, ...changed }).filter(([name, value]) =>
    value !== FIELDS[name][0]);
  return parts.length ? `#${parts.map(([name, value]) => `${name}=${value}`).join("&")}` : "";
}

let waiting = 0;
let known = location.hash; // as last written or read here
function remember() {
  // Browsers allow few changes of the address per second, and a slider makes many.
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    if (location.hash !== known) return; // a link was followed meanwhile: recall() is on its way
    history.replaceState(null, "", hash() || location.pathname + location.search);
    known = location.hash;
  }, 120);
}

/** Take the state from the address; what it does not name is the default. */
export function recall() {
  known = location.hash;
  const given = new URLSearchParams(known.slice(1));
  change(Object.fromEntries(Object.keys(FIELDS).map((name) => [name, given.get(name) ?? ""])),
    { recalled: true });
}

window.addEventListener("hashchange", recall);
