/** The capacity law as a dial: drag m across R = 1 and watch training slow down and stall. */

import { Adviser } from "../theory/adviser.js";
import { capacityRatio } from "../theory/capacity.js";
import { announce, fitted, hover, letterSize, setFont } from "./canvas.js";
import { chartOn, hit, line, mark, point, within } from "./chart.js";
import { change, onState, state } from "./state.js";
import { colours, headColour, mixed, onTheme, prefersCalm } from "./theme.js";
import { Trainer, showPlaying } from "./trainer.js";

const [LOW, HIGH] = [0.5, 4]; // of R on the dial
const REACHED = 0.99;
const LIMIT = 20000;
const STEPS = 250; // that a press of the button takes
const SWEPT = [32, 36, 40, 44, 48, 52, 56, 60];
const section = document.getElementById("transition");
const [dial, curve, times] = ["dial", "curve", "times"].map((name) =>
  section.querySelector(`.${name}`));
const told = section.querySelector(".told");
const playButton = section.querySelector("[data-do=play]");
const sweepButton = section.querySelector("[data-do=sweep]");
const SWEEP = sweepButton.textContent;
const theory = JSON.parse(document.getElementById("theory").textContent);

let spec = null;
let trace = [];
let chart = null;
let goesOn = false; // whether it was playing when another view was chosen
let waiting = 0; // the timer of a change that the sliders made
let sweep = null; // numbers of items that are still to be trained, while they are trained in turn
let sweeping = 0; // the timer of the next of them
const attempts = []; // what was trained so far: {items, dModel, heads, ratio, steps, reached}
const trainer = new Trainer({ draw: receive, pace: () => 1e6, onPlaying, milliseconds: 24 });

const ratioOf = ({ items, dModel, heads }) => capacityRatio(items, items, dModel, heads, dModel);

function restart() {
  const { tm: items, td: dModel, th: heads, seed } = state;
  // The check is finer than the protocol's, to see when the F1 is reached; training is the same.
  spec = { items, dModel, heads, keyDim: dModel, keyHeads: heads, seed, steps: LIMIT,
    checkEvery: 250, patience: 1, target: REACHED - 1e-9, validation: 200,
    length: Math.min(16, items) };
  trace = [];
  trainer.start([spec]);
}

/** Whether the run is the one that the state describes. */
const isCurrent = () => spec && spec.items === state.tm && spec.dModel === state.td
  && spec.heads === state.th && spec.seed === state.seed;

function train() {
  restart();
  trainer.play();
}

/** Go to a step and rest there, or train at once, unless the reader wants less motion. */
function begin(step) {
  clearTimeout(waiting); // of a link whose view is shown at once
  restart();
  goesOn = false;
  if (step) trainer.step(step);
  else if (!prefersCalm()) trainer.play();
}

function onPlaying(playing) {
  showPlaying(playButton, playing);
  if (playing) change({ tstep: 0 });
  else trainer.refresh(); // to remember the step
}

function receive([frame]) {
  if (!trace.length || trace[trace.length - 1][0] < frame.step) trace.push([frame.step, frame.f1]);
  if (trainer.isResting) change({ tstep: frame.step });
  if (frame.ended && !spec.counted) {
    spec.counted = true;
    attempts.push({ ...spec, ratio: ratioOf(spec), steps: frame.step,
      reached: frame.ended === "finished", f1: frame.f1 });
    if (sweep?.length) sweeping = setTimeout(next, 250);
    else stopSweep();
  }
  draw(frame);
}

let isOwnChange = false; // whether the sweep moves the sliders, not the reader

function next() {
  isOwnChange = true;
  change({ td: 16, tm: sweep.shift() });
  isOwnChange = false;
  clearTimeout(waiting);
  train();
}

function stopSweep() {
  clearTimeout(sweeping);
  sweep = null;
  sweepButton.textContent = SWEEP;
}

function draw(frame = null) {
  if (!dial.clientWidth || !spec) return;
  const ratio = ratioOf(spec);
  drawDial(ratio);
  drawCurve();
  drawTimes();
  if (frame) tellState(frame, ratio);
}

function tellState(frame, ratio) {
  const heads = spec.heads === 1 ? "One head" : `${spec.heads} heads`;
  const where = `${heads} of full width, m = ${spec.items}, R = ${ratio.toFixed(2)}`;
  let text = `${where}: F1 ${frame.f1.toFixed(2)} after ${frame.step.toLocaleString("en")} steps.`;
  if (frame.ended === "finished") text += " It has learnt all relations.";
  else if (frame.ended) {
    text += spec.heads === 1 ? " It has stalled: add a second head." : " It has stalled.";
  }
  told.textContent = text;
  dial.setAttribute("aria-label", `Capacity ratio R = ${ratio.toFixed(2)}`);
  if (frame.ended) announce(text);
}

