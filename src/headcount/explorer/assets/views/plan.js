/** The plan: laws and bounds over D_K with the measured runs, and what to train. */

import { Adviser, adviceText, beyondMeasured } from "../theory/adviser.js";
import { freedomNeeded } from "../theory/capacity.js";
import { constructions, fittedBudget, lowerBounds } from "../theory/bounds.js";
import { hover } from "./canvas.js";
import { band, chartOn, hit, line, mark, point, within } from "./chart.js";
import { onState, plannedItems, state } from "./state.js";
import { colours, headColour, onTheme } from "./theme.js";

const section = document.getElementById("plan");
const [laws, chances] = ["laws", "chances"].map((name) => section.querySelector(`.${name}`));
const answer = section.querySelector(".answer");
const table = section.querySelector("tbody");
const legend = section.querySelector(".legend");
const theory = JSON.parse(document.getElementById("theory").textContent);
const measured = JSON.parse(document.getElementById("measured").textContent);
const CURVES = [
  ["lower bound", 6, [2, 3]], ["compiled law", 0, []], ["trained at R ≈ 1.3", 2, []],
  ["paper’s fit", 1, [7, 3]], ["construction", 3, [4, 3]],
];

let charts = [];

/** D_K of every curve at a number of items. */
function budgetsAt(items) {
  const [edges, dModel] = [items * state.pr, state.pd];
  const built = constructions(theory, items, edges, dModel).map((one) => one.budget);
  return [
    Math.max(...lowerBounds(theory, items, edges, dModel).map(([, budget]) => budget)),
    fittedBudget(theory.laws.compiled, items, edges, dModel),
    (theory.trained_ratios[1] * freedomNeeded(items, edges)) / (2 * dModel),
    fittedBudget(theory.laws.permutations, items, edges, dModel),
    Math.min(...built),
  ];
}

function sizes() {
  const least = Math.max(8, 2 * state.pr + 2);
  return Array.from({ length: 40 }, (_, i) => Math.round(least * (4096 / least) ** (i / 39)));
}

function draw() {
  if (!laws.clientWidth) return;
  const items = plannedItems();
  const edges = items * state.pr;
  const adviser = new Adviser(theory, items, edges, state.pd);
  const advice = adviser.advise(state.ps);
  answer.textContent = adviceText(advice, theory.impossible, state.ps);
  section.querySelector(".chart-pair").classList.toggle("outside", Boolean(advice.outside));
  const [low, middle, high] = adviser.trainedBudgets();
  section.querySelector(".interval").textContent = `Nine of ten measured thresholds lie, scaled to `
    + `these sizes, between D_K = ${low.toLocaleString("en")} and ${high.toLocaleString("en")}; `
    + `their median is ${middle.toLocaleString("en")}.`;
  drawLaws(items, adviser, advice);
  drawChances(items, adviser, advice);
  fillTable(items, edges, adviser, advice);
}

function drawLaws(items, adviser, advice) {
  const all = sizes();
  const rows = all.map(budgetsAt);
  const end = Math.max(20000, 1.5 * adviser.trainedBudgets()[2]); // past the answer
  const chart = chartOn(laws, { low: 1, high: end, log: true, title: "total key width D_K" },
    { low: all[0], high: 4096, log: true, title: "items m" });
  const through = (pick) => rows.map((row, n) => [Math.max(1, pick(row)), all[n]]);
  const [low, high] = [adviser.constants.trained_ratios[0], adviser.constants.trained_ratios[2]];
  const scale = (ratio) => ratio / adviser.constants.trained_ratios[1];
  within(chart, () => {
    greyOutside(chart, all);
    band(chart, through((row) => row[2] * scale(low)), through((row) => row[2] * scale(high)),
      headColour(2));
    const [from, to] = theory.laws.compiled.interval;
    band(chart, through((row) => row[1] * from), through((row) => row[1] * to), headColour(0));
    CURVES.forEach(([, colour, dash], c) =>
      line(chart, through((row) => row[c]), { colour: headColour(colour), width: 2, dash }));
    line(chart, [[1, items], [end, items]], { colour: colours.text, width: 1, dash: [1, 3] });
    for (const [degree, m, dModel, budget, heads] of measured.thresholds) {
      if (degree !== state.pr || dModel !== state.pd) continue;
      point(chart, budget, m, { colour: headColour(2), size: 5.5,
        text: `measured: m = ${m} trained from D_K = ${budget} on, with ${heads} heads` });
    }
    if (advice.split) {
      point(chart, advice.split.budget, items, { colour: colours.text, size: 7, hollow: true,
        text: `advised: ${advice.split.heads} × ${advice.split.keyDim}` });
    }
  });
  CURVES.forEach(([name, colour], c) => {
    const wanted = Math.round(all.length * (0.9 - 0.13 * c));
    const n = rows.findLastIndex((row, place) => place <= wanted && row[c] < end);
    if (n < 0) return; // all of the curve is past the end of the axis
    mark(chart, Math.max(1, rows[n][c]), all[n], name, { colour: headColour(colour), weight: 600,
      shift: [7, 7] });
  });
  charts[0] = chart;
}

