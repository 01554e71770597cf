/** One's own weights on one's own graph and table, in the same pictures. */

import { graphOf } from "../engine/problem.js";
import { scoreTable, summary } from "../engine/scores.js";
import { announce, hover } from "./canvas.js";
import { drawCircle, itemWords, wrongPairs } from "./circle.js";
import { fittedEdges, readEdges } from "./edge_file.js";
import { BadFile, readWeights } from "./files.js";
import { drawMatrix, ordering, pairAt } from "./matrix.js";
import { itemPicker } from "./picker.js";
import { decoded } from "./separated.js";
import { change, onState } from "./state.js";
import { readTable } from "./table_file.js";
import { headColour, onTheme } from "./theme.js";

const MOST_HEADS = 64; // drawn one by one
const ROUNDING = 1e-11; // of float64 over a score's many terms
const section = document.getElementById("weights");
const [circle, matrix, heads, facts] = [".circle", ".matrix", ".heads", ".facts"].map((name) =>
  section.querySelector(name));
const [told, picked] = [".told", ".picked"].map((name) => section.querySelector(name));
const drop = section.querySelector(".drop");

const given = { weights: null, edges: null, table: null }; // what was read so far
const names = { weights: "", edges: "", table: "" }; // of the files
let shown = null;

/** Which of the three a file is, read: by its suffix, and for .safetensors by its contents. */
async function readFile(file) {
  const suffix = file.name.toLowerCase().split(".").pop();
  const buffer = await file.arrayBuffer();
  if (suffix === "csv" || suffix === "tsv") {
    return ["edges", readEdges(decoded(buffer, file.name), file.name)];
  }
  if (suffix === "npy") return ["table", readTable(buffer, file.name)];
  if (suffix !== "safetensors") {
    throw new BadFile(`${file.name}: unknown kind of file; give weights (.safetensors), a graph `
      + "(.csv) and a table (.npy)");
  }
  try {
    return ["weights", readWeights(buffer, file.name)];
  } catch (error) {
    if (!/does not hold key-query weights/.test(error.message)) throw error;
    try {
      return ["table", readTable(buffer, file.name)];
    } catch {
      throw error; // what the weights lack says more than what a table would
    }
  }
}

async function take(files) {
  let name = "";
  try {
    for (const file of files) {
      name = file.name;
      const [kind, content] = await readFile(file);
      given[kind] = content;
      names[kind] = file.name;
    }
    show();
  } catch (error) {
    if (!(error instanceof BadFile)) console.warn(error);
    hideResults();
    const text = error instanceof BadFile ? error.message
      : `${name}: could not be read; check that it is whole`;
    say(`${text}.`, true);
  }
}

/** What was drawn before is not of the files that the sentence is about. */
function hideResults() {
  shown = null;
  section.classList.remove("filled");
  facts.replaceChildren();
}

function say(text, bad = false) {
  told.textContent = text;
  told.classList.toggle("bad", bad);
  announce(text);
}

function show() {
  const missing = Object.entries({
    weights: "weights (.safetensors)", edges: "a graph (.csv)", table: "a table (.npy)",
  }).filter(([kind]) => !given[kind]).map(([, words]) => words);
  if (missing.length) {
    const got = Object.values(names).filter(Boolean).join(", ");
    say(`${got ? `Read ${got}. ` : ""}Still needed: ${missing.join(" and ")}.`);
    return;
  }
  const { weights, edges, table } = given;
  const graph = graphOf(table.items, fittedEdges(weights, edges, table));
  const scores = scoreTable(weights, table.rows, table.items, Float64Array);
  const found = summary(scores, graph, weights.threshold);
  shown = { graph, ...scores, ...found, threshold: weights.threshold, names: table.names };
  section.classList.add("filled");
  report(weights, graph, found);
}

