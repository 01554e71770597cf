/** Sliders, built from the state's fields: label, range and the value beside it. */

import { FIELDS, change, constructedHeads, keyHeads, onState, state } from "./state.js";

const LABELS = {
  m: ["items", "m"], d: ["embedding width", "d_model"], h: ["heads", "h"],
  k: ["width of a head", "d_k"], g: ["key heads", "g"], seed: ["seed", ""],
  speed: ["steps per second", ""], im: ["items", "m"], id: ["embedding width", "d_model"],
  ik: ["width of a head", "d_k"], ih: ["heads", "h"], tm: ["items", "m"],
  td: ["embedding width", "d_model"], th: ["heads of full width", "h"], pm: ["items", "m"],
  pd: ["embedding width", "d_model"], pr: ["edges per item", "r"], ps: ["steps", ""],
};
const LOGARITHMIC = new Set(["speed", "pm", "pd"]);
const TYPED = new Set(["seed"]);

// Fields that another one limits: what they amount to, and the other one.
const LIMITED = { g: [keyHeads, "h"], ih: [constructedHeads, "im"] };

const shown = (name) => (LIMITED[name]?.[0]() ?? state[name]).toLocaleString("en");

/** Where a value is on its slider; sizes that span decades move logarithmically. */
function toSlider(name, value) {
  return LOGARITHMIC.has(name) ? Math.log(value) : value;
}

function fromSlider(name, place) {
  if (name === "g") {
    const divisors = divisorsOf(state.h);
    return divisors[Math.min(divisors.length - 1, place)];
  }
  if (!LOGARITHMIC.has(name)) return place;
  const value = Math.exp(place);
  return value > 1000 ? Math.round(value / 100) * 100 : Math.round(value);
}

const divisorsOf = (heads) =>
  Array.from({ length: heads }, (_, i) => i + 1).filter((count) => heads % count === 0);

/** One labelled slider for a field. */
function slider(name) {
  const [, low, high, step] = FIELDS[name];
  const label = document.createElement("label");
  label.className = "slider";
  const [words, symbol] = LABELS[name];
  const text = document.createElement("span");
  text.textContent = words;
  const sign = Object.assign(document.createElement("i"), { textContent: ` ${symbol}` });
  if (symbol) text.append(sign);
  const input = document.createElement("input");
  input.type = TYPED.has(name) ? "number" : "range";
  input.name = name;
  input.autocomplete = "off";
  const output = document.createElement("output");
  label.append(text, input, output);
  const show = () => {
    if (name === "g") {
      const divisors = divisorsOf(state.h);
      Object.assign(input, { min: 0, max: divisors.length - 1, step: 1 });
      input.value = divisors.indexOf(keyHeads());
      input.disabled = divisors.length === 1;
    } else {
      const fine = LOGARITHMIC.has(name) ? "any" : step;
      Object.assign(input, { min: toSlider(name, low), max: toSlider(name, high), step: fine });
      if (document.activeElement !== input || !TYPED.has(name)) {
        input.value = toSlider(name, state[name]);
      }
    }
    output.textContent = TYPED.has(name) ? "" : shown(name);
    input.setAttribute("aria-valuetext", `${words} ${shown(name)}`);
  };
  input.addEventListener("input", () => change({ [name]: fromSlider(name, Number(input.value)) }));
  onState((names) => {
    if (names.includes(name) || names.includes(LIMITED[name]?.[1])) show();
  });
  show();
  return label;
}

/** Fill every `data-controls` element with the sliders that it names. */
export function buildControls() {
  for (const place of document.querySelectorAll("[data-controls]")) {
    place.append(...place.dataset.controls.split(" ").map(slider));
  }
  for (const select of document.querySelectorAll("select[data-field]")) {
    const name = select.dataset.field;
    const show = () => { select.value = state[name]; };
    select.addEventListener("change", () => change({ [name]: select.value }));
    onState(show);
    show();
  }
}