/** A half circle from R = 0.5 to 4, logarithmic, red below 1. */
function drawDial(ratio) {
  const { pen, width, height } = fitted(dial);
  const letter = letterSize();
  const [x, y] = [width / 2, height - letter * 2.4];
  const radius = Math.min(width / 2 - letter * 3, (y - letter * 2) / 1.1);
  const angle = (value) => Math.PI
    + (Math.log(value / LOW) / Math.log(HIGH / LOW)) * Math.PI;
  const arc = (from, to, colour, thick) => {
    pen.beginPath();
    pen.arc(x, y, radius, angle(from), angle(to));
    pen.strokeStyle = colour;
    pen.lineWidth = thick;
    pen.stroke();
  };
  arc(LOW, 1, colours.wrong, radius * 0.16);
  arc(1, 1.25, mixed(headColour(1), colours.page, 0.1), radius * 0.16);
  arc(1.25, HIGH, headColour(2), radius * 0.16);
  setFont(pen, 0.95);
  pen.fillStyle = colours.soft;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const value of [0.5, 0.7, 1, 1.4, 2, 2.8, 4]) {
    const out = radius * 1.08 + letter * 1.2;
    pen.fillText(value, x + out * Math.cos(angle(value)), y + out * Math.sin(angle(value)));
  }
  const at = angle(Math.min(HIGH, Math.max(LOW, ratio)));
  pen.strokeStyle = colours.text;
  pen.lineWidth = Math.max(2, radius * 0.025);
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x + radius * 0.86 * Math.cos(at), y + radius * 0.86 * Math.sin(at));
  pen.stroke();
  pen.beginPath();
  pen.arc(x, y, radius * 0.05, 0, 2 * Math.PI);
  pen.fillStyle = colours.text;
  pen.fill();
  setFont(pen, 1.5, 700);
  pen.fillText(`R = ${ratio.toFixed(2)}`, x, y + letter * 1.6);
}

function drawCurve() {
  const last = Math.max(2000, trace.length ? trace[trace.length - 1][0] : 0) * 1.02;
  const plot = chartOn(curve, { low: 0, high: last, title: "training steps" },
    { low: 0, high: 1, title: "F1" });
  within(plot, () => {
    line(plot, [[0, REACHED], [last, REACHED]], { colour: colours.soft, width: 1, dash: [4, 4] });
    if (trace.length) line(plot, trace, { colour: headColour(spec.heads - 1), width: 2.5 });
  });
}

/** Steps to F1 = 0.99 against R: every attempt so far, and the law of steps. */
function drawTimes() {
  chart = chartOn(times, { low: LOW, high: HIGH, log: true, title: "capacity ratio R" },
    { low: 1000, high: 24000, log: true, title: "steps to F1 = 0.99" });
  within(chart, () => {
    line(chart, [[1, 100], [1, 1e6]], { colour: colours.wrong, width: 1.5, dash: [5, 4] });
    drawLaw();
    for (const one of attempts.filter((past) => past.dModel === spec.dModel)) {
      point(chart, Math.min(HIGH, one.ratio), one.reached ? one.steps : LIMIT, {
        colour: headColour(one.heads - 1), size: 5.5, hollow: !one.reached,
        text: attemptText(one),
      });
    }
  });
  mark(chart, 1, 1000, "R = 1", { colour: colours.wrong, shift: [6, -10] });
  mark(chart, HIGH, 20000, "hollow: not reached in 20,000 steps", {
    colour: colours.soft, align: "right", shift: [0, -9] });
}

function attemptText({ items, heads, dModel, reached, steps, f1 }) {
  const outcome = reached ? `${steps.toLocaleString("en")} steps` : `F1 ${f1.toFixed(2)} only`;
  return `m = ${items}, ${heads} × ${dModel}: ${outcome}`;
}

function drawLaw() {
  const points = [];
  for (let items = 12; items <= 120; items += 1) {
    const adviser = new Adviser(theory, items, items, spec.dModel);
    const logs = adviser.law.logSteps(adviser.needed, items, items, spec.dModel, spec.heads,
      spec.dModel);
    points.push([ratioOf({ ...spec, items }), Math.exp(Math.min(logs, 30))]);
  }
  line(chart, points, { colour: headColour(spec.heads - 1), width: 1.5, dash: [7, 3], alpha: 0.7 });
}

hover(times, (x, y) => hit(chart, x, y));
sweepButton.addEventListener("click", () => {
  if (sweep) {
    stopSweep();
    trainer.pause();
    return;
  }
  sweep = [...SWEPT];
  sweepButton.textContent = "Stop";
  next();
});

export const transition = {
  show() {
    if (!isCurrent()) begin(state.tstep);
    else {
      draw(trainer.frames?.[0]);
      if (goesOn) trainer.play();
    }
  },
  redraw: () => draw(),
  pause() {
    goesOn = trainer.playing;
    clearTimeout(waiting);
    stopSweep();
    trainer.pause();
  },
  play() {
    if (!trainer.playing && trainer.frames?.[0].ended) train();
    else if (trainer.playing) trainer.pause();
    else trainer.play();
  },
  step() {
    stopSweep();
    trainer.step(STEPS);
  },
  restart() {
    stopSweep();
    train();
  },
  attempts,
  spec: () => spec,
  now: () => ({ tstep: trainer.furthest }),
  trainer,
};

onTheme(() => draw());
onState((names, recalled) => {
  const areOthers = names.some((name) => ["tm", "td", "th", "seed"].includes(name));
  if (areOthers && !recalled) change({ tstep: 0 });
  if (state.view !== "transition" || isOwnChange) return;
  if (!areOthers && !(recalled && names.includes("tstep"))) return;
  stopSweep();
  clearTimeout(waiting);
  if (spec && dial.clientWidth) { // a link may come from another view, with the dial still hidden
    drawDial(ratioOf({ items: state.tm, dModel: state.td, heads: state.th }));
  }
  const { tstep } = state;
  waiting = setTimeout(() => { if (recalled || !isCurrent()) begin(tstep); }, 150);
});