function report(weights, graph, found) {
  const missed = graph.edges - found.hits;
  const exact = !missed && !found.falsePositives;
  const size = Math.max(Math.abs(found.lowestEdge), Math.abs(found.highestOther));
  if (Math.abs(found.margin) < ROUNDING * size) {
    say("Too close to the threshold for the rounding of this page; headcount verify decides it "
      + "exactly.");
  } else say(exact
    ? "Exact: every edge scores above the threshold and no other pair does, in every context."
    : `Not exact: ${missed} of ${graph.edges} edges are missed and ${found.falsePositives} other `
      + "pairs are taken for edges.");
  const f1 = (2 * found.hits) / (2 * found.hits + missed + found.falsePositives || 1);
  const keys = weights.keyHeads < weights.heads ? `, ${weights.keyHeads} key heads` : "";
  const same = [...new Set(weights.widths)].map((width) =>
    `${weights.widths.filter((one) => one === width).length} × ${width}`);
  const rows = [
    ["heads", `${same.join(", ")}${keys}`],
    ["D_K", weights.widths.reduce((sum, width) => sum + width, 0)],
    ["F1 on all pairs", f1.toFixed(3)],
    ["threshold τ", weights.threshold.toPrecision(4)], ["margin", found.margin.toPrecision(3)],
    ["lowest edge", found.lowestEdge.toPrecision(4)],
    ["highest other", found.highestOther.toPrecision(4)],
  ];
  facts.innerHTML = rows.map(([name, value]) =>
    `<div><dt>${name}</dt><dd>${value}</dd></div>`).join("");
  heads.replaceChildren(...shown.perHead.slice(0, MOST_HEADS).map((scores, head) => {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    const owned = found.owner.filter((owner, e) => owner === head && found.found[e]).length;
    const caption = document.createElement("figcaption");
    caption.textContent = `head ${head + 1}: ${owned} edges`;
    canvas.setAttribute("aria-label", `Scores of ${caption.textContent}`);
    figure.append(canvas, caption);
    return figure;
  }));
  draw();
}

function drawItems() {
  if (!shown || !circle.clientWidth) return;
  const { graph } = shown;
  shown.wrong ??= wrongPairs(shown, graph);
  shown.drawn = drawCircle(circle, graph,
    { shown, chosen: picker.item(), names: shown.names });
  picked.textContent = picker.describe(`${shown.hits} of ${graph.edges} edges found`);
}

function draw() {
  if (!shown || !circle.clientWidth) return;
  drawItems();
  const { graph, joined, perHead } = shown;
  shown.order = ordering(graph, shown.owner);
  drawMatrix(matrix, joined, graph, shown.order, shown);
  heads.querySelectorAll("figure").forEach((figure, head) => {
    figure.querySelector("figcaption").style.setProperty("--head", headColour(head));
    drawMatrix(figure.querySelector("canvas"), perHead[head], graph, shown.order,
      { ...shown, head });
  });
}

const nameOf = (item) => shown.names?.[item] ?? `item ${item}`;
const picker = itemPicker(circle, { items: () => shown?.graph.items ?? 0,
  picture: () => shown?.drawn, words: (item) => itemWords(item, shown, shown.graph, nameOf),
  redraw: drawItems });
hover(matrix, (x, y) => {
  const pair = shown && pairAt(matrix, shown.order, x, y);
  return pair ? `${nameOf(pair[0])} → ${nameOf(pair[1])}: `
    + `${shown.joined[pair[0] * shown.graph.items + pair[1]].toPrecision(3)}` : null;
});
section.querySelector("input[type=file]").addEventListener("change", (event) => {
  take([...event.target.files]);
  event.target.value = ""; // or the same file, mended, would be no change
});
for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) {
      change({ view: "weights" });
      take([...event.dataTransfer.files]);
    }
  });
}

/** What the command embedded, if it was given files. */
function takeEmbedded() {
  const element = document.getElementById("embedded");
  if (!element || given.weights) return false;
  const { weights, table, pairs, names: words, label } = JSON.parse(element.textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  given.weights = readWeights(bytes(weights), label);
  given.table = { ...readTable(bytes(table), "table.npy"), names: words };
  given.edges = { pairs, named: false };
  return true;
}

export const weightsView = {
  show() { if (shown) draw(); else if (takeEmbedded()) show(); },
  redraw: draw,
};

onTheme(draw);
onState((names) => { if (names.includes("item")) drawItems(); });
