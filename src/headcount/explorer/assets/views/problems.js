/** The problem that the sliders describe: a permutation of numbers, or opposite words. */

import { graphOf, permutationGraph } from "../engine/problem.js";
import { keyHeads, state } from "./state.js";

const OPPOSITES = JSON.parse(document.getElementById("antonyms").textContent);

/** The most words that there are. */
export const MOST_WORDS = 2 * OPPOSITES.length;

/** The graph, its names where it has any, and its pairs where they are not a seed's draw. */
export function problemOf(items, seed) {
  if (state.graph !== "antonyms") {
    return { graph: permutationGraph(items, seed), names: null, pairs: null };
  }
  const words = OPPOSITES.slice(0, Math.floor(items / 2)).flat().sort();
  const place = new Map(words.map((word, i) => [word, i]));
  const pairs = OPPOSITES.slice(0, Math.floor(items / 2)).flatMap(([a, b]) =>
    [[place.get(a), place.get(b)], [place.get(b), place.get(a)]]);
  return { graph: graphOf(words.length, pairs), names: words, pairs };
}

/** The number of items that the problem has: words come in pairs, and there are only so many. */
export const itemsNow = () =>
  (state.graph === "antonyms" ? Math.min(state.m - (state.m % 2), MOST_WORDS) : state.m);

/** The run that the sliders describe, and one head of the same budget. */
export function specsNow() {
  const common = {
    items: itemsNow(), dModel: state.d, seed: state.seed, isPermutation: state.graph !== "antonyms",
  };
  const many = { ...common, heads: state.h, keyDim: state.k, keyHeads: keyHeads() };
  return [{ ...common, heads: 1, keyDim: state.h * state.k, keyHeads: 1 }, many];
}

/** The pair whose constructed score is taken apart: by default an item and its target. */
export function chosenPair() {
  const source = Math.min(state.ii, state.im - 1);
  const given = state.ij >= 0 && state.ij < state.im;
  return [source, given ? state.ij : permutationGraph(state.im, state.seed).targets[source]];
}
