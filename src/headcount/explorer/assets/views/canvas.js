/** Canvases that fit their box and the screen's resolution, and a tooltip for what they show. */

/** The 2D context of a canvas in CSS pixels, cleared, with its width and height. */
export function fitted(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = Math.min(window.devicePixelRatio || 1, 3);
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

// Read once and after a change of the window: asking for a style takes longer than drawing a line.
let letter = 0;
let family = "";
function measure() {
  letter = Number.parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.78;
  family = getComputedStyle(document.body).fontFamily;
}
measure();
window.addEventListener("resize", measure);

/** The size of a letter on the page, which grows on very wide screens. */
export const letterSize = () => letter;

/** How much thicker lines are than on a common screen. */
export const thickness = () => letter / 12.5;

/** Set the font of a canvas to the page's. */
export function setFont(pen, share = 1, weight = 400) {
  pen.font = `${weight} ${letter * share}px ${family}`;
}

const bubble = document.createElement("div");
bubble.className = "bubble";
bubble.hidden = true;
document.body.append(bubble);

/** Show a text beside a place on a canvas; null hides it. */
export function tell(canvas, x, y, text) {
  bubble.hidden = text === null;
  if (text === null) return;
  bubble.textContent = text;
  const box = canvas.getBoundingClientRect();
  const left = box.left + window.scrollX + x;
  const room = document.documentElement.clientWidth - bubble.offsetWidth - 8;
  bubble.style.left = `${Math.max(8, Math.min(left + 12, room))}px`;
  bubble.style.top = `${box.top + window.scrollY + y - bubble.offsetHeight - 10}px`;
}

/**
 * Tell what is under the pointer: `find(x, y)` gives a text or null. A finger leaves as soon as it
 * is lifted, so what it tapped stays until the next tap.
 */
export function hover(canvas, find) {
  let tapped = false;
  const look = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    tapped = event.pointerType === "touch";
    tell(canvas, x, y, find(x, y));
  };
  const leave = () => {
    tapped = false;
    find(-1e6, -1e6);
    tell(canvas, 0, 0, null);
  };
  canvas.addEventListener("pointermove", look);
  canvas.addEventListener("pointerdown", look);
  canvas.addEventListener("pointerleave", () => { if (!tapped) leave(); });
  // Before the canvas that is tapped instead tells what is there.
  document.addEventListener("pointerdown", (event) => {
    if (tapped && event.target !== canvas) leave();
  }, { capture: true });
}

/** Say something to a screen reader, at most once a second. */
const live = document.getElementById("live");
let last = 0;
export function announce(text) {
  if (performance.now() - last < 1000 && last) return;
  last = performance.now();
  live.textContent = text;
}
