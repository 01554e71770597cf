/** Files of one’s own, read in the browser: .safetensors, and the weights in it. */

import { isRounded, numberOf } from "./exact_number.js";

/** What a reader must be told about a file, in a sentence. */
export class BadFile extends Error {}

const TYPES = {
  F64: Float64Array, F32: Float32Array, F16: Uint16Array, BF16: Uint16Array, I64: BigInt64Array,
  I32: Int32Array, I16: Int16Array, I8: Int8Array, U64: BigUint64Array, U32: Uint32Array,
  U16: Uint16Array, U8: Uint8Array, BOOL: Uint8Array,
};
const VERSION = 2; // of the weights that this page reads
const FIRST_ROUNDED = 2 ** 53; // from here on float64 has no room for every integer

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

/** The numbers of a shape that `buffer` has at `from`; `broken` is thrown where it ends before. */
export function numbers(buffer, from, type, shape, name, broken) {
  if (!TYPES[type]) throw new BadFile(`${name}: holds ${type} numbers; save them as float32`);
  const size = shape.reduce((product, one) => product * one, TYPES[type].BYTES_PER_ELEMENT);
  if (!Number.isSafeInteger(size) || from + size > buffer.byteLength) throw broken;
  const bytes = buffer.slice(from, from + size);
  if (type === "BF16" || type === "F16") return halves(bytes, type);
  const values = Float64Array.from(new TYPES[type](bytes), Number);
  if (/64$/.test(type) && type !== "F64" && values.some((one) => Math.abs(one) >= FIRST_ROUNDED)) {
    throw new BadFile(`${name}: holds integers of 2⁵³ or more, which float64 rounds; scale them `
      + "down");
  }
  return values;
}

/** What a text of the metadata says; `broken` is thrown where it is not JSON. */
export function parsed(text, broken) {
  try {
    return JSON.parse(text);
  } catch {
    throw broken;
  }
}

const areSizes = (list) =>
  Array.isArray(list) && list.every((one) => Number.isSafeInteger(one) && one >= 0);

/** The tensors and the metadata of a `.safetensors` file. */
export function readSafetensors(buffer, name) {
  const broken = new BadFile(`${name}: not a whole .safetensors file; write it again`);
  if (buffer.byteLength < 8) throw broken;
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  if (size > buffer.byteLength - 8) throw broken;
  const header = parsed(new TextDecoder().decode(new Uint8Array(buffer, 8, size)), broken);
  const { __metadata__: metadata = {}, ...entries } = header ?? {};
  const tensors = {};
  for (const [key, entry] of Object.entries(entries)) {
    const { dtype, shape, data_offsets: ends } = entry ?? {};
    if (!areSizes(shape) || !areSizes(ends) || ends.length !== 2) throw broken;
    const values = numbers(buffer, 8 + size + ends[0], dtype, shape, name, broken);
    if (ends[1] - ends[0] !== values.length * TYPES[dtype].BYTES_PER_ELEMENT) throw broken;
    tensors[key] = { shape, values };
  }
  return { metadata, tensors };
}

/** Key–query weights that headcount wrote. */
export function readWeights(buffer, name) {
  const { metadata, tensors } = readSafetensors(buffer, name);
  if (metadata.format !== "headcount-key-query" || !tensors.queries || !tensors.keys) {
    throw new BadFile(`${name}: does not hold key-query weights; give a file that headcount wrote`);
  }
  const broken = new BadFile(`${name}: not a whole weights file; write it again`);
  const notes = parsed(metadata.notes, broken);
  if (!/^\s*[+-]?\d+\s*$/.test(metadata.version) || !notes || Array.isArray(notes)) throw broken;
  if (Number(metadata.version) > VERSION) {
    throw new BadFile(`${name}: written by a newer headcount; write this page with that one`);
  }
  if (!["max", "sum"].includes(metadata.aggregation)) {
    throw new BadFile(`${name}: the weights are for ${metadata.aggregation}, whose scores depend `
      + "on the context; give weights of max or sum");
  }
  if (notes.decide === "top") {
    throw new BadFile(`${name}: the weights are decided by the top of a row and have no threshold; `
      + "give weights that have one");
  }
  const { queries, keys } = tensors;
  const [heads, dModel, keyDim] = queries.shape;
  const [keyHeads, width, depth] = keys.shape;
  if (queries.shape.length !== 3 || keys.shape.length !== 3 || width !== dModel
      || depth !== keyDim || !queries.values.length || !keys.values.length || heads % keyHeads) {
    throw new BadFile(`${name}: queries and keys do not fit each other; write the file again`);
  }
  if (![queries, keys].every(({ values }) => values.every(Number.isFinite))) {
    throw new BadFile(`${name}: holds a NaN or infinite weight; write the file again`);
  }
  const keyHead = Int32Array.from({ length: heads }, (_, k) => Math.floor((k * keyHeads) / heads));
  const weights = {
    heads, keyHeads, dModel, keyDim, keyHead, aggregation: metadata.aggregation,
    queries: queries.values, keys: keys.values,
    threshold: thresholdOf(metadata.threshold ?? "missing", name),
  };
  return { ...weights, widths: widthsOf(weights, metadata.widths, name) };
}

/** The threshold, refused where float64 would change it. */
function thresholdOf(text, name) {
  if (isRounded(text)) {
    throw new BadFile(`${name}: the threshold is ${text.slice(0, 40)}, which float64 rounds; scale `
      + "the weights down");
  }
  const threshold = numberOf(text);
  if (!Number.isFinite(threshold)) {
    throw new BadFile(`${name}: the threshold is ${text}, not a number; write the file again`);
  }
  return threshold;
}

/** How many columns of each head are in use; those beyond are zeros, or the widths are wrong. */
function widthsOf({ heads, keyDim, keyHead, queries, keys, dModel }, text, name) {
  const said = `${name}: the widths of the heads are ${text ?? "missing"}; they must be `
    + `${heads} numbers in 1…${keyDim}`;
  const widths = parsed(text ?? "null", new BadFile(said));
  const fit = areSizes(widths) && widths.length === heads
    && widths.every((width) => width >= 1 && width <= keyDim);
  if (!fit) throw new BadFile(said);
  const isUsed = (values, head, width) => values
    .subarray(head * dModel * keyDim, (head + 1) * dModel * keyDim)
    .some((value, place) => value !== 0 && place % keyDim >= width);
  widths.forEach((width, head) => {
    if (isUsed(queries, head, width) || isUsed(keys, keyHead[head], width)) {
      throw new BadFile(`${name}: head ${head} is ${width} wide but has non-zero columns beyond; `
        + "correct its width");
    }
    if (head && keyHead[head] === keyHead[head - 1] && width !== widths[head - 1]) {
      throw new BadFile(`${name}: heads ${head - 1} and ${head} share a key; `
        + "they must have one width");
    }
  });
  return widths;
}
