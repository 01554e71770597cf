/** The first view: one head beside several at equal D_K, trained on the same contexts. */

import { announce, hover } from "./canvas.js";
import { chartOn, line, mark, within } from "./chart.js";
import { drawCircle, itemWords, wrongPairs } from "./circle.js";
import { drawMatrix, ordering, pairAt } from "./matrix.js";
import { itemPicker } from "./picker.js";
import { problemOf, specsNow } from "./problems.js";
import { FIELDS, change, onState, state } from "./state.js";
import { colours, headColour, onTheme, prefersCalm } from "./theme.js";
import { Trainer, showPlaying } from "./trainer.js";

const section = document.getElementById("watch");
const find = (selector) => section.querySelector(selector);
const TITLE = find("h1").textContent;
const OWN = ["m", "d", "h", "k", "g", "seed", "graph"]; // fields that make the runs
const playButton = find("[data-do=play]");
const panels = [0, 1].map((run) => {
  const outside = (name) => find(`[data-run="${run}"] ${name}`);
  const inside = (name) => find(`[data-inside="${run}"] ${name}`);
  return {
    circle: outside(".circle"), title: outside("h3"), f1: outside(".f1"),
    verdict: outside(".verdict"), picked: outside(".picked"), matrix: inside(".matrix"),
    heads: inside(".heads"), facts: inside(".facts"),
  };
});
const curve = find(".curve");
const grouped = find("[name=grouped]");
const insides = find(".insides");

let problem = null;
let specs = [];
let traces = [[], []]; // (step, F1) of every frame
let restarting = 0; // the timer of a restart, while other runs are awaited
const trainer = new Trainer({
  draw, pace: () => state.speed, details: insidesAreSeen, onPlaying,
});

// Asking where they are would lay out the page in the middle of a frame.
let onScreen = false;
new IntersectionObserver(([entry]) => {
  onScreen = entry.isIntersecting;
  if (onScreen && !trainer.playing && !panels[0].frame?.perHead) trainer.refresh();
}).observe(insides);

/** Whether to draw the score matrices: while training runs, only where somebody sees them. */
function insidesAreSeen() {
  return insides.open && (onScreen || !trainer.playing);
}

function restart() {
  specs = specsNow();
  problem = problemOf(specs[0].items, state.seed);
  traces = [[], []];
  specs.forEach((spec, i) => {
    const heads = spec.heads === 1 ? "One head" : `${spec.heads} heads`;
    const keys = spec.keyHeads < spec.heads ? `, ${spec.keyHeads} key heads` : "";
    panels[i].title.textContent = `${heads} of width ${spec.keyDim}${keys}`;
    panels[i].heads.replaceChildren(...Array.from({ length: spec.heads }, (_, k) => headFigure(k)));
  });
  // What the title claims was seen of the first runs; of others it is not known beforehand.
  const isFirst = OWN.every((name) => state[name] === FIELDS[name][0]);
  find(".outcome").hidden = !isFirst;
  find("h1").textContent = isFirst ? TITLE
    : `One wide head beside ${state.h} narrow ${state.h === 1 ? "one" : "ones"} at equal D_K`;
  find(".edges").textContent = `${problem.graph.edges} relations`;
  find(".budget").textContent = `D_K = ${state.h * state.k}`;
  trainer.start(specs, problem.pairs);
}

