/** The problem: items, their edges, a context drawn from the stream, and what it asks for. */

import { ContextSampler } from "../engine/contexts.js";
import { runSpec, trainingKey } from "../engine/problem.js";
import { drawCircle } from "./circle.js";
import { itemPicker } from "./picker.js";
import { problemOf, specsNow } from "./problems.js";
import { change, onState, state } from "./state.js";
import { onTheme } from "./theme.js";

const section = document.getElementById("problem");
const canvas = section.querySelector(".circle");
const list = section.querySelector(".pairs");
const told = section.querySelector(".told");
const save = section.querySelector("[data-do=save-graph]");

const HINT = told.textContent;

let problem = null;
let drawn = null;
let inside = new Set();

const nameOf = (item) => problem.names?.[item] ?? String(item);
const targetsOf = (item) => {
  const { starts, targets } = problem.graph;
  return Array.from(targets.subarray(starts[item], starts[item + 1]));
};

function draw() {
  const [, given] = specsNow();
  const spec = runSpec(given);
  problem = problemOf(spec.items, state.seed);
  const sampler = new ContextSampler(problem.graph, spec.length, spec.rate, trainingKey(spec));
  const context = new Int32Array(spec.length);
  sampler.draw(state.context, context);
  inside = new Set(context);
  paint();
  const found = [...inside].flatMap((item) =>
    targetsOf(item).filter((target) => inside.has(target)).map((target) => [item, target]));
  list.replaceChildren(...found.map(([source, target]) =>
    Object.assign(document.createElement("li"), {
      textContent: `${nameOf(source)} → ${nameOf(target)}` })));
  section.querySelector(".drawn").textContent =
    `Context ${state.context.toLocaleString("en")}: ${inside.size} items, ${found.length} of the `
    + `${inside.size ** 2} ordered pairs are edges`;
}

const wordsOn = (item) => `${nameOf(item)} → ${targetsOf(item).map(nameOf).join(", ")}`;
const picker = itemPicker(canvas, { items: () => problem?.graph.items ?? 0, picture: () => drawn,
  words: wordsOn, redraw: paint });

function paint() {
  if (!canvas.clientWidth) return;
  const item = picker.item();
  drawn = drawCircle(canvas, problem.graph, { chosen: item, inside, names: problem.names });
  picker.describe(`${problem.graph.items} items on a circle`);
  told.textContent = item < 0 ? HINT : wordsOn(item);
}

section.querySelector("[data-do=next]").addEventListener("click", () =>
  change({ context: state.context + 1 }));
save.addEventListener("click", () => {
  // Ids, also of words: the table that a seed draws has no names to number them by.
  const { sources, targets } = problem.graph;
  const rows = Array.from(sources, (source, e) => `${source},${targets[e]}`);
  const blob = new Blob([`source,target\n${rows.join("\n")}\n`], { type: "text/csv" });
  const link = Object.assign(document.createElement("a"), {
    href: URL.createObjectURL(blob), download: "graph.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
});

export const problemView = { show: draw, redraw: () => problem && paint() };

onTheme(() => problem && paint());
onState((names) => {
  const own = ["m", "seed", "graph", "context", "d", "h", "k", "view"];
  if (state.view !== "problem") return;
  if (names.some((name) => own.includes(name))) draw();
  else if (names.includes("item")) paint();
});
