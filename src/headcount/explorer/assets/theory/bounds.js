/** Lower bounds, fitted laws and constructions of D_K: what theory/planner.py sets in rows. */

import { logBinomial, logGamma, smallestInteger } from "./special.js";

const ROUNDING = 1e-12; // bits are reduced by this share, so that rounding never excludes a budget

/** log2 of the number of permutations, or of graphs with m' edges. */
export function logGraphs(items, edges) {
  const natural = edges === items ? logGamma(items + 1) : logBinomial(items * (items - 1), edges);
  return natural / Math.log(2);
}

const parameters = (dModel, budget) => 2 * dModel * budget + 1;

/** The bits that sign patterns hold (Warren 1968). */
function warrenBits(reals, pairs, heads) {
  const polynomials = heads * pairs;
  if (reals > polynomials) return pairs;
  return Math.min(pairs, reals * Math.log2((8 * Math.E * polynomials) / reals));
}

/** The smallest D_K that each bound leaves: bit budget, margin and sign patterns, under max. */
export function lowerBounds(constants, items, edges, dModel) {
  const needed = logGraphs(items, edges) * (1 - ROUNDING);
  const least = (held) => smallestInteger(held, needed);
  const { margin } = constants;
  return [
    ["bit budget", least((budget) => constants.bits * parameters(dModel, budget))],
    ["margin", least((budget) => 2 * dModel * budget * Math.log2(1 + 2 / margin))],
    ["sign patterns", least((budget) =>
      warrenBits(parameters(dModel, budget), items * (items - 1), budget))],
  ];
}

/** slope·m' log₂ m/d_model, at least 1. */
export const fittedBudget = (law, items, edges, dModel) =>
  Math.max(1, (law.slope * edges * Math.log2(items)) / dModel);

/** The paper's fits that apply: the main one, and a second for its own range. */
export function paperLaws(constants, items, edges, dModel) {
  const { permutations, wide, regular } = constants.laws;
  if (edges > items) return [permutations, regular];
  return dModel > 16 ? [permutations, wide] : [permutations];
}

/** The constructions that apply under max to a graph as even as can be. */
export function constructions(constants, items, edges, dModel) {
  const degree = Math.ceil(edges / items);
  const log = Math.log(items);
  const made = (name, heads) => {
    const { C, c0 = 0 } = constants.constructions[name];
    const [keyDim, met] = [Math.ceil(C * log), dModel >= c0 * log];
    return { name, heads, keyDim, budget: heads * keyDim, met };
  };
  const blocks = Math.ceil(edges / dModel);
  const found = [];
  if (degree === 1 && dModel >= items) found.push(made("one-hot", 1));
  else if (degree === 1 && edges === items) found.push(made("compressive", blocks));
  else found.push(made("general-graph", Math.max(blocks, degree)));
  if (dModel < items) found.push(made("pseudo-inverse", Math.max(4 * blocks, degree)));
  return found;
}
