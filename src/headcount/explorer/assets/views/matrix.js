/** Score matrices: rows are sources, columns are ordered so that true edges are on the diagonal. */

import { fitted } from "./canvas.js";
import { channels, colours, headColour } from "./theme.js";

/**
 * The order of rows and columns: edge e of the order is row e and column e. Items without an edge,
 * or with several, follow in the order of their ids. With `owner`, edges of a head are together.
 */
export function ordering(graph, owner = null) {
  const edges = Array.from(graph.sources.keys());
  if (owner) edges.sort((a, b) => owner[a] - owner[b] || a - b);
  const [rows, columns] = [new Set(), new Set()];
  for (const e of edges) {
    if (rows.has(graph.sources[e]) || columns.has(graph.targets[e])) continue;
    rows.add(graph.sources[e]);
    columns.add(graph.targets[e]);
  }
  for (let i = 0; i < graph.items; i += 1) {
    rows.add(i);
    columns.add(i);
  }
  return { rows: [...rows], columns: [...columns] };
}

/** The spread of scores that the shades cover: a little below the threshold to the highest edge. */
export function shadeRange(scores, threshold) {
  let high = threshold;
  for (const score of scores) if (score > high) high = score;
  return [threshold - 0.8 * Math.max(1e-6, high - threshold), high];
}

const image = document.createElement("canvas");

/**
 * Draw scores. An edge has its head's colour, any other pair is grey, and red above the threshold
 * of joined scores. `head` draws one head's own scores instead, all in its colour.
 */
export function drawMatrix(canvas, scores, graph, order, { threshold, winner = null, head = -1 }) {
  const { items, isEdge } = graph;
  const [low, high] = shadeRange(scores, threshold);
  Object.assign(image, { width: items, height: items });
  const pixels = image.getContext("2d").createImageData(items, items);
  const page = channels(colours.page);
  const grey = channels(colours.soft);
  const wrong = channels(colours.wrong);
  const heads = [];
  const ofHead = (k) => (heads[k] ??= channels(headColour(k)));
  order.rows.forEach((source, r) => {
    order.columns.forEach((target, c) => {
      const pair = source * items + target;
      const score = scores[pair];
      const share = Math.min(1, Math.max(0, (score - low) / (high - low)));
      let colour = head >= 0 ? ofHead(head) : grey;
      let strength = head >= 0 ? share ** 1.5 : share * 0.4;
      if (head < 0 && isEdge[pair]) {
        colour = score > threshold ? ofHead(winner[pair]) : grey;
        strength = score > threshold ? 0.55 + 0.45 * share : share * 0.6;
      } else if (head < 0 && score > threshold) [colour, strength] = [wrong, 0.75];
      const place = 4 * (r * items + c);
      for (let i = 0; i < 3; i += 1) {
        pixels.data[place + i] = page[i] + (colour[i] - page[i]) * strength;
      }
      pixels.data[place + 3] = 255;
    });
  });
  image.getContext("2d").putImageData(pixels, 0, 0);
  const { pen, width, height } = fitted(canvas);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, width, height);
}

/** The pair of items under a place of a matrix. */
export function pairAt(canvas, order, x, y) {
  const size = order.rows.length;
  const [row, column] = [y / canvas.clientHeight, x / canvas.clientWidth].map((share) =>
    Math.floor(share * size));
  if (row < 0 || column < 0 || row >= size || column >= size) return null;
  return [order.rows[row], order.columns[column]];
}
