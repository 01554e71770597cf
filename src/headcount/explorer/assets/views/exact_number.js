/**
 * Numbers written as text, compared exactly: verification decides what it is given, so a number
 * that float64 rounds is refused, as attention/storage.py and problem/real_numbers.py do it.
 */

const WHOLE = /^\s*([+-]?\d+)(?:\.0*)?\s*$/;
const DECIMAL = /^([+-]?)(\d*)\.?(\d*)(?:e([+-]?\d+))?$/i;
const LONGEST = 400; // characters that are compared
const FURTHEST = 2000n; // powers of ten: float64 has no number so far from 1

/** Digits and a power of ten, both BigInt, without trailing zeros. */
function partsOf(text) {
  const [, sign, whole, part, power = "0"] = DECIMAL.exec(text);
  let digits = BigInt(`${whole}${part}` || "0") * (sign === "-" ? -1n : 1n);
  if (digits === 0n) return { digits, power: 0n };
  let tens = BigInt(power) - BigInt(part.length);
  for (; digits % 10n === 0n; digits /= 10n) tens += 1n;
  return { digits, power: tens };
}

/** The number as a fraction of integers: 53 bits and a power of two. */
function fractionOf(number) {
  let [value, twos] = [number, 0];
  for (; !Number.isInteger(value); value *= 2) twos += 1;
  return [BigInt(value), 2n ** BigInt(twos)];
}

/** Whether the text of a number says exactly that number. */
function says({ digits, power }, number) {
  if (power > FURTHEST || power < -FURTHEST) return false;
  const [over, under] = fractionOf(number);
  const [up, down] = power > 0n ? [10n ** power, 1n] : [1n, 10n ** -power];
  return digits * up * under === over * down;
}

/** float64 of a text as Python reads it from a file; NaN where it is not a number. */
export function numberOf(text) {
  const plain = text.trim();
  return DECIMAL.test(plain) && /\d/.test(plain.split(/e/i)[0]) ? Number(plain) : Number.NaN;
}

/** Whether float64 changes the number that a text says: shortened to its own digits is the same. */
export function isRounded(text) {
  const number = numberOf(text);
  const whole = WHOLE.exec(text)?.[1];
  if (whole) {
    return whole.length > LONGEST || !Number.isFinite(number) || BigInt(number) !== BigInt(whole);
  }
  if (!Number.isFinite(number) || text.length > LONGEST) return false;
  const written = partsOf(text.trim());
  const { digits, power } = partsOf(String(number));
  return !(written.digits === digits && written.power === power) && !says(written, number);
}
