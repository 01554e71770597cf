/**
 * What headcount draws with numpy's default generator: SeedSequence, PCG64, shuffles and normals.
 * A seed so gives the same graph, table and first weights as in Python, normals to the last bit or
 * two. The generator is used before training only, so BigInt is fast enough.
 */

const WORD = 0xffffffffn;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

/** The 32-bit words of a nonnegative integer, least significant first, as SeedSequence has them. */
function wordsOf(value) {
  const words = [];
  for (let rest = BigInt(value); rest > 0n || !words.length; rest >>= 32n) {
    words.push(Number(rest & WORD));
  }
  return words;
}

/** numpy's SeedSequence(entropy).generate_state(4, uint64): a hash of the words of the entropy. */
function seedState(entropy) {
  let constant = 0x43b0d7e5;
  const hashed = (value) => {
    const mixed = (value ^ constant) >>> 0;
    constant = Math.imul(constant, 0x931e8875) >>> 0;
    const product = Math.imul(mixed, constant) >>> 0;
    return (product ^ (product >>> 16)) >>> 0;
  };
  const joined = (x, y) => {
    const sum = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) >>> 0;
    return (sum ^ (sum >>> 16)) >>> 0;
  };
  const pool = [0, 1, 2, 3].map((i) => hashed(entropy[i] ?? 0));
  for (let from = 0; from < 4; from += 1) {
    for (let to = 0; to < 4; to += 1) {
      if (from !== to) pool[to] = joined(pool[to], hashed(pool[from]));
    }
  }
  for (const word of entropy.slice(4)) {
    for (let to = 0; to < 4; to += 1) pool[to] = joined(pool[to], hashed(word));
  }
  let key = 0x8b51f9dd;
  const out = [];
  for (let i = 0; i < 8; i += 1) {
    const mixed = (pool[i % 4] ^ key) >>> 0;
    key = Math.imul(key, 0x58f38ded) >>> 0;
    const product = Math.imul(mixed, key) >>> 0;
    out.push((product ^ (product >>> 16)) >>> 0);
  }
  return [0, 2, 4, 6].map((i) => BigInt(out[i]) | (BigInt(out[i + 1]) << 32n));
}

/** numpy.random.default_rng(entropy); entropy is an integer or a list of them. */
export class Generator {
  constructor(entropy) {
    const parts = Array.isArray(entropy) ? entropy : [entropy];
    const [high, low, first, second] = seedState(parts.flatMap(wordsOf));
    this.increment = BigInt.asUintN(128, (((first << 64n) | second) << 1n) | 1n);
    this.state = 0n;
    this.#step();
    this.state = BigInt.asUintN(128, this.state + ((high << 64n) | low));
    this.#step();
    this.half = null; // the upper half of a word whose lower half was used
  }

  #step() {
    this.state = BigInt.asUintN(128, this.state * MULTIPLIER + this.increment);
  }

  word64() {
    this.#step();
    const folded = BigInt.asUintN(64, (this.state >> 64n) ^ this.state);
    const by = this.state >> 122n;
    return BigInt.asUintN(64, (folded >> by) | (folded << (64n - by)));
  }

  word32() {
    if (this.half !== null) {
      const kept = this.half;
      this.half = null;
      return kept;
    }
    const word = this.word64();
    this.half = Number(word >> 32n);
    return Number(word & WORD);
  }

  #uniform64() {
    return Number(this.word64() >> 11n) / 2 ** 53;
  }

  #uniform32() {
    return (this.word32() >>> 8) / 2 ** 24;
  }

  /** A uniform integer of 0 … most, by rejection under the smallest mask. */
  #interval(most) {
    const mask = 2 ** (32 - Math.clz32(most)) - 1;
    for (;;) {
      const value = (this.word32() & mask) >>> 0;
      if (value <= most) return value;
    }
  }

  permutation(count) {
    const order = Int32Array.from({ length: count }, (_, i) => i);
    for (let i = count - 1; i > 0; i -= 1) {
      const j = this.#interval(i);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  /** integers(0, 2, dtype=int8)·2 − 1: the top bit of each byte of a 32-bit word. */
  signs(count) {
    const out = new Float64Array(count);
    let word = 0;
    for (let i = 0; i < count; i += 1) {
      word = i % 4 ? word >>> 8 : this.word32();
      out[i] = word & 0x80 ? 1 : -1;
    }
    return out;
  }

  /** standard_normal(count), in float64. */
  normals(count) {
    return Float64Array.from({ length: count }, () => this.#normal64());
  }

  /** standard_normal(count, dtype=float32). */
  normals32(count) {
    return Float32Array.from({ length: count }, () => this.#normal32());
  }

  #normal64() {
    for (;;) {
      const word = this.word64();
      const layer = Number(word & 0xffn);
      const size = Number((word >> 9n) & 0xfffffffffffffn);
      const x = (size * ZIGGURAT.ends[layer]) / 2 ** 52;
      const signed = (word >> 8n) & 1n ? -x : x;
      if (size < ZIGGURAT.sure[layer] * 2 ** 52) return signed;
      const uniform = () => this.#uniform64();
      if (layer === 0) return tail(uniform, (Math.floor(size / 256) & 1) === 1);
      if (inWedge(layer, uniform(), x)) return signed;
    }
  }

  #normal32() {
    for (;;) {
      const word = this.word32();
      const layer = word & 0xff;
      const size = (word >>> 9) & 0x7fffff;
      const x = Math.fround(size * Math.fround(ZIGGURAT.ends[layer] / 2 ** 23));
      const signed = (word >>> 8) & 1 ? -x : x;
      if (size < Math.floor(ZIGGURAT.sure[layer] * 2 ** 23)) return signed;
      const uniform = () => this.#uniform32();
      if (layer === 0) return tail(uniform, ((size >>> 8) & 1) === 1);
      if (inWedge(layer, uniform(), x)) return signed;
    }
  }
}

// --- The ziggurat of Marsaglia and Tsang with 256 layers of equal area ---------------------------

const LAST = 3.6541528853610088; // where the tail begins
const AREA = 0.004928673233974655; // of each layer under exp(−x²/2)
const ZIGGURAT = ziggurat();

/** Right ends of the layers, the shares of them that lie wholly under the curve, and heights. */
function ziggurat() {
  const density = (x) => Math.exp(-0.5 * x * x);
  const ends = new Float64Array(256);
  const sure = new Float64Array(256);
  ends[0] = AREA / density(LAST);
  sure[0] = LAST / ends[0];
  ends[255] = LAST;
  for (let i = 254; i > 0; i -= 1) {
    const outer = ends[i + 1];
    ends[i] = Math.sqrt(-2 * Math.log(AREA / outer + density(outer)));
    sure[i + 1] = ends[i] / outer;
  }
  const heights = ends.map((x, i) => (i ? density(x) : 1));
  return { ends, sure, heights };
}

function inWedge(layer, uniform, x) {
  const [upper, lower] = [ZIGGURAT.heights[layer - 1], ZIGGURAT.heights[layer]];
  return (upper - lower) * uniform + lower < Math.exp(-0.5 * x * x);
}

function tail(uniform, negative) {
  for (;;) {
    const x = -Math.log1p(-uniform()) / LAST;
    const y = -Math.log1p(-uniform());
    if (2 * y > x * x) return negative ? -(LAST + x) : LAST + x;
  }
}
