/** The special functions and root finding that the laws need. */

const LOG_ROOT = 0.5 * Math.log(2 * Math.PI);

/** ln Γ(x) for x > 0: Stirling's series after a shift to x ≥ 16. */
export function logGamma(x) {
  let shift = 0;
  let y = x;
  for (; y < 16; y += 1) shift += Math.log(y);
  return (y - 0.5) * Math.log(y) - y + LOG_ROOT + stirlingRest(y) - shift;
}

/** ln n! less Stirling's n·ln n − n + ½·ln 2πn, for n ≥ 1. */
export function stirlingRest(n) {
  if (n < 16) {
    return logGamma(n + 1) - (n * Math.log(n) - n + 0.5 * Math.log(2 * Math.PI * n));
  }
  const square = n * n;
  return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / n;
}

/** ln C(N, k) in Stirling's form, whose large terms are positive, so that nothing cancels. */
export function logBinomial(total, chosen) {
  const small = Math.min(chosen, total - chosen);
  if (small === 0) return 0;
  const rest = total - small;
  const entropy = small * Math.log(total / small) - rest * Math.log1p(-small / total);
  const scale = 0.5 * Math.log(total / (2 * Math.PI * small * rest));
  return entropy + scale + stirlingRest(total) - stirlingRest(small) - stirlingRest(rest);
}

/** The density of a standard normal variable. */
export const density = (x) => Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);

/** Φ(x): a power series near 0, Mills' continued fraction in the tails. */
export function normalShare(x) {
  const size = Math.abs(x);
  if (size < 3) {
    let term = size;
    let sum = size;
    for (let n = 1; n < 100; n += 1) {
      term *= (size * size) / (2 * n + 1);
      sum += term;
    }
    const half = density(size) * sum;
    return x < 0 ? 0.5 - half : 0.5 + half;
  }
  let fraction = 0;
  for (let n = 120; n > 0; n -= 1) fraction = n / (size + fraction);
  const beyond = density(size) / (size + fraction);
  return x < 0 ? beyond : 1 - beyond;
}

/** Where an increasing function crosses 0 between two ends, to the last digits. */
export function rootBetween(increasing, low, high) {
  for (let turn = 0; turn < 200; turn += 1) {
    const middle = 0.5 * (low + high);
    if (middle === low || middle === high) break;
    if (increasing(middle) < 0) low = middle;
    else high = middle;
  }
  return 0.5 * (low + high);
}

/** The smallest positive integer at which `held`, which grows, reaches `needed`. */
export function smallestInteger(held, needed) {
  let high = 1;
  while (held(high) < needed) high *= 2;
  let low = Math.floor(high / 2);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (held(middle) >= needed) high = middle;
    else low = middle;
  }
  return high;
}

/** ln(1 + eˣ) without overflow. */
export const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
