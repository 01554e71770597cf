/**
 * Counter-based random words, bit for bit those of headcount/problem/streams.py: word n of a stream
 * is mix(key + (n + 1)·γ), SplitMix64 used as a counter. 64-bit numbers are pairs of 32-bit halves
 * here, because BigInt is too slow for a training step.
 */

/** The upper 32 bits of the product of two unsigned 32-bit integers. */
function highProduct(a, b) {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  const middle = a1 * b0 + ((a0 * b0) >>> 16); // below 2³²
  const rest = a0 * b1 + (middle & 0xffff); // below 2³²
  return a1 * b1 + (middle >>> 16) + (rest >>> 16);
}

/** A stream of words by its 64-bit key, a BigInt; `read` puts a word's halves into high and low. */
export class Words {
  constructor(key) {
    const unsigned = BigInt.asUintN(64, key);
    this.keyHigh = Number(unsigned >> 32n);
    this.keyLow = Number(unsigned & 0xffffffffn);
    this.high = 0;
    this.low = 0;
  }

  #multiply(high, low) {
    const upper = highProduct(this.low, low);
    this.high = (upper + Math.imul(this.high, low) + Math.imul(this.low, high)) >>> 0;
    this.low = Math.imul(this.low, low) >>> 0;
  }

  #shiftXor(by) {
    const low = ((this.low >>> by) | (this.high << (32 - by))) >>> 0;
    this.low = (this.low ^ low) >>> 0;
    this.high = (this.high ^ (this.high >>> by)) >>> 0;
  }

  read(counter) {
    this.low = (counter + 1) >>> 0;
    this.high = Math.floor((counter + 1) / 2 ** 32) >>> 0;
    this.#multiply(0x9e3779b9, 0x7f4a7c15);
    const low = this.low + this.keyLow;
    this.high = (this.high + this.keyHigh + (low >= 2 ** 32 ? 1 : 0)) >>> 0;
    this.low = low >>> 0;
    this.#shiftXor(30);
    this.#multiply(0xbf58476d, 0x1ce4e5b9);
    this.#shiftXor(27);
    this.#multiply(0x94d049bb, 0x133111eb);
    this.#shiftXor(31);
  }
}

/** A uniform 32-bit integer scaled to 0 … bound−1. */
export const below = (uniform, bound) => Math.floor((uniform * bound) / 2 ** 32);

/** The key of a stream named by integers and words: BLAKE2b of the Python tuple, 8 bytes. */
export function streamKey(...parts) {
  const shown = parts.map((part) => (typeof part === "string" ? `'${part}'` : String(part)));
  const tuple = shown.length === 1 ? `(${shown[0]},)` : `(${shown.join(", ")})`;
  return BigInt.asIntN(64, blake2b64(new TextEncoder().encode(tuple)));
}

const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8",
  "905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a",
  "6fe9b308c2d714a5", "a2847615fb9e3cd0",
];
const MIXED = [
  [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
];

/** BLAKE2b with a digest of 8 bytes (RFC 7693) of a short message, as a little-endian BigInt. */
function blake2b64(message) {
  const state = [...IV];
  state[0] ^= 0x01010008n; // one digest of 8 bytes, no key
  const blocks = Math.max(1, Math.ceil(message.length / 128));
  for (let block = 0; block < blocks; block += 1) {
    const part = new Uint8Array(128);
    part.set(message.subarray(128 * block, 128 * (block + 1)));
    const words = new BigUint64Array(part.buffer);
    const last = block === blocks - 1;
    compress(state, words, BigInt(last ? message.length : 128 * (block + 1)), last);
  }
  return state[0];
}

function compress(state, words, counted, last) {
  const wrap = (x) => BigInt.asUintN(64, x);
  const turned = (x, by) => wrap((x >> by) | (x << (64n - by)));
  const v = [...state, ...IV];
  v[12] ^= counted;
  if (last) v[14] = wrap(~v[14]);
  for (let round = 0; round < 12; round += 1) {
    const order = SIGMA[round % 10];
    MIXED.forEach(([a, b, c, d], i) => {
      for (const [k, first, second] of [[2 * i, 32n, 24n], [2 * i + 1, 16n, 63n]]) {
        v[a] = wrap(v[a] + v[b] + words[Number.parseInt(order[k], 16)]);
        v[d] = turned(v[d] ^ v[a], first);
        v[c] = wrap(v[c] + v[d]);
        v[b] = turned(v[b] ^ v[c], second);
      }
    });
  }
  for (let i = 0; i < 8; i += 1) state[i] ^= v[i] ^ v[i + 8];
}