function headFigure(k) {
  const figure = document.createElement("figure");
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Scores of head ${k + 1}`);
  const caption = document.createElement("figcaption");
  caption.textContent = `head ${k + 1}`;
  figure.append(canvas, caption);
  return figure;
}

function onPlaying(playing) {
  showPlaying(playButton, playing);
  if (playing) change({ step: 0 });
  else trainer.refresh(); // all of it, which is not drawn while training runs
}

let lastCalm = 0;
function draw(frames) {
  const { isResting } = trainer;
  if (prefersCalm() && !isResting && performance.now() - lastCalm < 500) return;
  lastCalm = performance.now();
  frames.forEach((frame, i) => {
    const trace = traces[i];
    const isNew = !trace.length || trace[trace.length - 1][0] < frame.step;
    if (isNew) trace.push([frame.step, frame.f1]);
    drawPanel(panels[i], frame);
  });
  drawCurve(frames);
  // All words after all pictures: a picture asks for its size, which words make unknown.
  panels.forEach(tellPanel);
  section.dataset.step = frames[1].step;
  if (isResting && !restarting) change({ step: trainer.furthest });
  const told = frames.map(({ f1 }, i) => `${panels[i].title.textContent}: F1 ${f1.toFixed(2)}`);
  curve.setAttribute("aria-label", `F1 against steps. Step ${frames[1].step}. ${told.join("; ")}`);
  if (isResting) announce(`Step ${frames[1].step}. ${told.join("; ")}`);
}

function drawPanel(panel, frame) {
  const { graph, names } = problem;
  panel.frame = frame;
  const wrong = wrongPairs(frame, graph);
  panel.drawn = drawCircle(panel.circle, graph, {
    shown: { ...frame, wrong }, chosen: panel.picker.item(), names });
  if (frame.perHead) drawInsides(panel, frame, graph);
}

function tellPanel(panel) {
  const { graph } = problem;
  const { frame } = panel;
  const chosen = panel.picker.describe(`${frame.hits} of ${graph.edges} relations found, `
    + `${frame.falsePositives} pairs wrongly taken for one`);
  if (panel.picked.textContent !== chosen) panel.picked.textContent = chosen;
  panel.f1.textContent = frame.f1.toFixed(2);
  panel.f1.classList.toggle("done", frame.f1 > 0.99);
  panel.verdict.textContent = verdictOf(frame, graph);
  if (frame.perHead) tellInsides(panel, frame);
}

function verdictOf(frame, graph) {
  const found = `${frame.hits} of ${graph.edges} found, ${frame.falsePositives} wrong`;
  if (frame.ended === "finished") return `Finished after ${frame.step.toLocaleString("en")} steps`;
  if (frame.ended) return `Stopped at ${frame.step.toLocaleString("en")} steps: ${found}`;
  return found;
}

function drawInsides(panel, frame, graph) {
  panel.order = ordering(graph, grouped.checked ? frame.owner : null);
  drawMatrix(panel.matrix, frame.joined, graph, panel.order, frame);
  panel.heads.querySelectorAll("canvas").forEach((canvas, head) =>
    drawMatrix(canvas, frame.perHead[head], graph, panel.order, { ...frame, head }));
}

function tellInsides(panel, frame) {
  const owned = Array.from({ length: panel.heads.children.length }, () => 0);
  frame.owner.forEach((head, e) => { owned[head] += frame.found[e]; });
  panel.heads.querySelectorAll("figcaption").forEach((caption, head) => {
    caption.textContent = `head ${head + 1}: ${owned[head]} edges`;
    caption.style.setProperty("--head", headColour(head));
  });
  const rows = [
    ["threshold τ", frame.threshold.toFixed(3)], ["margin", frame.margin.toFixed(3)],
    ["lowest edge", frame.lowestEdge.toFixed(3)], ["highest other", frame.highestOther.toFixed(3)],
  ];
  panel.facts.innerHTML = rows.map(([name, value]) =>
    `<div><dt>${name}</dt><dd>${value}</dd></div>`).join("");
}

function drawCurve(frames) {
  const last = Math.max(2000, frames[1].step, frames[0].step) * 1.02;
  const chart = chartOn(curve, { low: 0, high: last, title: "training steps" },
    { low: 0, high: 1, title: "F1" });
  within(chart, () => {
    line(chart, [[0, 0.99], [last, 0.99]], { colour: colours.soft, width: 1, dash: [4, 4] });
    traces.forEach((trace, i) => {
      const colour = i ? headColour(2) : colours.wrong;
      if (trace.length) line(chart, trace, { colour, width: 2.5 });
    });
  });
  const ends = traces.map((trace) => trace[trace.length - 1]);
  const higher = ends[1][1] >= ends[0][1] ? 1 : 0;
  ends.forEach(([step, f1], i) => {
    const label = specs[i].heads === 1 ? "one head" : `${specs[i].heads} heads`;
    const isEarly = step < 0.15 * last;
    const above = i === higher && f1 < 0.9; // the other label is below its line
    mark(chart, step, f1, label, { colour: i ? headColour(2) : colours.wrong, weight: 600,
      align: isEarly ? "left" : "right", shift: [isEarly ? 8 : -6, above ? -12 : 14] });
  });
}

for (const panel of panels) {
  panel.picker = itemPicker(panel.circle, {
    items: () => problem?.graph.items ?? 0, picture: () => panel.drawn,
    words: (item) => itemWords(item, panel.frame, problem.graph, nameOf), redraw: redrawPanels });
  hover(panel.matrix, (x, y) => {
    const pair = panel.order && pairAt(panel.matrix, panel.order, x, y);
    return pair ? pairText(panel, ...pair) : null;
  });
}

/** Draw what is chosen, unless the next frame does. */
function redrawPanels() {
  if (!trainer.frames || trainer.playing) return;
  const drawn = panels.filter((panel) => panel.frame);
  for (const panel of drawn) drawPanel(panel, panel.frame);
  drawn.forEach(tellPanel);
}

function nameOf(item) { return problem.names ? problem.names[item] : `item ${item}`; }

function pairText(panel, i, j) {
  const { graph } = problem;
  const pair = i * graph.items + j;
  const kind = graph.isEdge[pair] ? "an edge" : "not an edge";
  return `${nameOf(i)} → ${nameOf(j)}: ${kind}, score ${panel.frame.joined[pair].toFixed(2)}, `
    + `τ ${panel.frame.threshold.toFixed(2)}`;
}

let goesOn = false; // whether it was playing when another view was chosen

/** Begin anew: go to a step and rest there, or play. */
function begin(step) {
  restart();
  goesOn = !step && !prefersCalm();
  if (step) trainer.step(step);
  else if (goesOn && state.view === "watch") trainer.play();
}

/** What the buttons and the keyboard do. */
export const watch = {
  play() {
    if (trainer.frames?.every((frame) => frame.ended)) restart();
    if (trainer.playing) trainer.pause();
    else trainer.play();
  },
  step() { trainer.step(1); },
  restart() {
    restart();
    trainer.play();
  },
  pause() {
    goesOn = trainer.playing;
    trainer.pause();
  },
  show() {
    if (!trainer.worker) {
      showInsides();
      begin(state.step);
    } else {
      trainer.refresh();
      if (goesOn) trainer.play();
    }
  },
  now: () => ({ step: trainer.furthest }), // a link keeps it, also while training runs
  trainer,
};


/** Whether the score matrices are open: where nobody chose, a phone has its room for the rest. */
const areInsidesOpen = () =>
  (state.inside === "auto" ? window.innerWidth >= 900 : state.inside === "open");

function showInsides() {
  insides.open = areInsidesOpen();
  grouped.checked = state.group === 1;
}
insides.addEventListener("toggle", () => {
  if (insides.open !== areInsidesOpen()) change({ inside: insides.open ? "open" : "closed" });
  trainer.refresh();
});
grouped.addEventListener("change", () => change({ group: Number(grouped.checked) }));
onTheme(() => trainer.refresh());
onState((names, recalled) => {
  if (names.includes("item")) redrawPanels();
  if (names.includes("inside") || names.includes("group")) {
    showInsides();
    trainer.refresh();
  }
  const areOthers = names.some((name) => OWN.includes(name));
  if (areOthers && !recalled) change({ step: 0 });
  if (!trainer.worker || !(areOthers || (recalled && names.includes("step")))) return;
  clearTimeout(restarting);
  const { step } = state;
  restarting = setTimeout(() => {
    restarting = 0;
    begin(step);
  }, 150);
});
