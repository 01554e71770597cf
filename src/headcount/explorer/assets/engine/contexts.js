/** The sampler of Appendices A.1 and A.3, bit for bit that of headcount/problem/contexts.py. */

import { Words, below } from "./streams.js";

/**
 * Contexts of a stream: `length` distinct items each; a share `rate` of them is then given a target
 * in the context, in the place of another item.
 */
export class ContextSampler {
  constructor(graph, length, rate, key) {
    this.graph = graph;
    this.length = length;
    this.words = new Words(key);
    this.chosenBelow = Math.floor(rate * 2 ** 32);
    this.deck = Int32Array.from({ length: graph.items }, (_, i) => i);
    this.swapped = new Int32Array(length);
    this.drawn = new Int32Array(length);
    this.chosen = new Uint8Array(length);
    this.place = new Float64Array(length);
    this.which = new Float64Array(length);
  }

  /** Context `number` of the stream, into `context`. */
  draw(number, context) {
    this.#readWords(number);
    this.#drawDistinct();
    context.set(this.drawn);
    if (this.length > 1) this.#bringTargetsIn(context);
  }

  #readWords(number) {
    const { words, length } = this;
    for (let slot = 0; slot < length; slot += 1) {
      const counter = (number * length + slot) * 2;
      words.read(counter);
      this.swapped[slot] = slot + below(words.high, this.graph.items - slot);
      this.chosen[slot] = words.low < this.chosenBelow ? 1 : 0;
      words.read(counter + 1);
      this.place[slot] = words.high;
      this.which[slot] = words.low;
    }
  }

  /** The first steps of a Fisher–Yates shuffle of the deck, which is put in order again. */
  #drawDistinct() {
    const { deck, swapped, drawn, length } = this;
    for (let slot = 0; slot < length; slot += 1) {
      const other = swapped[slot];
      drawn[slot] = deck[other];
      deck[other] = deck[slot];
      deck[slot] = drawn[slot];
    }
    for (let slot = length - 1; slot >= 0; slot -= 1) {
      const other = swapped[slot];
      const kept = deck[other];
      deck[other] = deck[slot];
      deck[slot] = kept;
    }
  }

  #bringTargetsIn(context) {
    const { starts, targets, isEdge, items } = this.graph;
    for (let slot = 0; slot < this.length; slot += 1) {
      const source = this.drawn[slot];
      const degree = starts[source + 1] - starts[source];
      // A source that an earlier replacement evicted from its slot does not act.
      if (!this.chosen[slot] || context[slot] !== source || degree === 0) continue;
      if (context.some((item) => isEdge[source * items + item])) continue;
      let other = below(this.place[slot], this.length - 1);
      if (other >= slot) other += 1; // uniform over the slots other than this one
      context[other] = targets[starts[source] + below(this.which[slot], degree)];
    }
  }
}
