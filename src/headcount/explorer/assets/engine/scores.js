/** Scores of all ordered pairs of items, and what they say of a graph. */

/** Queries or keys of every item, head by head: items × d_k each, in an array of type `Floats`. */
export function projected(weights, rows, items, { heads, dModel, keyDim, Floats }) {
  const out = new Floats(heads * items * keyDim);
  for (let head = 0; head < heads; head += 1) {
    for (let item = 0; item < items; item += 1) {
      const place = (head * items + item) * keyDim;
      for (let i = 0; i < dModel; i += 1) {
        const x = rows[item * dModel + i];
        const from = (head * dModel + i) * keyDim;
        for (let c = 0; c < keyDim; c += 1) out[place + c] += x * weights[from + c];
      }
    }
  }
  return out;
}

/**
 * Joined scores, the head with the highest score of each pair, and each head's own scores. Training
 * is in float32, as in the reference; weights of one's own are in `Floats` = Float64Array.
 */
export function scoreTable(weights, rows, items, Floats = Float32Array) {
  const { heads, dModel, keyDim, keyHead, aggregation } = weights;
  const keyHeads = keyHead[heads - 1] + 1;
  const sizes = { dModel, keyDim, Floats };
  const queries = projected(weights.queries, rows, items, { ...sizes, heads });
  const keys = projected(weights.keys, rows, items, { ...sizes, heads: keyHeads });
  const joined = new Floats(items * items).fill(aggregation === "sum" ? 0 : -Infinity);
  const best = new Floats(items * items).fill(-Infinity);
  const winner = new Uint16Array(items * items);
  const perHead = [];
  for (let head = 0; head < heads; head += 1) {
    const own = new Float32Array(items * items);
    for (let i = 0; i < items; i += 1) {
      const from = (head * items + i) * keyDim;
      for (let j = 0; j < items; j += 1) {
        const to = (keyHead[head] * items + j) * keyDim;
        let score = 0;
        for (let c = 0; c < keyDim; c += 1) score += queries[from + c] * keys[to + c];
        const pair = i * items + j;
        own[pair] = score;
        if (aggregation === "sum") joined[pair] += score;
        if (score > best[pair]) {
          best[pair] = score;
          winner[pair] = head;
        }
      }
    }
    perHead.push(own);
  }
  if (aggregation !== "sum") joined.set(best);
  return { joined, winner, perHead };
}

/** What a table of scores amounts to on all pairs: errors, the margin, and who owns each edge. */
export function summary({ joined, winner }, graph, threshold) {
  const { sources, targets, isEdge, items } = graph;
  let lowestEdge = Infinity;
  let highestOther = -Infinity;
  let falsePositives = 0;
  let hits = 0;
  for (let pair = 0; pair < joined.length; pair += 1) {
    const score = joined[pair];
    if (isEdge[pair]) {
      lowestEdge = Math.min(lowestEdge, score);
      if (score > threshold) hits += 1;
    } else {
      highestOther = Math.max(highestOther, score);
      if (score > threshold) falsePositives += 1;
    }
  }
  const owner = Uint16Array.from(sources, (source, e) => winner[source * items + targets[e]]);
  const found = Uint8Array.from(sources, (source, e) =>
    joined[source * items + targets[e]] > threshold ? 1 : 0);
  // Both sides of the threshold count: a margin above 0 means that no pair is on the wrong side.
  const margin = Math.min(lowestEdge - threshold, threshold - highestOther);
  return { owner, found, margin, lowestEdge, highestOther, falsePositives, hits };
}
