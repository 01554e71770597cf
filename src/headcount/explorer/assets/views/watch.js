/** The first view: one head beside several at equal D_K, trained on the same contexts. */

import { announce, hover } from "./canvas.js";
import { chartOn, line, mark, within } from "./chart.js";
import { drawCircle, itemAt, wrongPairs } from "./circle.js";
import { drawMatrix, ordering, pairAt } from "./matrix.js";
import { problemOf, specsNow } from "./problems.js";
import { FIELDS, onState, state } from "./state.js";
import { colours, headColour, onTheme, prefersCalm } from "./theme.js";
import { Trainer } from "./trainer.js";

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
    verdict: outside(".verdict"), matrix: inside(".matrix"), heads: inside(".heads"),
    facts: inside(".facts"), chosen: -1,
  };
});
const curve = find(".curve");
const grouped = find("[name=grouped]");

let problem = null;
let specs = [];
let traces = [[], []]; // (step, F1) of every frame
const trainer = new Trainer({
  draw, pace: () => state.speed, details: insidesAreSeen, onPlaying: showPlaying,
});

/** Whether to draw the score matrices: while training runs, only where somebody sees them. */
function insidesAreSeen() {
  const box = find(".insides").getBoundingClientRect();
  const seen = box.top < window.innerHeight && box.bottom > 0;
  return find(".insides").open && (seen || !trainer.playing);
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

function showPlaying(playing) {
  playButton.textContent = playing ? "Pause" : "Play";
  playButton.setAttribute("aria-pressed", String(playing));
  if (!playing) trainer.refresh();
}

let lastCalm = 0;
function draw(frames) {
  if (prefersCalm() && trainer.playing && performance.now() - lastCalm < 500) return;
  lastCalm = performance.now();
  frames.forEach((frame, i) => {
    const trace = traces[i];
    const isNew = !trace.length || trace[trace.length - 1][0] < frame.step;
    if (isNew) trace.push([frame.step, frame.f1]);
    drawPanel(panels[i], frame);
  });
  drawCurve(frames);
  section.dataset.step = frames[1].step;
  const told = frames.map(({ f1 }, i) => `${panels[i].title.textContent}: F1 ${f1.toFixed(2)}`);
  curve.setAttribute("aria-label", `F1 against steps. Step ${frames[1].step}. ${told.join("; ")}`);
  if (!trainer.playing) announce(`Step ${frames[1].step}. ${told.join("; ")}`);
}

function drawPanel(panel, frame) {
  const { graph, names } = problem;
  panel.frame = frame;
  const wrong = wrongPairs(frame, graph);
  panel.drawn = drawCircle(panel.circle, graph, {
    shown: { ...frame, wrong }, chosen: panel.chosen, names });
  panel.circle.setAttribute("aria-label", `${frame.hits} of ${graph.edges} relations found, `
    + `${frame.falsePositives} pairs wrongly taken for one`);
  panel.f1.textContent = frame.f1.toFixed(2);
  panel.f1.classList.toggle("done", frame.f1 > 0.99);
  panel.verdict.textContent = verdictOf(frame, graph);
  if (frame.perHead) drawInsides(panel, frame, graph);
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
  traces.forEach((trace, i) => {
    if (!trace.length) return;
    const [step, f1] = trace[trace.length - 1];
    const label = specs[i].heads === 1 ? "one head" : `${specs[i].heads} heads`;
    const above = i === 1 && f1 > 0.9;
    mark(chart, step, f1, label, { colour: i ? headColour(2) : colours.wrong, align: "right",
      shift: [-6, above ? 14 : -12], weight: 600 });
  });
}

for (const panel of panels) {
  hover(panel.circle, (x, y) => {
    if (!panel.drawn) return null;
    panel.chosen = itemAt(panel.drawn, x, y);
    if (!trainer.playing) drawPanel(panel, panel.frame);
    return panel.chosen < 0 ? null : itemText(panel, panel.chosen);
  });
  hover(panel.matrix, (x, y) => {
    const pair = panel.order && pairAt(panel.matrix, panel.order, x, y);
    return pair ? pairText(panel, ...pair) : null;
  });
}

function nameOf(item) { return problem.names ? problem.names[item] : `item ${item}`; }

function itemText(panel, item) {
  const { graph } = problem;
  const edges = Array.from(graph.sources.keys()).filter((e) => graph.sources[e] === item);
  return edges.map((e) => {
    const state_ = panel.frame.found[e] ? `found by head ${panel.frame.owner[e] + 1}` : "not found";
    return `${nameOf(item)} → ${nameOf(graph.targets[e])}: ${state_}`;
  }).join("; ");
}

function pairText(panel, i, j) {
  const { graph } = problem;
  const pair = i * graph.items + j;
  const kind = graph.isEdge[pair] ? "an edge" : "not an edge";
  return `${nameOf(i)} → ${nameOf(j)}: ${kind}, score ${panel.frame.joined[pair].toFixed(2)}, `
    + `τ ${panel.frame.threshold.toFixed(2)}`;
}

let goesOn = false; // whether it was playing when another view was chosen

/** What the buttons and the keyboard do. */
export const watch = {
  play() {
    if (trainer.frames?.every((frame) => frame.ended)) restart();
    if (trainer.playing) trainer.pause();
    else trainer.play();
  },
  step() { trainer.step(1); },
  restart() { restart(); trainer.play(); },
  pause() {
    goesOn = trainer.playing;
    trainer.pause();
  },
  show() {
    if (!trainer.worker) {
      restart();
      goesOn = !prefersCalm();
    } else trainer.refresh();
    if (goesOn) trainer.play();
  },
  trainer,
};

window.addEventListener("scroll", () => {
  if (insidesAreSeen() && !trainer.playing && !panels[0].frame?.perHead) trainer.refresh();
}, { passive: true });
if (window.innerWidth >= 900) find(".insides").open = true; // a phone has its room for the rest
onTheme(() => trainer.refresh());
find(".insides").addEventListener("toggle", () => trainer.refresh());
grouped.addEventListener("change", () => trainer.refresh());
let restarting = 0;
onState((names) => {
  if (!trainer.worker || !names.some((name) => OWN.includes(name))) return;
  clearTimeout(restarting);
  restarting = setTimeout(() => {
    restart();
    if (state.view === "watch" && !prefersCalm()) trainer.play();
  }, 150);
});
