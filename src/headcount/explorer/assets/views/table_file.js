/** A table of one's own, items × d_model, read in the browser. */

import { BadFile, numbers, parsed, readSafetensors } from "./files.js";

/** From `.npy`, or from `.safetensors`: under the key `embeddings`, or the only one. */
export function readTable(buffer, name) {
  const isNamed = name.toLowerCase().endsWith(".safetensors");
  const table = isNamed ? fromSafetensors(buffer, name) : fromNpy(buffer, name);
  if (!table.items || !table.dModel) {
    throw new BadFile(`${name}: the table has shape ${table.items} × ${table.dModel}; it must be `
      + "items × d_model");
  }
  const odd = table.rows.findIndex((value) => !Number.isFinite(value));
  if (odd >= 0) {
    throw new BadFile(`${name}, row ${Math.floor(odd / table.dModel)}: holds a NaN or infinite `
      + "entry; remove or replace that row");
  }
  return table;
}

function fromSafetensors(buffer, name) {
  const { metadata, tensors } = readSafetensors(buffer, name);
  const all = Object.values(tensors);
  const table = all.length === 1 ? all[0] : tensors.embeddings;
  if (table?.shape.length !== 2) throw new BadFile(`${name}: holds no table of items × d_model`);
  const [items, dModel] = table.shape;
  return { items, dModel, rows: table.values, names: namesOf(metadata.names, items, name) };
}

/** The names of the rows: texts of one line, all different; null where there are none. */
function namesOf(text, items, name) {
  if (text === undefined) return null;
  const broken = new BadFile(`${name}: its metadata 'names' is not a JSON list; write it again`);
  const names = parsed(text, broken);
  if (!Array.isArray(names)) throw broken;
  const place = new Map();
  names.forEach((one, row) => {
    if (typeof one !== "string" || !one.trim() || /[\r\n]/.test(one)) {
      throw new BadFile(`${name}, row ${row}: “${one}” is not a name; give every item a text `
        + "of one line");
    }
    if (place.has(one)) {
      throw new BadFile(`${name}, row ${row}: the name “${one}” is in row ${place.get(one)} `
        + "already; give every item a name of its own");
    }
    place.set(one, row);
  });
  if (names.length !== items) {
    throw new BadFile(`${name}: has ${names.length} names and ${items} rows; name every row`);
  }
  return names;
}

function fromNpy(buffer, name) {
  const magic = String.fromCharCode(...new Uint8Array(buffer, 0, Math.min(6, buffer.byteLength)));
  if (magic !== "\x93NUMPY") {
    throw new BadFile(`${name}: is not a .npy file; write the table with numpy.save`);
  }
  const broken = new BadFile(`${name}: is cut off; write it again`);
  if (buffer.byteLength < 12) throw broken;
  const view = new DataView(buffer);
  const old = view.getUint8(6) === 1;
  const size = old ? view.getUint16(8, true) : view.getUint32(8, true);
  const first = (old ? 10 : 12) + size;
  if (first > buffer.byteLength) throw broken;
  const header = new TextDecoder().decode(new Uint8Array(buffer, old ? 10 : 12, size));
  const shape = (/'shape': \(([\d, ]*)\)/.exec(header)?.[1] ?? "").match(/\d+/g)?.map(Number) ?? [];
  if (shape.length !== 2) {
    throw new BadFile(`${name}: has ${shape.length} dimensions, and a table has two; save an array `
      + "of items × d_model");
  }
  const type = /'descr': '[<|=]([fiub])([1248])'/.exec(header);
  if (!type) {
    throw new BadFile(`${name}: does not hold little-endian numbers; save table.astype("<f4")`);
  }
  const kind = type[1] === "b" ? "BOOL" : `${type[1].toUpperCase()}${8 * Number(type[2])}`;
  const [items, dModel] = shape;
  const stored = numbers(buffer, first, kind, shape, name, broken);
  const byColumn = /'fortran_order': True/.test(header);
  const rows = byColumn
    ? stored.map((_, place) => stored[(place % dModel) * items + Math.floor(place / dModel)])
    : stored;
  return { items, dModel, rows, names: null };
}
