/** Items on a circle, edges as chords: grey until found, then in the colour of the head. */

import { fitted, letterSize, setFont, thickness } from "./canvas.js";
import { colours, headColour } from "./theme.js";

const MOST_WRONG = 400; // pairs drawn that are wrongly taken for edges
const NARROWEST = 250; // pixels, of a circle with names around it
const SMALLEST = 8; // pixels, of letters that can be read

/** Pairs that are wrongly taken for edges: where they are many, every so many-th of them. */
export function wrongPairs({ joined, threshold }, graph) {
  const wrong = [];
  joined.forEach((score, pair) => {
    if (score > threshold && !graph.isEdge[pair]) wrong.push(pair);
  });
  const step = Math.ceil(wrong.length / MOST_WRONG);
  return wrong.filter((_, n) => n % step === 0).map((pair) =>
    [Math.floor(pair / graph.items), pair % graph.items]);
}

/** Where items are: item 0 at the top, clockwise. */
function placesOf(items, x, y, radius) {
  return Array.from({ length: items }, (_, i) => {
    const angle = (2 * Math.PI * i) / items - Math.PI / 2;
    return [x + radius * Math.cos(angle), y + radius * Math.sin(angle), angle];
  });
}

/** Add the way from one item to another to the path; `x` and `y` are the centre. */
function addChord(pen, from, to, [x, y], radius) {
  if (from === to) { // a fixed point: a loop inside the circle
    const size = radius * 0.05;
    const [px, py] = [from[0] - Math.cos(from[2]) * size, from[1] - Math.sin(from[2]) * size];
    pen.moveTo(px + size, py);
    pen.arc(px, py, size, 0, 2 * Math.PI);
    return;
  }
  pen.moveTo(from[0], from[1]);
  pen.quadraticCurveTo(x * 0.75 + (from[0] + to[0]) * 0.125, y * 0.75 + (from[1] + to[1]) * 0.125,
    to[0], to[1]);
}

/**
 * Draw a graph. `shown` has, edge by edge, `found` and `owner`, and `wrong`, pairs taken for edges;
 * `chosen` is an item to point out, `inside` the items of a context, `names` the items' names.
 */
export function drawCircle(canvas, graph, look) {
  const { shown = null, chosen = -1, inside = null, names = null } = look;
  const { pen, width, height } = fitted(canvas);
  const named = names && width > NARROWEST;
  const fits = (1.8 * width) / graph.items; // letters with which all names have room
  const letter = Math.min(letterSize(), Math.max(fits, SMALLEST));
  const widest = named ? letter * 4.4 : width * 0.045;
  const centre = [width / 2, height / 2];
  const radius = Math.min(width, height) / 2 - widest;
  const places = placesOf(graph.items, ...centre, radius);
  const size = Math.max(1.5, Math.min(5 * thickness(), (radius * 2.7) / graph.items));
  drawEdges(pen, graph, { shown, chosen, inside, places, centre, radius, size });
  drawWrong(pen, shown, { chosen, places, centre, radius });
  drawItems(pen, graph, { shown, chosen, inside, places, size });
  if (named) {
    const shownNames = fits >= SMALLEST ? names.map((_, i) => i)
      : namesWithRoom(graph, { chosen, inside, gap: letter * 1.1 / radius });
    drawNames(pen, names, shownNames, { places, letter, chosen, inside, size });
  }
  return { places, size };
}

/** Items whose names are most wanted, as many as have room: `gap` is the angle of a name. */
function namesWithRoom({ items, sources, targets }, { chosen, inside, gap }) {
  const ends = sources.reduce((found, source, e) =>
    (source === chosen ? [...found, targets[e]] : found), chosen < 0 ? [] : [chosen]);
  const wanted = [...ends, ...(inside ?? []), ...Array.from({ length: items }, (_, i) => i)];
  const least = (gap * items) / (2 * Math.PI); // in items
  const taken = [];
  for (const item of wanted) {
    const far = (other) => Math.min(Math.abs(item - other), items - Math.abs(item - other));
    if (taken.every((other) => far(other) >= least)) taken.push(item);
  }
  return taken;
}

