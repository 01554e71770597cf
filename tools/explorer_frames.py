"""Measure how many frames a second the explorer draws while it trains, at some widths.

    make browser
    python tools/explorer_frames.py

Chromium runs without a window and draws on the CPU, so that training, drawing and the screen share
the cores; a browser on a desk has a GPU for the last two. Run it on a machine that does nothing
else: the frames of a busy one say how busy it is.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, sync_playwright

import headcount as hc

_MEASURE = """async (seconds) => {
  const { trainer } = explorer.views.watch;
  const { draw } = trainer;
  const took = [];
  trainer.draw = (frames) => {
    const began = performance.now();
    draw(frames);
    took.push(performance.now() - began);
  };
  let screen = 0;
  const count = () => { screen += 1; requestAnimationFrame(count); };
  requestAnimationFrame(count);
  const began = performance.now();
  await new Promise((done) => setTimeout(done, 1000 * seconds));
  const passed = (performance.now() - began) / 1000;
  took.sort((a, b) => a - b);
  const at = (share) => took[Math.floor(share * (took.length - 1))];
  return [took.length, passed, screen, at(0.5), at(0.95)];
}"""


def measure(browser: Browser, page: Path, width: int, seconds: float) -> str:
    """Frames drawn and frames of the screen a second, layouts per frame, and the time to draw."""
    tab = browser.new_page(viewport={"width": width, "height": 800})
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable")

    def layouts() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "LayoutCount")

    tab.goto(page.as_uri())
    tab.wait_for_function("window.explorer?.views.watch.trainer.drawn > 5")
    tab.wait_for_timeout(1000)
    before = layouts()
    drawn, passed, screen, median, most = tab.evaluate(_MEASURE, seconds)
    per_frame = (layouts() - before) / drawn
    tab.close()
    return (
        f"{width} px: {drawn / passed:.1f} frames/s drawn, {screen / passed:.1f} of the screen; "
        f"drawing takes {median:.1f} ms ({most:.1f} at the 95th percentile) and {per_frame:.1f} "
        "layouts"
    )


def main() -> None:
    """Print one line per width."""
    parser = argparse.ArgumentParser(description="Frames a second of the explorer while it trains.")
    parser.add_argument("--widths", type=int, nargs="+", default=[390, 1300, 3840])
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = hc.explore(Path(folder) / "explorer.html")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for width in given.widths:
            print(measure(browser, page, width, given.seconds), flush=True)


if __name__ == "__main__":
    main()
