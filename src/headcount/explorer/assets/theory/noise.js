/**
 * Signal and noise of a constructed score (Section 5, proof of Theorem B.2): theory/noise.py for
 * the weights of `construct(graph, table, "compressive", heads=h, key_dim=d_k)`, Algorithm 1.
 */

import { Generator } from "../engine/numpy.js";

const SIGNATURES = 0x519; // salt of constructions/template.py

/** Rademacher signatures w_j as items × d_k. A wider draw begins with the narrower one. */
export function signatures(items, keyDim, seed) {
  const columns = new Generator([seed, SIGNATURES]).signs(items * keyDim);
  const rows = new Float64Array(items * keyDim);
  for (let c = 0; c < keyDim; c += 1) {
    for (let i = 0; i < items; i += 1) rows[i * keyDim + c] = columns[c * items + i];
  }
  return rows;
}

/** Consecutive blocks of sources whose sizes differ by at most one, as numpy's array_split. */
export function blocksOf(items, heads) {
  const [size, larger] = [Math.floor(items / heads), items % heads];
  let next = 0;
  return Array.from({ length: heads }, (_, k) => {
    const first = next;
    next += size + (k < larger ? 1 : 0);
    return [first, next];
  });
}

const dot = (a, i, b, j, size) => {
  let sum = 0;
  for (let c = 0; c < size; c += 1) sum += a[i * size + c] * b[j * size + c];
  return sum;
};

/** Decomposes the scores of one head whose sources are `block`; targets are a permutation. */
export class Decomposition {
  constructor(rows, dModel, targets, signed, keyDim, [first, end]) {
    Object.assign(this, { rows, dModel, targets, signed, keyDim });
    this.sources = Array.from({ length: end - first }, (_, i) => first + i);
    this.ends = this.sources.map((source) => targets[source]);
    this.leaks = new Map();
  }

  /** δ_i W': what item i leaks into the head's signatures, through its sources or its targets. */
  #leak(item, members) {
    const name = `${members === this.sources}/${item}`;
    if (!this.leaks.has(name)) this.leaks.set(name, this.#summedLeak(item, members));
    return this.leaks.get(name);
  }

  #summedLeak(item, members) {
    const { rows, dModel, signed, keyDim, ends } = this;
    const out = new Float64Array(keyDim);
    members.forEach((member, place) => {
      const delta = dot(rows, item, rows, member, dModel) - (item === member ? 1 : 0);
      for (let c = 0; c < keyDim; c += 1) out[c] += delta * signed[ends[place] * keyDim + c];
    });
    return out;
  }

  /** e_i W': the item's own signature, or nothing where the head does not know the item. */
  #identity(item, members) {
    const place = members.indexOf(item);
    const { signed, keyDim, ends } = this;
    if (place < 0) return new Float64Array(keyDim);
    return signed.subarray(ends[place] * keyDim, (ends[place] + 1) * keyDim);
  }

  /** The scores of all pairs, items × items: all parts in one product. */
  scores(items) {
    const whole = (members) => Array.from({ length: items }, (_, i) => {
      const [own, leak] = [this.#identity(i, members), this.#leak(i, members)];
      return own.map((x, c) => x + leak[c]);
    });
    const [queries, keys] = [whole(this.sources), whole(this.ends)];
    const out = new Float32Array(items * items);
    for (let pair = 0; pair < out.length; pair += 1) {
      out[pair] = dot(queries[Math.floor(pair / items)], 0, keys[pair % items], 0, this.keyDim);
    }
    return out;
  }

  /** Signal, N₁, N₂ and N₃ of the score of (i, j); they sum to the score. */
  of(i, j) {
    const query = this.#identity(i, this.sources);
    const queryLeak = this.#leak(i, this.sources);
    const key = this.#identity(j, this.ends);
    const keyLeak = this.#leak(j, this.ends);
    const product = (a, b) => dot(a, 0, b, 0, this.keyDim);
    return {
      signal: product(query, key), n1: product(query, keyLeak),
      n2: product(queryLeak, key), n3: product(queryLeak, keyLeak),
    };
  }
}

/** Eq. (1) with constant 1: the size of N₃ for a block of B sources. */
export const predictedN3 = (items, dModel, block, keyDim) =>
  (block / dModel) * Math.sqrt(keyDim * Math.log(items));
