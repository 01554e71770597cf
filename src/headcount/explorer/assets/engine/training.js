/**
 * One run of the paper's protocol (Section 6, A.1): max over heads, logistic loss, AdamW. The
 * reference is headcount/training/engines/torch_step.py; the tests compare the two step by step.
 *
 * Weights lie head by head as d_model × d_k. Head k takes its keys from key head ⌊k·g/h⌋.
 */

import { ContextSampler } from "./contexts.js";
import { firstWeights, trainingKey } from "./problem.js";
import { scoreTable, summary } from "./scores.js";
import { streamKey } from "./streams.js";

const [BETA1, BETA2, EPSILON] = [0.9, 0.999, 1e-8];

/** Weights with their gradient and Adam's moments. */
function trained(values) {
  const size = values.length;
  return {
    values: Float32Array.from(values),
    gradient: new Float32Array(size),
    first: new Float32Array(size),
    second: new Float32Array(size),
  };
}

/** AdamW without weight decay: W − rate·m/(√v·scale + ε). */
function adam({ values, gradient, first, second }, rate, scale) {
  for (let i = 0; i < values.length; i += 1) {
    const slope = gradient[i];
    const mean = BETA1 * first[i] + (1 - BETA1) * slope;
    const square = BETA2 * second[i] + (1 - BETA2) * slope * slope;
    first[i] = mean;
    second[i] = square;
    values[i] -= (rate * mean) / (Math.sqrt(square) * scale + EPSILON);
  }
}

export class Run {
  /** `key` is the stream of its training contexts: by default its own, as in `headcount train`. */
  constructor(spec, graph, rows, key = trainingKey(spec)) {
    const { length, heads, keyHeads, keyDim } = spec;
    this.spec = spec;
    this.graph = graph;
    this.rows = rows;
    this.sampler = new ContextSampler(graph, length, spec.rate, key);
    const first = firstWeights(spec);
    this.queries = trained(first.queries);
    this.keys = trained(first.keys);
    this.tau = trained([0]);
    this.keyHead = Int32Array.from({ length: heads }, (_, k) => Math.floor((k * keyHeads) / heads));
    this.taken = 0;
    this.history = []; // (step, validation F1) at the protocol's checks
    this.context = new Int32Array(length);
    this.query = new Float32Array(heads * length * keyDim);
    this.key = new Float32Array(keyHeads * length * keyDim);
    this.queryGradient = new Float32Array(this.query.length);
    this.keyGradient = new Float32Array(this.key.length);
    this.validation = validationContexts(spec, graph);
  }

  get threshold() { return this.tau.values[0]; }

  /** Why the run has ended, or null: the stopping rule of A.1, the limit, or it diverged. */
  get ended() {
    const { patience, target, steps } = this.spec;
    const last = this.history.slice(-patience);
    if (last.length === patience && last.every(([, value]) => value > target)) return "finished";
    if (!Number.isFinite(this.threshold)) return "diverged";
    return this.taken >= steps ? "limit" : null;
  }

  step() {
    this.sampler.draw(this.taken, this.context);
    this.#project(this.queries.values, this.query, this.spec.heads);
    this.#project(this.keys.values, this.key, this.spec.keyHeads);
    this.#findSlopes();
    this.#gather(this.queries.gradient, this.queryGradient, this.spec.heads);
    this.#gather(this.keys.gradient, this.keyGradient, this.spec.keyHeads);
    this.taken += 1;
    const rate = Math.fround(this.spec.learningRate / (1 - BETA1 ** this.taken));
    const scale = Math.fround(1 / Math.sqrt(1 - BETA2 ** this.taken));
    for (const part of [this.queries, this.keys, this.tau]) adam(part, rate, scale);
    if (this.taken % this.spec.checkEvery === 0 || this.taken === this.spec.steps) {
      this.history.push([this.taken, this.check().f1]);
    }
  }

