/**
 * Trains runs beside the page. Asked to advance, it takes steps of all runs in turn for at most the
 * time given, and answers with a frame: what the page draws of each run.
 */

import {
  gaussianTable, graphOf, permutationGraph, runSpec, trainingKey,
} from "./engine/problem.js";
import { Run } from "./engine/training.js";

let runs = [];
let epoch = 0; // frames of runs that were replaced meanwhile are told apart by it

/** Runs on one problem; all train on the contexts of the last one. */
function start({ specs, pairs, number }) {
  const full = specs.map(runSpec);
  const { items, dModel, seed } = full[0];
  const graph = pairs ? graphOf(items, pairs) : permutationGraph(items, seed);
  const rows = gaussianTable(items, dModel, seed);
  const key = trainingKey(full[full.length - 1]);
  runs = full.map((spec) => new Run(spec, graph, rows, key));
  epoch = number;
}

function advance(steps, milliseconds) {
  const until = performance.now() + milliseconds;
  let taken = 0;
  for (; taken < steps && performance.now() < until; taken += 1) {
    const going = runs.filter((run) => !run.ended);
    if (!going.length) break;
    for (const run of going) run.step();
  }
  return taken;
}

function frameOf(run, details) {
  const { joined, winner, perHead, ...rest } = run.check();
  const shown = details ? { joined, winner, perHead } : { joined, winner };
  return {
    ...rest, ...shown, step: run.taken, threshold: run.threshold, ended: run.ended,
    history: run.history, context: run.context.slice(),
  };
}

self.onmessage = ({ data }) => {
  if (data.kind === "start") start(data);
  const taken = data.kind === "advance" ? advance(data.steps, data.milliseconds) : 0;
  const frames = runs.map((run) => frameOf(run, data.details));
  const buffers = frames.flatMap(({ joined, winner, perHead = [] }) =>
    [joined, winner, ...perHead].map((array) => array.buffer));
  self.postMessage({ epoch, taken, frames }, buffers);
};
