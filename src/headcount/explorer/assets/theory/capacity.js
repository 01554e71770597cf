/** The capacity law and the law of steps: theory/capacity_law.py, refined_law.py, steps_law.py. */

import { density, normalShare, rootBetween, softplus } from "./special.js";

/** The mean of (θ + z)₊² over a standard normal z. */
const meanSquare = (cut) => (1 + cut * cut) * normalShare(cut) + cut * density(cut);

/** Half its derivative: the mean of (θ + z)₊. */
const meanPart = (cut) => cut * normalShare(cut) + density(cut);

/** α_c(f): random patterns per weight that a perceptron with a free threshold can label. */
export function gardnerCapacity(rate) {
  if (rate === 0.5) return 2;
  const slope = (cut) => rate * meanPart(cut) - (1 - rate) * meanPart(-cut);
  const cut = rootBetween(slope, -40, 40);
  return 1 / (rate * meanSquare(cut) + (1 - rate) * meanSquare(-cut));
}

/** N = m²/α_c(m'/m²): the degrees of freedom that a graph of m' edges takes. */
export const freedomNeeded = (items, edges) =>
  items ** 2 / gardnerCapacity(edges / items ** 2);

/** d(h + g)k − gk² for h query heads and g key heads; width past d adds nothing. */
export function degreesOfFreedom(dModel, heads, keyDim, keyHeads = heads) {
  const width = Math.min(keyDim, dModel);
  return dModel * (heads + keyHeads) * width - keyHeads * width ** 2;
}

/** R: the degrees of freedom there are over those needed. */
export const capacityRatio = (items, edges, dModel, heads, keyDim, keyHeads = heads) =>
  degreesOfFreedom(dModel, heads, keyDim, keyHeads) / freedomNeeded(items, edges);

/** The number of items of permutations at which one needs this much freedom. */
export const itemsWithFreedom = (needed) =>
  rootBetween((items) => items ** 2 / gardnerCapacity(1 / items) - needed, 1 + 1e-6,
    Math.max(4, needed) ** 2 + 1);

/** G: the squared Gaussian width of h matrices of rank k over N. */
export function widthRatio(items, edges, dModel, heads, keyDim) {
  const needed = freedomNeeded(items, edges);
  if (keyDim >= dModel) return (heads * dModel ** 2) / needed;
  const share = keyDim / dModel;
  const end = rootBetween((angle) => (2 * angle - Math.sin(2 * angle)) / Math.PI - share,
    0, Math.PI / 2);
  return (heads * dModel ** 2 * (2 / Math.PI) * (end - Math.sin(4 * end) / 4)) / needed;
}

/** The law of steps with the constants that Python fitted. */
export class StepsLaw {
  constructor(constants) {
    Object.assign(this, constants);
  }

  #power(power, items, degree, dModel, heads, share) {
    return power.scale * Math.exp(
      power.items * Math.log(items / this.centre.items)
      + power.d_model * Math.log(dModel / this.centre.d_model)
      + power.degree * Math.log(degree) + power.heads * Math.log(heads)
      + power.share * Math.log(share));
  }

  /** ln(steps), where `needed` is `freedomNeeded(items, edges)`. */
  logSteps(needed, items, edges, dModel, heads, keyDim) {
    const sizes = [items, edges / items, dModel, heads, Math.min(keyDim, dModel) / dModel];
    const lost = this.#power(this.lost, ...sizes);
    const left = this.softness * softplus((keyDim - lost) / this.softness);
    const width = Math.min(Math.max(left, 1e-9), dModel); // no column left: as good as never
    const ratio = (heads * width * (2 * dModel - width)) / needed;
    return Math.log(this.#power(this.base, ...sizes)) + this.#power(this.barrier, ...sizes) / ratio;
  }

  #logit(spare, dModel) {
    const [intercept, slope, narrow] = this.odds;
    return intercept + slope * spare + narrow * Math.min(Math.log(dModel / this.wide_table), 0);
  }

  /** The chance that training reaches a mean F1 of 0.99 in these steps. */
  chance(needed, items, edges, dModel, heads, keyDim, steps) {
    const predicted = this.logSteps(needed, items, edges, dModel, heads, keyDim);
    return 1 / (1 + Math.exp(-this.#logit(Math.log(steps) - predicted, dModel)));
  }

  /** The steps that give this chance where the law predicts `predicted` steps. */
  stepsFor(predicted, dModel, chance) {
    const spare = (Math.log(chance / (1 - chance)) - this.#logit(0, dModel)) / this.odds[1];
    return predicted * Math.exp(spare);
  }
}
