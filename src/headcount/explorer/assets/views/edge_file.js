/** A graph of one's own, read in the browser from an edge list, and fitted to its table. */

import { BadFile } from "./files.js";

const MOST_ITEMS = 2048; // that the page draws
const HEADER = ["source", "target"];
const NAMED = ["source_name", "target_name"]; // titles under which numbers are names too
const isId = (cell) => /^[+-]?\d+$/.test(cell);

/** The fields of a line; one in quotes may hold the separator, and a quote if it is doubled. */
function fieldsOf(line, separator) {
  const fields = [""];
  let quoted = false;
  for (let i = 0; i < line.length; i += 1) {
    const last = fields.length - 1;
    if (line[i] === '"' && quoted && line[i + 1] === '"') fields[last] += line[i += 1];
    else if (line[i] === '"' && (quoted || !fields[last].trim())) quoted = !quoted;
    else if (line[i] === separator && !quoted) fields.push("");
    else fields[last] += line[i];
  }
  return fields.map((field) => field.trim());
}

/** Where the header has source and target, and whether they are names by its titles. */
function columnsOf(titles, name) {
  const once = (title) => titles.filter((one) => one === title).length === 1;
  const header = [HEADER, NAMED].find((pair) => pair.every(once));
  if (!header) {
    throw new BadFile(`${name}, line 1: the header is “${titles.join(",").slice(0, 40)}”; it must `
      + "be source,target, or have these two among its columns");
  }
  return { places: header.map((title) => titles.indexOf(title)), byName: header === NAMED };
}

/** Edges of a `.csv` or `.tsv` file: pairs of ids, or of names, which the table then numbers. */
export function readEdges(text, name) {
  const separator = name.toLowerCase().endsWith(".tsv") ? "\t" : ",";
  const [first, ...rest] = text.replace(/^\uFEFF/, "").split(/\r\n|\n|\r/);
  const titles = fieldsOf(first, separator);
  const { places, byName } = columnsOf(titles, name);
  const [pairs, lines] = [[], []];
  rest.forEach((line, n) => {
    if (!line.trim()) return;
    const cells = fieldsOf(line, separator);
    const pair = places.map((place) => cells[place]);
    if (!pair.every(Boolean) || cells.length > titles.length) {
      throw new BadFile(`${name}, line ${n + 2}: “${line.slice(0, 40)}” is not a pair; `
        + "give source,target");
    }
    pairs.push(pair);
    lines.push(n + 2);
  });
  if (!pairs.length) throw new BadFile(`${name}: holds no edges; give lines of source,target`);
  const named = byName || !pairs.flat().every(isId);
  return { pairs: named ? pairs : pairs.map((pair) => pair.map(Number)), named, lines, file: name };
}

/** The ids of edges between names: the rows of the table have the names. */
function numbered({ pairs, lines, file }, names) {
  if (!names) {
    throw new BadFile(`${file}: has names, and the rows of the table have none; write ids, `
      + "or a table with names (.safetensors)");
  }
  const place = new Map(names.map((word, i) => [word, i]));
  return pairs.map((pair, e) => pair.map((word) => {
    if (!place.has(word)) {
      throw new BadFile(`${file}, line ${lines[e]}: “${word}” is not a row of the table; correct `
        + "it or add its row");
    }
    return place.get(word);
  }));
}

/** Refuse numbers that are all names as well, and other items as names than as ids. */
function requireIds({ pairs, file }, names) {
  const place = new Map(names.map((word, i) => [word, i]));
  const ends = pairs.flat();
  if (!ends.every((id) => place.has(String(id)))) return;
  if (ends.some((id) => place.get(String(id)) !== id)) {
    throw new BadFile(`${file}: its numbers could be ids or names; title the columns `
      + "source_name,target_name where they are names");
  }
}

function requireOnce(pairs, items, { lines, file }) {
  const seen = new Map();
  pairs.forEach(([source, target], e) => {
    const code = source * items + target;
    if (seen.has(code)) {
      throw new BadFile(`${file}, line ${lines[e]}: edge (${source}, ${target}) is in line `
        + `${lines[seen.get(code)]} already; keep it once`);
    }
    seen.set(code, e);
  });
}

/** The edges as pairs of ids; three files that do not fit each other are refused. */
export function fittedEdges(weights, edges, table) {
  if (weights.dModel !== table.dModel) {
    throw new BadFile(`the weights take d_model ${weights.dModel}, the table has ${table.dModel}; `
      + "use a pair that fits");
  }
  if (table.items > MOST_ITEMS) {
    throw new BadFile(`${table.items.toLocaleString("en")} items are more than the page can draw; `
      + "use headcount verify, or at most 2,048");
  }
  const pairs = edges.named ? numbered(edges, table.names) : edges.pairs;
  const odd = pairs.flat().find((item) => item < 0 || item >= table.items);
  if (odd !== undefined) {
    throw new BadFile(`an edge names item ${odd}, the table has ${table.items} rows; give a table `
      + "with one row per item");
  }
  if (edges.file) { // what the command embedded it has checked
    if (!edges.named && table.names) requireIds(edges, table.names);
    requireOnce(pairs, table.items, edges);
  }
  return pairs;
}
