/** Section 5: a constructed score is its signal and three noise terms that grow with the block. */

import { gaussianTable, permutationGraph } from "../engine/problem.js";
import { Decomposition, blocksOf, predictedN3, signatures } from "../theory/noise.js";
import { fitted, hover, letterSize, setFont } from "./canvas.js";
import { chartOn, hit, line, mark, point, within } from "./chart.js";
import { drawMatrix, ordering, pairAt } from "./matrix.js";
import { chosenPair } from "./problems.js";
import { change, constructedHeads, onState, state } from "./state.js";
import { colours, headColour, onTheme } from "./theme.js";

const PARTS = [["signal", "signal", 2], ["n1", "N₁", 4], ["n2", "N₂", 1], ["n3", "N₃", 3]];
const ARROWS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
const section = document.getElementById("interference");
const [bars, matrix, growth] = ["bars", "matrix", "growth"].map((name) =>
  section.querySelector(`.${name}`));
const told = section.querySelector(".told");

let built = null;
let chart = null;

/** Construct the weights, decompose all pairs of the head that owns the chosen source. */
function build() {
  const { im: items, id: dModel, ik: keyDim, seed } = state;
  const graph = permutationGraph(items, seed);
  const rows = gaussianTable(items, dModel, seed);
  const signed = signatures(items, keyDim, seed);
  const blocks = blocksOf(items, constructedHeads());
  const [source, target] = chosenPair();
  const head = blocks.findIndex(([first, end]) => source >= first && source < end);
  const parts = new Decomposition(rows, dModel, graph.targets, signed, keyDim, blocks[head]);
  const scores = parts.scores(items);
  built = { graph, rows, signed, blocks, head, parts, scores, source, target };
  Object.assign(built, { keyDim, dModel, items });
  built.spread = spreads();
}

/** Root mean square of each part over the pairs of one head, by the size of its block. */
function spreads() {
  const { items, rows, dModel, graph, signed, keyDim } = built;
  const found = [];
  for (let block = 2; ; block *= 2) {
    const size = Math.min(block, items);
    const parts = new Decomposition(rows, dModel, graph.targets, signed, keyDim, [0, size]);
    const step = Math.max(1, Math.floor(items / 32));
    const sums = { n1: [0, 0], n2: [0, 0], n3: [0, 0] };
    for (let i = 0; i < items; i += step) {
      for (let j = 0; j < items; j += step) {
        const found_ = parts.of(i, j);
        for (const [name, sum] of Object.entries(sums)) {
          if (found_[name] === 0) continue;
          sum[0] += found_[name] ** 2;
          sum[1] += 1;
        }
      }
    }
    const rms = ([squares, count]) => Math.sqrt(squares / Math.max(1, count));
    found.push([size, rms(sums.n1), rms(sums.n2), rms(sums.n3)]);
    if (size === items) return found;
  }
}

function draw() {
  if (!bars.clientWidth) return;
  const { graph, parts, scores, source, target, keyDim, blocks, head, items } = built;
  const order = ordering(graph);
  drawMatrix(matrix, scores, graph, order, {
    threshold: keyDim / 2, winner: new Uint8Array(items * items).fill(head) });
  built.order = order;
  const found = parts.of(source, target);
  drawBars(found, keyDim);
  drawGrowth();
  const total = PARTS.reduce((sum, [name]) => sum + found[name], 0);
  const isEdge = graph.targets[source] === target;
  const right = isEdge === total > keyDim / 2;
  const wrong = scores.reduce((count, score, pair) => {
    const [i, j] = [Math.floor(pair / items), pair % items];
    const inBlock = i >= blocks[head][0] && i < blocks[head][1];
    const edge = inBlock && graph.targets[i] === j;
    return count + (edge !== score > keyDim / 2 ? 1 : 0);
  }, 0);
  const kind = isEdge ? "an edge" : "not an edge";
  told.textContent = `Pair ${source} → ${target} is ${kind}: its score is ${total.toFixed(1)}, `
    + `the threshold ${keyDim / 2}, so it is decided `
    + `${right ? "correctly" : "wrongly"}. Head ${head + 1} of ${blocks.length} has `
    + `${blocks[head][1] - blocks[head][0]} sources and errs on ${wrong.toLocaleString("en")} of `
    + `${(items ** 2).toLocaleString("en")} pairs.`;
}

