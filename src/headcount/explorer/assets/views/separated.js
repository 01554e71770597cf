/** Text of separated values, read as Python's `csv` reads it. */

import { BadFile } from "./files.js";

const LONGEST = 131072; // characters of a field, as in Python

/** UTF-8 as text, without a byte order mark; anything else is refused. */
export function decoded(buffer, name) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(buffer);
  } catch {
    throw new BadFile(`${name}: is not UTF-8 text; save it as UTF-8`);
  }
}

/**
 * The records that are not blank, as [line, fields]; `line` is the one in which a record ends. A
 * field that begins with a quote may hold separators, line breaks, and quotes if they are doubled.
 */
export function recordsOf(text, separator, name) {
  const records = [];
  let [fields, field, place, line] = [[], "", "start", 1];
  const endField = () => {
    if (field.length > LONGEST) {
      throw new BadFile(`${name}, line ${line}: a field has more than `
        + `${LONGEST.toLocaleString("en")} characters; correct that line`);
    }
    fields.push(field);
    [field, place] = ["", "start"];
  };
  const endRecord = (at) => {
    endField();
    if (fields.some((one) => one.trim())) records.push([at, fields]);
    fields = [];
  };
  for (let i = 0; i < text.length; i += 1) {
    const sign = text[i];
    const isBreak = sign === "\n" || (sign === "\r" && text[i + 1] !== "\n"); // or its last half
    if (place === "quoted") {
      if (sign === '"') place = "closed";
      else field += sign;
    } else if (place === "closed" && sign === '"') { // the second of two: a quote of the text
      field += sign;
      place = "quoted";
    } else if (isBreak) endRecord(line);
    else if (sign === separator) endField();
    else if (sign === '"' && place === "start") place = "quoted";
    else if (sign !== "\r") { // one that a line feed follows
      field += sign;
      place = "plain";
    }
    if (isBreak) line += 1;
  }
  if (fields.length || field || place !== "start") {
    endRecord(/[\r\n]$/.test(text) ? line - 1 : line);
  }
  return records;
}