/** Sizes outside what was measured are greyed: there the curves are extrapolated. */
function greyOutside(chart, all) {
  const steps = theory.usual_steps;
  const inside = all.filter((m) => !beyondMeasured(theory.range, m, m * state.pr, state.pd, steps));
  const { pen, box, y } = chart;
  pen.fillStyle = colours.faint;
  if (!inside.length) {
    pen.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    mark(chart, 1, all[all.length - 3], "outside what was measured", { colour: colours.soft,
      shift: [8, 0] });
    return;
  }
  const [top, bottom] = [y(inside[inside.length - 1]), y(inside[0])];
  pen.fillRect(box.left, box.top, box.right - box.left, top - box.top);
  pen.fillRect(box.left, bottom, box.right - box.left, box.bottom - bottom);
  if (top - box.top > 18 && box.right - box.left > 30 * chart.letter) { // else the caption says it
    mark(chart, 1, inside[inside.length - 1], "outside what was measured", {
      colour: colours.soft, shift: [8, -10] });
  }
}

/** The chance of success over D_K for some numbers of heads, with the measured mean F1. */
function drawChances(items, adviser, advice) {
  const own = measured.splits.filter(([degree, m, dModel]) =>
    degree === state.pr && m === items && dModel === state.pd);
  const most = Math.max(40, ...own.map((row) => row[4]),
    2.5 * (advice.split?.budget ?? adviser.trainedBudgets()[1]));
  const chart = chartOn(chances, { low: 1, high: most, log: true, title: "total key width D_K" },
    { low: 0, high: 1, title: "chance (lines), mean F1 (points)" });
  const byValue = (a, b) => a - b;
  const counts = [...new Set([1, 4, 16, advice.split?.heads ?? 4])].sort(byValue);
  const all = [...new Set([...counts, ...own.map((row) => row[3])])].sort(byValue);
  const colourOf = (heads) => headColour(all.indexOf(heads));
  within(chart, () => {
    for (const heads of counts) {
      const points = [];
      for (let keyDim = 1; keyDim * heads <= most && keyDim <= state.pd; keyDim += 1) {
        const possible = adviser.exists(heads, keyDim);
        points.push([keyDim * heads, possible ? adviser.chance(heads, keyDim, state.ps) : 0]);
      }
      const alpha = advice.outside ? 0.35 : 1;
      if (points.length) line(chart, points, { colour: colourOf(heads), width: 2, alpha });
    }
    for (const [, , , heads, budget, mean, runs] of own) {
      point(chart, budget, mean, { colour: colourOf(heads), size: 4.5, alpha: 0.75,
        text: `${heads} × ${budget / heads}: mean F1 ${mean} of ${runs} runs` });
    }
  });
  legend.replaceChildren(...all.map((heads) => {
    const entry = Object.assign(document.createElement("li"), {
      textContent: heads === 1 ? "one head" : `${heads} heads` });
    entry.style.setProperty("--head", colourOf(heads));
    entry.classList.toggle("lined", counts.includes(heads));
    entry.classList.toggle("dotted", own.some((row) => row[3] === heads));
    return entry;
  }));
  if (!own.length) {
    mark(chart, most, 0, "no shipped runs at these sizes", { colour: colours.soft, align: "right",
      shift: [-4, -12] });
  }
  charts[1] = chart;
}

function fillTable(items, edges, adviser, advice) {
  const whole = (value) => Math.ceil(value).toLocaleString("en");
  const span = theory.laws.compiled.interval.map((factor) =>
    whole(factor * fittedBudget(theory.laws.compiled, items, edges, state.pd)));
  const rows = [
    ...lowerBounds(theory, items, edges, state.pd).map(([name, budget]) =>
      [`${name} (lower bound)`, `≥ ${whole(budget)}`, "any"]),
    ["compiled law", `≈ ${whole(fittedBudget(theory.laws.compiled, items, edges, state.pd))} `
      + `(95 %: ${span.join(" … ")})`, "found"],
    ...[advice.split, ...advice.others].filter(Boolean).map((split) =>
      [`${split.steps.toLocaleString("en")} steps`, `≈ ${whole(split.budget)}`,
        `${split.heads} × ${split.keyDim}`]),
    ...constructions(theory, items, edges, state.pd).map((one) =>
      [`${one.name} construction${one.met ? "" : " (its condition fails)"}`,
        `≤ ${whole(one.budget)}`, `${one.heads} × ${one.keyDim}`]),
  ];
  table.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((text, i) => Object.assign(document.createElement(i ? "td" : "th"), {
      textContent: text })));
    return row;
  }));
}

hover(laws, (x, y) => hit(charts[0], x, y));
hover(chances, (x, y) => hit(charts[1], x, y));

export const planView = { show: draw, redraw: draw };

onTheme(draw);
onState((names) => {
  if (state.view === "plan" && names.some((name) => /^p[mdrs]$/.test(name))) draw();
});