function drawWrong(pen, shown, { chosen, places, centre, radius }) {
  if (!shown?.wrong) return;
  pen.strokeStyle = colours.wrong;
  pen.lineWidth = 0.9 * thickness();
  const draw = (pairs, alpha) => {
    pen.globalAlpha = alpha;
    pen.beginPath(); // one path for all: hundreds of lines are drawn sixty times a second
    for (const [i, j] of pairs) addChord(pen, places[i], places[j], centre, radius);
    pen.stroke();
  };
  const own = chosen < 0 ? [] : shown.wrong.filter(([i]) => i === chosen);
  draw(shown.wrong, chosen < 0 ? 0.45 : 0.15);
  if (own.length) draw(own, 0.9);
  pen.globalAlpha = 1;
}

/** Edges that look alike are one path. */
function drawEdges(pen, { sources, targets }, look) {
  const { shown, chosen, inside, places, centre, radius, size } = look;
  const groups = new Map();
  sources.forEach((source, e) => {
    const present = !inside || (inside.has(source) && inside.has(targets[e]));
    const kind = shown ? (shown.found[e] ? shown.owner[e] : -1) : Number(present);
    const name = `${kind}/${source === chosen}`;
    const picked = source === chosen;
    if (!groups.has(name)) groups.set(name, { kind, present, picked, edges: [] });
    groups.get(name).edges.push(e);
  });
  for (const { kind, present, picked, edges } of groups.values()) {
    const found = shown && kind >= 0;
    pen.strokeStyle = found ? headColour(kind) : colours.soft;
    pen.globalAlpha = found ? 0.95 : 0.28;
    pen.lineWidth = found ? Math.max(1.2, size * 0.5) : 0.9 * thickness();
    if (!shown) {
      const [globalAlpha, width] = present ? [0.9, 2.2] : [0.16, 0.9];
      const lineWidth = width * thickness();
      Object.assign(pen, { strokeStyle: colours.link, globalAlpha, lineWidth });
    }
    if (picked) Object.assign(pen, { globalAlpha: 1, lineWidth: 3 * thickness() });
    else if (chosen >= 0) pen.globalAlpha *= 0.35;
    pen.beginPath();
    for (const e of edges) addChord(pen, places[sources[e]], places[targets[e]], centre, radius);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawItems(pen, graph, { shown, chosen, inside, places, size }) {
  const ownerOf = new Map();
  graph.sources.forEach((source, e) => {
    if (shown?.found[e]) ownerOf.set(source, shown.owner[e]);
  });
  places.forEach(([x, y], i) => {
    const bright = !inside || inside.has(i);
    pen.fillStyle = ownerOf.has(i) ? headColour(ownerOf.get(i)) : colours.soft;
    if (!shown) pen.fillStyle = bright || i === chosen ? colours.link : colours.line;
    pen.beginPath();
    const share = i === chosen ? 1.8 : inside && bright ? 1.4 : 0.9;
    pen.arc(x, y, size * share, 0, 2 * Math.PI);
    pen.fill();
  });
}

function drawNames(pen, names, shownNames, { places, letter, chosen, inside, size }) {
  setFont(pen, letter / letterSize());
  pen.textBaseline = "middle";
  for (const i of shownNames) {
    const [x, y, angle] = places[i];
    const left = Math.cos(angle) < -1e-9;
    pen.save();
    pen.translate(x, y);
    pen.rotate(left ? angle + Math.PI : angle);
    pen.textAlign = left ? "right" : "left";
    pen.fillStyle = !inside || inside.has(i) || i === chosen ? colours.text : colours.soft;
    pen.fillText(names[i], (left ? -1 : 1) * (size + letter * 0.5), 0);
    pen.restore();
  }
}

/** What the scores make of an item: its edges, the heads that find them, and its mistakes. */
export function itemWords(item, { found, owner, joined, threshold }, graph, nameOf) {
  const edges = Array.from(graph.sources.keys()).filter((e) => graph.sources[e] === item);
  const told = edges.map((e) => `${nameOf(item)} → ${nameOf(graph.targets[e])}: `
    + (found[e] ? `found by head ${owner[e] + 1}` : "not found"));
  const first = item * graph.items;
  const wrong = joined.subarray(first, first + graph.items).reduce((count, score, j) =>
    count + Number(score > threshold && !graph.isEdge[first + j]), 0);
  if (wrong) told.push(`${wrong} wrong`);
  return told.join("; ") || nameOf(item);
}

/** The item next to a place, or −1. */
export function itemAt(drawn, x, y) {
  let [best, found] = [Math.max(16, drawn.size * 3) ** 2, -1];
  drawn.places.forEach(([a, b], i) => {
    const far = (a - x) ** 2 + (b - y) ** 2;
    if (far < best) [best, found] = [far, i];
  });
  return found;
}