/** The chosen score as a waterfall: each part begins where the one before it ended. */
function drawBars(found, keyDim) {
  const { pen, width, height } = fitted(bars);
  const letter = letterSize();
  let sum = 0;
  const steps = PARTS.map(([name, label, colour]) => {
    const from = sum;
    sum += found[name];
    return { label, from, to: sum, colour: headColour(colour), text: found[name].toFixed(1) };
  });
  steps.push({ label: "score", from: 0, to: sum, colour: colours.text, text: sum.toFixed(1) });
  bars.setAttribute("aria-label", steps.map(({ label, text }) => `${label} ${text}`).join(", "));
  const ends = [0, keyDim * 1.1, ...steps.map((one) => one.to)];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const pad = 0.08 * (high - low);
  const x = (value) => letter * 4.2
    + ((value - low + pad) / (high - low + 2 * pad)) * (width - letter * 7.5);
  const row = (height - letter * 2.2) / steps.length;
  setFont(pen);
  pen.textBaseline = "middle";
  steps.forEach(({ label, from, to, colour, text }, i) => {
    const y = row * (i + 0.5);
    pen.fillStyle = colours.text;
    pen.textAlign = "left";
    pen.fillText(label, 0, y);
    pen.fillStyle = colour;
    pen.fillRect(Math.min(x(from), x(to)), y - row * 0.3, Math.max(1.5, Math.abs(x(to) - x(from))),
      row * 0.6);
    pen.fillStyle = colours.text;
    pen.fillText(text, Math.max(x(from), x(to)) + letter * 0.5, y);
  });
  for (const [value, label] of [[0, "0"], [keyDim / 2, "τ = d_k/2"], [keyDim, "d_k"]]) {
    pen.strokeStyle = value === keyDim / 2 ? colours.wrong : colours.line;
    pen.setLineDash(value === keyDim / 2 ? [5, 4] : []);
    pen.beginPath();
    pen.moveTo(x(value), 0);
    pen.lineTo(x(value), row * steps.length);
    pen.stroke();
    pen.fillStyle = colours.soft;
    pen.textAlign = "center";
    pen.fillText(label, x(value), height - letter);
  }
  pen.setLineDash([]);
}

function drawGrowth() {
  const { spread, keyDim, items, dModel, blocks, head } = built;
  const law = spread.map(([block]) => [block, predictedN3(items, dModel, block, keyDim)]);
  const tops = [keyDim, ...spread.flatMap((row) => row.slice(1)), ...law.map((row) => row[1])];
  const least = Math.min(...spread.flatMap((row) => row.slice(1)).filter((value) => value > 0));
  chart = chartOn(growth, { low: 2, high: items, log: true, title: "block: sources per head, m/h" },
    { low: Math.max(0.05, Math.min(least, law[0][1]) * 0.6), high: Math.max(...tops) * 1.5,
      log: true, title: "size (root mean square)" });
  const size = blocks[head][1] - blocks[head][0];
  within(chart, () => {
    line(chart, [[2, keyDim], [items, keyDim]], { colour: headColour(2), width: 2.5 });
    line(chart, [[2, keyDim / 2], [items, keyDim / 2]],
      { colour: colours.wrong, width: 1, dash: [5, 4] });
    line(chart, [[size, 1e-3], [size, 1e6]], { colour: colours.soft, width: 1, dash: [2, 3] });
    line(chart, law, { colour: headColour(3), width: 1.2, dash: [7, 3] });
    PARTS.slice(1).forEach(([, label, colour], k) => {
      const all = spread.map((values) => [values[0], values[k + 1]]);
      const rows = all.filter(([, value]) => value > 0);
      line(chart, rows, { colour: headColour(colour), width: 2 });
      for (const [block, value] of rows) {
        point(chart, block, value, { colour: headColour(colour), size: 4.5,
          text: `${label} at a block of ${block}: ${value.toFixed(2)}` });
      }
      const [block, value] = rows[Math.floor(rows.length / 3)];
      mark(chart, block, value, label, { colour: headColour(colour), align: "center", weight: 600,
        shift: [0, k === 0 ? -13 : 14] });
    });
    mark(chart, 2, keyDim, "signal d_k", { colour: headColour(2), shift: [6, -9], weight: 600 });
    mark(chart, items, keyDim / 2, "threshold", { colour: colours.wrong, align: "right",
      shift: [-6, 10] });
    const [block, value] = law[1];
    mark(chart, block, value, "law of N₃, Eq. (1)", { colour: headColour(3), shift: [8, 9] });
    mark(chart, size, chart.floor, "now", { colour: colours.soft, shift: [6, -9] });
  });
}

hover(growth, (x, y) => hit(chart, x, y));
hover(matrix, (x, y) => {
  const pair = built?.order && pairAt(matrix, built.order, x, y);
  if (!pair) return null;
  const [i, j] = pair;
  return `${i} → ${j}: ${built.scores[i * built.items + j].toFixed(1)}`;
});
matrix.addEventListener("click", (event) => {
  const box = matrix.getBoundingClientRect();
  const pair = pairAt(matrix, built.order, event.clientX - box.left, event.clientY - box.top);
  if (pair) change({ ii: pair[0], ij: pair[1] });
});
matrix.addEventListener("keydown", (event) => {
  const by = ARROWS[event.key];
  if (!by || !built) return;
  event.preventDefault();
  const { order, source, target, items } = built;
  const turned = (list, item, step) => list[(list.indexOf(item) + step + items) % items];
  change({ ii: turned(order.rows, source, by[0]), ij: turned(order.columns, target, by[1]) });
});

export const interference = {
  show() { build(); draw(); },
  redraw() { if (built) draw(); },
};

onTheme(() => built && draw());
let rebuilding = 0;
onState((names) => {
  if (state.view !== "interference") return;
  if (!names.some((name) => /^i[mdkhij]$|^seed$/.test(name))) return;
  clearTimeout(rebuilding);
  rebuilding = setTimeout(interference.show, 60);
});
