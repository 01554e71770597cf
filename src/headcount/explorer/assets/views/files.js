/** The three files of one's own, read in the browser: weights, graph and table. */

/** What a reader must be told about a file, in a sentence. */
export class BadFile extends Error {}

const TYPES = {
  F64: Float64Array, F32: Float32Array, I64: BigInt64Array, I32: Int32Array, I16: Int16Array,
  I8: Int8Array, U8: Uint8Array,
};

/** bfloat16 and float16 as float32. */
function halves(bytes, type) {
  const words = new Uint16Array(bytes);
  return Float32Array.from(words, (word) => {
    if (type === "BF16") return new Float32Array(Uint32Array.of(word << 16).buffer)[0];
    const [sign, power, rest] = [word >> 15 ? -1 : 1, (word >> 10) & 31, word & 1023];
    if (power === 31) return rest ? Number.NaN : sign * Infinity;
    return sign * (power ? 2 ** (power - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
  });
}

function numbers(bytes, type, name) {
  if (type === "BF16" || type === "F16") return halves(bytes, type);
  if (!TYPES[type]) throw new BadFile(`${name}: holds ${type} numbers; save them as float32`);
  const array = new TYPES[type](bytes);
  return Float64Array.from(array, Number);
}

/** The tensors and the metadata of a `.safetensors` file. */
export function readSafetensors(buffer, name) {
  const broken = new BadFile(`${name}: not a whole .safetensors file; write it again`);
  if (buffer.byteLength < 8) throw broken;
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  if (size > buffer.byteLength - 8) throw broken;
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  } catch {
    throw broken;
  }
  const { __metadata__: metadata = {}, ...entries } = header;
  const tensors = {};
  for (const [key, { dtype, shape, data_offsets: [from, to] }] of Object.entries(entries)) {
    if (8 + size + to > buffer.byteLength) throw broken;
    const bytes = buffer.slice(8 + size + from, 8 + size + to);
    tensors[key] = { shape, values: numbers(bytes, dtype, name) };
  }
  return { metadata, tensors };
}

/** Key–query weights that headcount wrote. */
export function readWeights(buffer, name) {
  const { metadata, tensors } = readSafetensors(buffer, name);
  if (metadata.format !== "headcount-key-query" || !tensors.queries || !tensors.keys) {
    throw new BadFile(`${name}: does not hold key-query weights; give a file that headcount wrote`);
  }
  if (!["max", "sum"].includes(metadata.aggregation)) {
    throw new BadFile(`${name}: the weights are for ${metadata.aggregation}, whose scores depend `
      + "on the context; give weights of max or sum");
  }
  if (JSON.parse(metadata.notes ?? "{}").decide === "top") {
    throw new BadFile(`${name}: the weights are decided by the top of a row and have no threshold; `
      + "give weights that have one");
  }
  const [heads, dModel, keyDim] = tensors.queries.shape;
  const [keyHeads, width, depth] = tensors.keys.shape;
  if (tensors.queries.shape.length !== 3 || width !== dModel || depth !== keyDim
      || heads % keyHeads) {
    throw new BadFile(`${name}: queries and keys do not fit each other; write the file again`);
  }
  const keyHead = Int32Array.from({ length: heads }, (_, k) => Math.floor((k * keyHeads) / heads));
  return {
    heads, keyHeads, dModel, keyDim, keyHead, aggregation: metadata.aggregation,
    queries: tensors.queries.values, keys: tensors.keys.values,
    threshold: Number(metadata.threshold),
  };
}

/** A table of items × d_model: `.npy`, or a `.safetensors` file with the key `embeddings`. */
export function readTable(buffer, name) {
  if (name.toLowerCase().endsWith(".safetensors")) {
    const { metadata, tensors } = readSafetensors(buffer, name);
    const table = tensors.embeddings ?? Object.values(tensors)[0];
    if (table?.shape.length !== 2) throw new BadFile(`${name}: holds no table of items × d_model`);
    const names = metadata.names ? JSON.parse(metadata.names) : null;
    return { items: table.shape[0], dModel: table.shape[1], rows: table.values, names };
  }
  const magic = String.fromCharCode(...new Uint8Array(buffer, 0, Math.min(6, buffer.byteLength)));
  if (magic !== "\x93NUMPY") {
    throw new BadFile(`${name}: is not a .npy file; write the table with numpy.save`);
  }
  const view = new DataView(buffer);
  const old = view.getUint8(6) === 1;
  const size = old ? view.getUint16(8, true) : view.getUint32(8, true);
  const first = (old ? 10 : 12) + size;
  const header = new TextDecoder().decode(new Uint8Array(buffer, old ? 10 : 12, size));
  const shape = /'shape': \((\d+), (\d+)\)/.exec(header);
  const type = /'descr': '[<|=]([fiu])(\d)'/.exec(header);
  if (!shape || !type || /'fortran_order': True/.test(header)) {
    throw new BadFile(`${name}: must hold items × d_model little-endian numbers in C order; `
      + "save numpy.ascontiguousarray(table)");
  }
  const kind = `${type[1].toUpperCase()}${8 * Number(type[2])}`;
  const [items, dModel] = [Number(shape[1]), Number(shape[2])];
  if (buffer.byteLength - first < items * dModel * Number(type[2])) {
    throw new BadFile(`${name}: is cut off; write it again`);
  }
  const rows = numbers(buffer.slice(first, first + items * dModel * Number(type[2])), kind, name);
  return { items, dModel, rows, names: null };
}

/** Edges of a `.csv` or `.tsv` file: pairs of ids, or of names, which the table then numbers. */
export function readEdges(text, name) {
  const separator = name.toLowerCase().endsWith(".tsv") ? "\t" : ",";
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  const pairs = [];
  lines.forEach((line, n) => {
    if (!line.trim()) return;
    const cells = line.split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
    if (cells.length < 2) {
      throw new BadFile(`${name}, line ${n + 1}: “${line.slice(0, 40)}” is not a pair; `
        + "give source,target");
    }
    if (!pairs.length && cells[0].toLowerCase() === "source") return;
    pairs.push(cells.slice(0, 2));
  });
  if (!pairs.length) throw new BadFile(`${name}: holds no edges; give lines of source,target`);
  if (pairs.every((pair) => pair.every((cell) => /^\d+$/.test(cell)))) {
    return { pairs: pairs.map((pair) => pair.map(Number)), named: false, file: name };
  }
  return { pairs, named: true, file: name };
}

/** The ids of edges between names: the rows of the table have the names. */
function numbered(edges, table) {
  if (!table.names) {
    throw new BadFile(`${edges.file}: has names, and the rows of the table have none; write ids, `
      + "or a table with names (.safetensors)");
  }
  const place = new Map(table.names.map((word, i) => [word, i]));
  return edges.pairs.map((pair) => pair.map((word) => {
    if (!place.has(word)) throw new BadFile(`${edges.file}: “${word}” is not a row of the table`);
    return place.get(word);
  }));
}

/** The edges as pairs of ids; three files that do not fit each other are refused. */
export function fittedEdges(weights, edges, table) {
  if (weights.dModel !== table.dModel) {
    throw new BadFile(`the weights take d_model ${weights.dModel}, the table has ${table.dModel}; `
      + "use a pair that fits");
  }
  const pairs = edges.named ? numbered(edges, table) : edges.pairs;
  const most = pairs.reduce((high, [source, target]) => Math.max(high, source, target), 0);
  if (most >= table.items) {
    throw new BadFile(`an edge names item ${most}, the table has ${table.items} rows; give a table `
      + "with one row per item");
  }
  if (table.items > 2048) {
    throw new BadFile(`${table.items.toLocaleString("en")} items are more than the page can draw; `
      + "use headcount verify, or at most 2,048");
  }
  return pairs;
}
