/**
 * Choosing an item on a circle: by the pointer, by a finger, or with the arrow keys. The item that
 * is chosen is in the address; one under the pointer is pointed out for as long as it is there.
 */

import { hover } from "./canvas.js";
import { itemAt } from "./circle.js";
import { change, state } from "./state.js";

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/**
 * `items()` is how many there are, `picture()` what `drawCircle` returned, `words(item)` what there
 * is to say of an item; `redraw()` is called when another item is under the pointer. Screen readers
 * know the circle as a slider over its items: they leave its keys alone and read what it says.
 */
export function itemPicker(canvas, { items, picture, words, redraw }) {
  let pointed = -1;
  const chosen = () => (state.item < items() ? state.item : -1);

  hover(canvas, (x, y) => {
    const found = picture() ? itemAt(picture(), x, y) : -1;
    if (found !== pointed) {
      pointed = found;
      redraw();
    }
    return found < 0 ? null : words(found);
  });
  canvas.addEventListener("click", ({ offsetX, offsetY }) => {
    if (!picture()) return;
    const found = itemAt(picture(), offsetX, offsetY);
    change({ item: found === state.item ? -1 : found });
  });
  canvas.addEventListener("keydown", (event) => {
    const [{ key }, count] = [event, items()];
    if (!count) return;
    const from = chosen() < 0 && STEPS[key] < 0 ? 0 : chosen();
    const next = { Home: 0, End: count - 1, Escape: -1 }[key]
      ?? (STEPS[key] ? (from + STEPS[key] + count) % count : null);
    if (next === null) return;
    event.preventDefault();
    pointed = -1;
    change({ item: next });
  });
  canvas.setAttribute("role", "slider");
  canvas.tabIndex = 0;

  return {
    /** The item to point out. */
    item: () => (pointed >= 0 && pointed < items() ? pointed : chosen()),
    /** Say what is drawn and what is chosen; returns the words on the item that is chosen. */
    describe(label) {
      const item = chosen();
      const text = item < 0 ? "" : words(item);
      const said = {
        "aria-label": `${label}. Arrow keys choose an item`, "aria-valuemin": 0,
        "aria-valuemax": Math.max(0, items() - 1), "aria-valuenow": Math.max(0, item),
        "aria-valuetext": text || "no item chosen",
      };
      for (const [name, value] of Object.entries(said)) {
        if (canvas.getAttribute(name) !== String(value)) canvas.setAttribute(name, value);
      }
      return text;
    },
  };
}
