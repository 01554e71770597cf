/** What to train for a graph, under max: theory/adviser.py with the constants that Python ships. */

import { StepsLaw, capacityRatio, freedomNeeded, widthRatio } from "./capacity.js";

/** The first size outside what was measured, in words, or null. */
export function beyondMeasured(range, items, edges, dModel, steps) {
  const perDimension = [
    range.items_per_dimension[0],
    edges === items ? range.permutations_to : range.items_per_dimension[1],
  ];
  const sizes = [
    ["items", items, range.items], ["d_model", dModel, range.d_model],
    ["edges per item", edges / items, range.degree],
    ["items per dimension", items / dModel, perDimension], ["steps", steps, range.steps],
  ];
  for (const [name, value, [low, high]] of sizes) {
    if (value < low || value > high) {
      const shown = (Number.isInteger(value) ? value : Number(value.toPrecision(3)))
        .toLocaleString("en");
      return `${name} ${shown}; measured: ${low.toLocaleString("en")} to `
        + high.toLocaleString("en");
    }
  }
  return items / (edges / items) < range.items_per_edge ? "too many edges per item" : null;
}

/** Advice on splits: which heads and widths reach a chance within some steps. */
export class Adviser {
  constructor(constants, items, edges, dModel, chance = constants.usual_chance) {
    Object.assign(this, { constants, items, edges, dModel, chance_: chance });
    this.law = new StepsLaw(constants.steps_law);
    this.needed = freedomNeeded(items, edges);
    this.oneHeadRatio = capacityRatio(items, edges, dModel, 1, dModel);
  }

  /** The advice for these steps: a split, other steps' splits, and what is outside. */
  advise(steps = this.constants.usual_steps) {
    const { constants, items, edges, dModel } = this;
    const outside = beyondMeasured(constants.range, items, edges, dModel, steps);
    if (outside) return { split: null, others: [], outside, oneHeadRatio: this.oneHeadRatio };
    const others = constants.traded_steps.filter((count) => count !== steps);
    return {
      split: this.narrowest(steps),
      others: others.map((count) => this.narrowest(count)).filter(Boolean),
      outside: null,
      oneHeadRatio: this.oneHeadRatio,
    };
  }

  /** The smallest D_K that reaches the chance within these steps. */
  narrowest(steps) {
    let best = null;
    for (const heads of this.constants.head_counts) {
      const found = this.#least(heads, steps);
      if (!found) continue;
      const smaller = best && found.budget === best.budget && found.chance > best.chance;
      if (!best || found.budget < best.budget || smaller) best = found;
    }
    return best;
  }

  /** The chance of a split within these steps. */
  chance(heads, keyDim, steps) {
    const { needed, items, edges, dModel } = this;
    return this.law.chance(needed, items, edges, dModel, heads, keyDim, steps);
  }

  /** Whether the capacity law leaves room for one head; several are not limited by it. */
  exists(heads, keyDim) {
    if (heads > 1) return true;
    if (this.oneHeadRatio < this.constants.impossible) return false;
    const { items, edges, dModel } = this;
    return keyDim === dModel || widthRatio(items, edges, dModel, 1, keyDim) >= 1;
  }

  #least(heads, steps) {
    const { needed, items, edges, dModel, constants } = this;
    const widest = Math.min(dModel, Math.floor(constants.most_columns / heads));
    for (let keyDim = 1; keyDim <= widest; keyDim += 1) {
      const logs = this.law.logSteps(needed, items, edges, dModel, heads, keyDim);
      const predicted = Math.exp(Math.min(logs, 100));
      if (this.law.stepsFor(predicted, dModel, this.chance_) > steps) continue;
      if (!this.exists(heads, keyDim)) continue;
      const chance = this.chance(heads, keyDim, steps);
      return { heads, keyDim, steps, budget: heads * keyDim, chance };
    }
    return null;
  }

  /** D_K of narrow heads at the 5th percentile, median and 95th of the ratios that trained. */
  trainedBudgets() {
    return this.constants.trained_ratios.map((ratio) =>
      Math.ceil((ratio * this.needed) / (2 * this.dModel)));
  }
}

/** The advice in words, with the bounds left out. */
export function adviceText({ split, outside, oneHeadRatio }, impossible, steps) {
  const tail = oneHeadRatio < impossible
    ? ` One head can never do it: its capacity ratio is at most ${oneHeadRatio.toFixed(2)}, where `
      + "training needs 1."
    : "";
  if (outside) return `Outside the measured range (${outside}), so no split is advised.${tail}`;
  const within = steps.toLocaleString("en");
  if (!split) return `No split reaches the chance within ${within} steps.${tail}`;
  const heads = split.heads === 1 ? "one head" : `${split.heads} heads`;
  return `Train ${heads} of width ${split.keyDim} (D_K = ${split.budget}) for `
    + `${split.steps.toLocaleString("en")} steps: the chance of a mean F1 of 0.99 is `
    + `${Math.round(100 * split.chance)} %.${tail}`;
}
