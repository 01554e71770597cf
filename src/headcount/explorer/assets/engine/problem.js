/** Graphs, tables and first weights as headcount draws them from a seed. */

import { Generator } from "./numpy.js";
import { streamKey } from "./streams.js";

const [TABLE, WEIGHTS] = [0x7ab, 0x3e1]; // salts of embeddings.py and task.py

/** A directed graph by its sorted edges: item i has those of starts[i] … starts[i + 1] − 1. */
export function graphOf(items, pairs) {
  const sorted = [...pairs].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const starts = new Int32Array(items + 1);
  for (const [source] of sorted) starts[source + 1] += 1;
  for (let i = 0; i < items; i += 1) starts[i + 1] += starts[i];
  const sources = Int32Array.from(sorted, (pair) => pair[0]);
  const targets = Int32Array.from(sorted, (pair) => pair[1]);
  const isEdge = new Uint8Array(items * items);
  for (const [source, target] of sorted) isEdge[source * items + target] = 1;
  return { items, edges: sorted.length, starts, sources, targets, isEdge };
}

/** `permutation_graph(items, seed)`. */
export function permutationGraph(items, seed) {
  const targets = new Generator(seed).permutation(items);
  return graphOf(items, Array.from(targets, (target, source) => [source, target]));
}

/** `gaussian_embeddings(items, d_model, seed)`: unit-norm rows, one after the other. */
export function gaussianTable(items, dModel, seed) {
  const rows = new Generator([seed, TABLE]).normals(items * dModel);
  for (let i = 0; i < items; i += 1) {
    const row = rows.subarray(i * dModel, (i + 1) * dModel);
    const norm = Math.sqrt(row.reduce((sum, x) => sum + x * x, 0));
    row.forEach((x, j) => { row[j] = x / norm; });
  }
  return Float32Array.from(rows);
}

/** A run's sizes and protocol: what `RunSpec` has, for the variant max. */
export function runSpec(given) {
  const spec = {
    items: 64, dModel: 16, heads: 4, keyDim: 7, keyHeads: given.heads ?? 4, seed: 0, degree: 1,
    length: 16, rate: 0.5, learningRate: 1e-3, sharpness: 10, steps: 20000, checkEvery: 500,
    patience: 5, target: 0.995, validation: 500, isPermutation: true, ...given,
  };
  return { ...spec, length: Math.min(spec.length, spec.items) };
}

/** The name of the random stream of its training contexts and first weights. */
export function streamName(spec) {
  const { items, dModel, heads, keyDim, degree, length, rate, seed } = spec;
  return [items, dModel, heads, keyDim, degree, "max", length, rate, seed].join("/");
}

/** The key of the stream its training contexts come from. */
export const trainingKey = (spec) => streamKey(spec.seed, streamName(spec));

/** W_Q and W_K before the first step: normal with standard deviation 1/√d_model. */
export function firstWeights(spec) {
  const { heads, keyHeads, dModel, keyDim } = spec;
  const key = streamKey(streamName(spec));
  const rng = new Generator([key < 0n ? -key : key, WEIGHTS]);
  const scale = Math.fround(Math.sqrt(dModel));
  const draws = rng.normals32((heads + keyHeads) * dModel * keyDim).map((x) => x / scale);
  const cut = heads * dModel * keyDim;
  return { queries: draws.slice(0, cut), keys: draws.slice(cut) };
}