  /** Queries or keys of the context's items: x W, head by head. */
  #project(weights, out, heads) {
    const { dModel, keyDim, length } = this.spec;
    const { rows, context } = this;
    out.fill(0);
    for (let head = 0; head < heads; head += 1) {
      for (let slot = 0; slot < length; slot += 1) {
        const place = (head * length + slot) * keyDim;
        for (let i = 0; i < dModel; i += 1) {
          const x = rows[context[slot] * dModel + i];
          const from = (head * dModel + i) * keyDim;
          for (let c = 0; c < keyDim; c += 1) out[place + c] += x * weights[from + c];
        }
      }
    }
  }

  /** ∂L/∂queries, ∂L/∂keys and ∂L/∂τ: the winning head of a pair alone moves. */
  #findSlopes() {
    const { length, keyDim, heads, sharpness } = this.spec;
    const { query, key, queryGradient, keyGradient, keyHead, context, graph } = this;
    const [positive, negative] = this.#pairWeights();
    const { threshold } = this;
    queryGradient.fill(0);
    keyGradient.fill(0);
    let down = 0;
    for (let p = 0; p < length; p += 1) {
      const row = context[p] * graph.items;
      for (let q = 0; q < length; q += 1) {
        let best = -Infinity;
        let bestQuery = 0;
        let bestKey = 0;
        for (let head = 0; head < heads; head += 1) {
          const from = (head * length + p) * keyDim;
          const to = (keyHead[head] * length + q) * keyDim;
          let score = 0;
          for (let c = 0; c < keyDim; c += 1) score += query[from + c] * key[to + c];
          if (score > best) {
            best = score;
            bestQuery = from;
            bestKey = to;
          }
        }
        const chance = 1 / (1 + Math.exp(-sharpness * (best - threshold)));
        const isEdge = graph.isEdge[row + context[q]];
        const slope = isEdge ? (chance - 1) * positive : chance * negative;
        down -= slope;
        for (let c = 0; c < keyDim; c += 1) {
          queryGradient[bestQuery + c] += slope * key[bestKey + c];
          keyGradient[bestKey + c] += slope * query[bestQuery + c];
        }
      }
    }
    this.tau.gradient[0] = down;
  }

  /** The factors of the slopes of edges and other pairs: ℓ − 1 for permutations, else Eq. (30). */
  #pairWeights() {
    const { length, sharpness, isPermutation } = this.spec;
    const each = sharpness / length ** 2;
    if (isPermutation) return [each * (length - 1), each];
    let count = 0;
    for (const source of this.context) {
      for (const target of this.context) {
        count += this.graph.isEdge[source * this.graph.items + target];
      }
    }
    return [count ? (each * (length ** 2 - count)) / count : 0, each];
  }

  /** ∂L/∂W = Σ over the context of x ⊗ ∂L/∂(x W). */
  #gather(gradient, moved, heads) {
    const { dModel, keyDim, length } = this.spec;
    const { rows, context } = this;
    gradient.fill(0);
    for (let head = 0; head < heads; head += 1) {
      for (let slot = 0; slot < length; slot += 1) {
        const place = (head * length + slot) * keyDim;
        for (let i = 0; i < dModel; i += 1) {
          const x = rows[context[slot] * dModel + i];
          const to = (head * dModel + i) * keyDim;
          for (let c = 0; c < keyDim; c += 1) gradient[to + c] += x * moved[place + c];
        }
      }
    }
  }

  /** The weights as scores need them. */
  weights() {
    const { heads, keyDim, dModel } = this.spec;
    const { keyHead, threshold } = this;
    const [queries, keys] = [this.queries.values, this.keys.values];
    return { heads, keyDim, dModel, keyHead, queries, keys, threshold, aggregation: "max" };
  }

  /** Scores of all pairs with what they amount to, and the F1 on the validation contexts. */
  check() {
    const table = scoreTable(this.weights(), this.rows, this.graph.items);
    const found = summary(table, this.graph, this.threshold);
    return { ...found, ...table, f1: this.#validationF1(table.joined) };
  }

  #validationF1(joined) {
    const { length } = this.spec;
    const { items, isEdge } = this.graph;
    let [hits, wrong] = [0, 0];
    for (let first = 0; first < this.validation.length; first += length) {
      for (let p = first; p < first + length; p += 1) {
        const row = this.validation[p] * items;
        for (let q = first; q < first + length; q += 1) {
          const pair = row + this.validation[q];
          const said = joined[pair] > this.threshold ? 1 : 0;
          hits += said & isEdge[pair];
          wrong += said ^ isEdge[pair];
        }
      }
    }
    return hits + wrong > 0 ? (2 * hits) / (2 * hits + wrong) : 1;
  }
}

function validationContexts({ seed, length, rate, validation }, graph) {
  const sampler = new ContextSampler(graph, length, rate, streamKey(seed, "validation"));
  const contexts = new Int32Array(validation * length);
  for (let n = 0; n < validation; n += 1) {
    sampler.draw(n, contexts.subarray(n * length, (n + 1) * length));
  }
  return contexts;
}
