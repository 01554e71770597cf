/** The page: which view is shown, the buttons, the keyboard, and what can be copied. */

import { announce } from "./views/canvas.js";
import { buildControls } from "./views/controls.js";
import { interference } from "./views/interference.js";
import { planView } from "./views/plan.js";
import { problemView } from "./views/problem_view.js";
import { snippets } from "./views/snippets.js";
import { FIELDS, change, hash, onState, recall, state } from "./views/state.js";
import { transition } from "./views/transition.js";
import { watch } from "./views/watch.js";
import { weightsView } from "./views/weights.js";

const VIEWS = { watch, problem: problemView, interference, transition, plan: planView,
  weights: weightsView };
const tabs = [...document.querySelectorAll("[role=tab]")];

let left = null; // the view that was shown last
function showView() {
  for (const tab of tabs) {
    const chosen = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    document.getElementById(tab.dataset.view).hidden = !chosen;
  }
  if (left && left !== state.view) VIEWS[left].pause?.();
  left = state.view;
  VIEWS[state.view].show();
}

function showSnippets() {
  const { command, python } = snippets();
  document.getElementById("command").textContent = command;
  document.getElementById("python").textContent = python;
}

for (const tab of tabs) {
  tab.addEventListener("click", () => change({ view: tab.dataset.view }));
  tab.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.stopPropagation();
    const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length];
    change({ view: next.dataset.view });
    next.focus();
  });
}

// --- Copying ------------------------------------------------------------------------------------

/** Copy a text; where the clipboard is closed to pages, the old way. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

const copied = {
  link: () => location.href.replace(/#.*$/, "") + hash(VIEWS[state.view].now?.()),
  command: () => snippets().command,
  python: () => snippets().python,
};
for (const button of document.querySelectorAll("[data-copy]")) {
  const words = button.textContent;
  button.addEventListener("click", async () => {
    await copy(copied[button.dataset.copy]());
    button.textContent = "Copied";
    announce("Copied");
    setTimeout(() => { button.textContent = words; }, 1500);
  });
}

// --- Buttons and keys ----------------------------------------------------------------------

const DEEDS = {
  play: () => VIEWS[state.view].play?.(),
  step: () => VIEWS[state.view].step?.(),
  restart: () => VIEWS[state.view].restart?.(),
  another: () => change({ seed: (state.seed + 1) % (FIELDS.seed[2] + 1) }),
};
for (const button of document.querySelectorAll("[data-do]")) {
  const deed = DEEDS[button.dataset.do];
  if (deed) button.addEventListener("click", deed);
}
for (const button of document.querySelectorAll("[data-set]")) {
  const wanted = Object.fromEntries(new URLSearchParams(button.dataset.set));
  button.addEventListener("click", () => change(wanted));
  const show = () => button.setAttribute("aria-pressed", String(
    Object.entries(wanted).every(([name, value]) => String(state[name]) === value)));
  onState(show);
  show();
}

/** Whether the element that has the focus does something itself with a key of `KEYS`. */
function uses(element, key) {
  if (element.closest("input[type=number], select, textarea")) return true;
  if (key === " ") return Boolean(element.closest("button, summary, input:not([type=range])"));
  return key === "ArrowRight" && Boolean(element.closest("input, canvas, .scroll"));
}

const KEYS = { " ": "play", "ArrowRight": "step", "r": "restart", "n": "another" };
document.addEventListener("keydown", (event) => {
  if (uses(event.target, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = tabs[Number(event.key) - 1]?.dataset.view;
  if (view) change({ view });
  else if (KEYS[event.key]) {
    event.preventDefault();
    DEEDS[KEYS[event.key]]();
  }
});

// --- Beginning ----------------------------------------------------------------------------------

let resized = 0;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => (VIEWS[state.view].redraw ?? VIEWS[state.view].show)(), 100);
});
onState((names) => {
  if (names.includes("view")) showView();
  showSnippets();
});
recall();
buildControls();
showView();
showSnippets();
window.explorer = { state, views: VIEWS }; // for tests and for the curious
