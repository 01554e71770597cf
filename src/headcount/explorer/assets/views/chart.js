/** A small chart on a canvas: axes, lines, bands, points, and what the pointer is on. */

import { fitted, letterSize, setFont, thickness } from "./canvas.js";
import { colours } from "./theme.js";

const NICE = [1, 2, 5];
const FINE = [1, 1.5, 2, 3, 4, 5, 7]; // on a log axis of little more than a decade

/** Round places between two ends: 1, 2 or 5 times a power of ten, or powers on a log axis. */
export function ticks(low, high, count, log) {
  if (log) {
    const found = [];
    const factors = high / low < 20 ? FINE : NICE;
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    }
    return found;
  }
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * (NICE.find((factor) => factor * power >= raw) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 },
    (_, i) => (first + i) * step);
}

const short = (value) => {
  if (Math.abs(value) >= 10000) return `${(value / 1000).toLocaleString("en")}k`;
  return Number(value.toPrecision(3)).toLocaleString("en");
};

/** An axis: {low, high, log, title}. Returns the chart's pen and its scales. */
export function chartOn(canvas, xAxis, yAxis) {
  const { pen, width, height } = fitted(canvas);
  const letter = letterSize();
  const box = { left: letter * 4.8, right: width - letter, top: letter * 1.1,
    bottom: height - letter * 3.1 };
  const placed = (axis, from, to) => {
    const bend = axis.log ? Math.log : (value) => value;
    const [low, high] = [bend(axis.low), bend(axis.high)];
    return (value) => from + ((bend(value) - low) / (high - low)) * (to - from);
  };
  const x = placed(xAxis, box.left, box.right);
  const y = placed(yAxis, box.bottom, box.top);
  const chart = { pen, box, x, y, letter, hits: [], floor: yAxis.low };
  drawGrid(chart, xAxis, yAxis);
  return chart;
}

function drawGrid({ pen, box, x, y, letter }, xAxis, yAxis) {
  setFont(pen, 0.92);
  pen.fillStyle = colours.soft;
  pen.strokeStyle = colours.line;
  pen.lineWidth = 1;
  pen.textAlign = "center";
  pen.textBaseline = "top";
  let free = -Infinity;
  const across = (box.right - box.left) / (letter * 6);
  for (const value of ticks(xAxis.low, xAxis.high, across, xAxis.log)) {
    const label = short(value);
    const half = pen.measureText(label).width / 2;
    const middle = Math.min(x(value), box.right + letter - half); // on the canvas to its last digit
    if (middle - half < free) continue;
    free = middle + half + letter * 0.6;
    pen.fillText(label, middle, box.bottom + letter * 0.4);
  }
  pen.fillText(xAxis.title, (box.left + box.right) / 2, box.bottom + letter * 1.75);
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  let above = Infinity;
  const up = (box.bottom - box.top) / (letter * 2.4);
  for (const value of ticks(yAxis.low, yAxis.high, up, yAxis.log)) {
    pen.beginPath();
    pen.moveTo(box.left, y(value));
    pen.lineTo(box.right, y(value));
    pen.stroke();
    if (y(value) > above - letter * 1.1) continue;
    above = y(value);
    pen.fillText(short(value), box.left - letter * 0.5, y(value));
  }
  pen.save();
  pen.translate(letter * 0.7, (box.top + box.bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(yAxis.title, 0, 0);
  pen.restore();
}

/** Draw inside the axes only. */
export function within({ pen, box }, draw) {
  pen.save();
  pen.beginPath();
  pen.rect(box.left, box.top - 4, box.right - box.left + 4, box.bottom - box.top + 8);
  pen.clip();
  draw();
  pen.restore();
}

/** A line through points of the data. */
export function line({ pen, box, x, y }, points, { colour, width = 2, dash = [], alpha = 1 }) {
  pen.save();
  pen.beginPath(); // points may lie on the frame; a line ends there
  pen.rect(box.left - 1, box.top - 2, box.right - box.left + 2, box.bottom - box.top + 4);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = width * thickness();
  pen.lineJoin = "round";
  pen.globalAlpha = alpha;
  pen.setLineDash(dash.map((part) => part * thickness()));
  pen.beginPath();
  points.forEach(([a, b], i) => (i ? pen.lineTo(x(a), y(b)) : pen.moveTo(x(a), y(b))));
  pen.stroke();
  pen.restore();
}

/** A filled area between two lines of the data. */
export function band({ pen, x, y }, lower, upper, colour, alpha = 0.15) {
  pen.save();
  pen.fillStyle = colour;
  pen.globalAlpha = alpha;
  pen.beginPath();
  [...lower, ...[...upper].reverse()].forEach(([a, b], i) =>
    (i ? pen.lineTo(x(a), y(b)) : pen.moveTo(x(a), y(b))));
  pen.fill();
  pen.restore();
}

/** A point that tells `text` under the pointer. */
export function point(chart, a, b, { colour, size = 4, hollow = false, alpha = 1, text = "" }) {
  const { pen, x, y } = chart;
  pen.save();
  pen.globalAlpha = alpha;
  pen.beginPath();
  pen.arc(x(a), y(b), size * thickness(), 0, 2 * Math.PI);
  pen.fillStyle = hollow ? colours.page : colour;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5 * thickness();
  pen.fill();
  pen.stroke();
  pen.restore();
  if (text) chart.hits.push([x(a), y(b), text]);
}

/** A text at a place of the data, moved to the left where it would leave the chart. */
export function mark({ pen, box, x, y }, a, b, text, look = {}) {
  const { colour = colours.text, align = "left", shift = [0, 0], weight = 400 } = look;
  pen.save();
  setFont(pen, 0.92, weight);
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.strokeStyle = colours.page; // a halo, so that lines behind the text do not disturb
  pen.lineWidth = 4;
  pen.lineJoin = "round";
  const after = pen.measureText(text).width * { left: 1, center: 0.5, right: 0 }[align];
  const left = Math.min(x(a) + shift[0], box.right - after);
  pen.strokeText(text, left, y(b) + shift[1]);
  pen.fillText(text, left, y(b) + shift[1]);
  pen.restore();
}

/** The text of the point next to a place, if one is near. */
export function hit(chart, x, y) {
  let [best, found] = [(14 * thickness()) ** 2, null];
  for (const [a, b, text] of chart?.hits ?? []) {
    const far = (a - x) ** 2 + (b - y) ** 2;
    if (far < best) [best, found] = [far, text];
  }
  return found;
}
