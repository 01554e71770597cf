/** A graph of one's own, read in the browser from an edge list, and fitted to its table. */

import { BadFile } from "./files.js";
import { recordsOf } from "./separated.js";

const MOST_ITEMS = 2048; // that the page draws
const HEADER = ["source", "target"];
const NAMED = ["source_name", "target_name"]; // titles under which numbers are names too
const isId = (cell) => /^\s*[+-]?\d+\s*$/.test(cell);

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
  const [first] = text.split(/\r\n|\n|\r/, 1);
  const titles = (recordsOf(first.trim(), separator, name)[0]?.[1] ?? []).map((one) => one.trim());
  const { places, byName } = columnsOf(titles, name);
  const [, ...rest] = recordsOf(text, separator, name);
  const texts = rest.map(([line, fields]) => {
    const pair = places.map((place) => fields[place]);
    if (!pair.every((end) => end?.trim()) || fields.length > titles.length) {
      throw new BadFile(`${name}, line ${line}: “${fields.join(",").slice(0, 40)}” is not a pair; `
        + "give source,target");
    }
    return pair;
  });
  if (!texts.length) throw new BadFile(`${name}: holds no edges; give lines of source,target`);
  const named = byName || !texts.flat().every(isId);
  const pairs = named ? texts : texts.map((pair) => pair.map(Number));
  return { pairs, texts, named, lines: rest.map(([line]) => line), file: name };
}

/** The item of a name, with or without the blanks around it. */
function finder(names) {
  const place = new Map(names.map((word, i) => [word, i]));
  return (text) => place.get(text) ?? place.get(text.trim());
}

/** The ids of edges between names: the rows of the table have the names. */
function numbered({ pairs, lines, file }, names) {
  if (!names) {
    throw new BadFile(`${file}: has names, and the rows of the table have none; write ids, `
      + "or a table with names (.safetensors)");
  }
  const find = finder(names);
  return pairs.map((pair, e) => pair.map((word) => {
    const item = find(word);
    if (item === undefined) {
      throw new BadFile(`${file}, line ${lines[e]}: “${word.trim()}” is not a row of the table; `
        + "correct it or add its row");
    }
    return item;
  }));
}

/** Refuse numbers that are all names as well, and other items as names than as ids. */
function requireIds({ texts, file }, names) {
  const find = finder(names);
  const ends = texts.flat();
  if (!ends.every((text) => find(text) !== undefined)) return;
  if (ends.some((text) => find(text) !== Number(text))) {
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
