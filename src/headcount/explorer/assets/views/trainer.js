/**
 * Training beside the page: a worker made from the script that the page carries. Every frame of the
 * screen asks for the steps that are due, so training stops when nobody sees it.
 */

let address = null;
function workerAddress() {
  address ??= URL.createObjectURL(
    new Blob([document.getElementById("worker").textContent], { type: "text/javascript" }));
  return address;
}

/** What a button that plays and pauses says. */
export function showPlaying(button, playing) {
  button.textContent = playing ? "Pause" : "Play";
  button.setAttribute("aria-pressed", String(playing));
}

export class Trainer {
  /**
   * `draw(frames)` draws a frame; `pace()` gives steps per second, `details()` what is drawn.
   * Training takes at most `milliseconds` at a time: of 16.7, if the screen is to be smooth.
   */
  constructor({ draw, pace, details = () => false, onPlaying = () => {}, milliseconds = 12 }) {
    Object.assign(this, { draw, pace, details, onPlaying, milliseconds });
    this.playing = false;
    this.epoch = 0;
    this.due = 0;
    this.frames = null;
    this.wanted = 0; // steps to take and then to stay paused
    this.taking = false; // whether the worker takes some of them
    this.fresh = false; // whether the frames are not drawn yet
    this.drawn = 0; // frames, which a test counts
    this.tick = this.tick.bind(this);
  }

  /** Begin runs anew; earlier ones are forgotten. */
  start(specs, pairs = null) {
    if (!this.worker) {
      this.worker = new Worker(workerAddress());
      this.worker.onmessage = ({ data }) => this.#receive(data);
      requestAnimationFrame(this.tick);
    }
    this.epoch += 1;
    this.due = 0;
    this.frames = null;
    this.fresh = false;
    this.wanted = 0;
    this.taking = false;
    this.#ask({ kind: "start", specs, pairs, number: this.epoch });
  }

  play() {
    this.wanted = 0;
    this.#setPlaying(true);
  }

  pause() { this.#setPlaying(false); }

  /** Take some steps, few or thousands, and stay paused. */
  step(count) {
    this.pause();
    this.wanted += count;
    this.#takeWanted();
  }

  #takeWanted() {
    if (this.pending || !this.wanted) return;
    this.taking = true;
    this.#ask({ kind: "advance", steps: this.wanted, milliseconds: 100 });
  }

  /** Draw the last frame again, with other details if need be. */
  refresh() {
    if (this.pending) this.again = true; // the frame under way was asked for without them
    else if (this.frames) this.#ask({ kind: "look" });
  }

  /** The step of the run that is furthest. */
  get furthest() { return Math.max(0, ...(this.frames ?? []).map((frame) => frame.step)); }

  /** Whether nothing is under way: what is drawn stays. */
  get isResting() { return !this.playing && !this.wanted && !this.pending; }

  #setPlaying(playing) {
    if (this.playing === playing) return;
    this.playing = playing;
    this.due = 0;
    this.onPlaying(playing);
  }

  #ask(message) {
    this.pending = true;
    this.worker.postMessage({ ...message, details: this.details() });
  }

  #receive({ epoch, taken, frames }) {
    if (epoch !== this.epoch) return; // of runs that were replaced
    this.pending = false;
    this.due = Math.max(0, this.due - taken);
    if (this.taking) this.wanted = Math.max(0, this.wanted - taken);
    this.taking = false;
    this.frames = frames;
    this.fresh = true;
    if (frames.every((frame) => frame.ended)) {
      this.wanted = 0;
      this.pause();
    }
    this.#takeWanted();
    this.#advance(); // at once where steps are due: a slow screen does not slow training down
    if (this.again && !this.pending) {
      this.again = false;
      this.refresh();
    }
  }

  #advance() {
    if (!this.playing || this.pending || this.due < 1) return;
    this.#ask({ kind: "advance", steps: Math.floor(this.due), milliseconds: this.milliseconds });
  }

  tick(now) {
    const passed = Math.min(100, now - (this.last ?? now)) / 1000;
    this.last = now;
    if (this.playing) { // before drawing: the worker trains meanwhile, and is ready for the next
      const pace = this.pace();
      this.due = Math.min(this.due + passed * pace, pace); // a slow machine does not run up a debt
      this.#advance();
    }
    if (this.fresh) {
      this.fresh = false;
      this.drawn += 1;
      this.draw(this.frames);
    }
    requestAnimationFrame(this.tick);
  }
}
