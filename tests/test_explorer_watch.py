"""Watching heads learn, in a real browser: training, the circles and the title."""

from __future__ import annotations

import pytest
import torch

import headcount as hc
from headcount.explorer.contents import antonym_pairs
from headcount.training.engines.torch import TorchEngine
from tests.browser_pages import FRAMES

pytestmark = pytest.mark.browser


def test_four_heads_finish_where_one_stalls(explorer):
    """As it opens, only faster; the same contexts, the same budget."""
    page = explorer("#speed=50000")
    page.wait_for_function(f"{FRAMES}?.[1].ended === 'finished'", timeout=300_000)
    one, four = page.evaluate(f"{FRAMES}.map((frame) => [frame.f1, frame.step])")
    assert four[0] > 0.99
    assert one[0] < 0.7
    assert one[1] >= four[1] >= 2500
    page.wait_for_function("document.querySelector('[data-run=\"1\"] .f1.done')")
    assert page.inner_text('[data-run="0"] .f1') < "0.70"
    assert page.inner_text('[data-run="0"] h3') == "One head of width 32"
    page.click("[data-do=play]")
    owned = (
        "[...document.querySelectorAll('[data-inside=\"1\"] figcaption')]"
        ".reduce((sum, one) => sum + Number(one.textContent.split(' ')[2]), 0)"
    )
    page.wait_for_function(f"{owned} === 64")  # the matrices are those of the last step
    owners = page.evaluate(f"[...new Set({FRAMES}[1].owner)].length")
    assert owners == 4  # each head has a share of the edges


def test_the_engine_takes_the_references_steps_in_chromium(explorer):
    spec = hc.RunSpec(40, 12, heads=3, key_dim=5, seed=7)
    page = explorer()
    weights = page.evaluate(
        """() => {
          const worker = document.getElementById("worker").textContent;
          const modules = new Function(`${worker}; return modules;`)();
          const { Run } = modules["engine/training.js"];
          const { runSpec, permutationGraph, gaussianTable } = modules["engine/problem.js"];
          const spec = runSpec({ items: 40, dModel: 12, heads: 3, keyDim: 5, seed: 7 });
          const run = new Run(spec, permutationGraph(40, 7), gaussianTable(40, 12, 7));
          for (let n = 0; n < 100; n += 1) run.step();
          return [...run.queries.values, ...run.keys.values, run.threshold];
        }"""
    )
    fleet = TorchEngine("cpu").fleet([spec])
    fleet.launch(100)
    [state] = fleet.states([0])
    ours = torch.cat([state.weights.flatten(), state.threshold[:1]])
    assert torch.allclose(torch.tensor(weights), ours, atol=1e-4, rtol=0)


def test_training_draws_frames(explorer):
    """How many a second depends on the machine; that they come with every few steps does not."""
    page = explorer()
    page.wait_for_function("explorer.views.watch.trainer.drawn > 5")
    drawn, step = page.evaluate(f"[explorer.views.watch.trainer.drawn, {FRAMES}[1].step]")
    assert step / drawn < 150  # 900 steps a second: 15 each at 60 frames a second


def test_less_motion_begins_paused(explorer):
    page = explorer(reduced_motion="reduce")
    page.wait_for_function(f"{FRAMES} !== null")
    assert page.inner_text("[data-do=play]") == "Play"
    assert page.evaluate(f"{FRAMES}[0].step") == 0
    page.click("[data-do=step]")
    page.wait_for_function(f"{FRAMES}[0].step === 1")


def test_a_view_that_is_left_pauses_and_goes_on(explorer):
    page = explorer()
    page.wait_for_function(f"{FRAMES}?.[1].step > 5")
    page.click("text=The plan")
    assert not page.evaluate("explorer.views.watch.trainer.playing")
    page.click("text=Watch")
    assert page.evaluate("explorer.views.watch.trainer.playing")


def test_wrong_pairs_are_drawn_from_all_rows(explorer):
    rows = explorer().evaluate(
        """() => {
          const graph = { items: 100, isEdge: new Uint8Array(10000) };
          const scores = { joined: new Float32Array(10000).fill(1), threshold: 0 };
          const pairs = modules["views/circle.js"].wrongPairs(scores, graph);
          return [pairs.length, pairs[pairs.length - 1][0]];
        }"""
    )
    assert rows == [400, 99]


def test_a_tap_shows_an_item_until_the_next_tap(explorer):
    page = explorer("#view=watch", has_touch=True, reduced_motion="reduce")
    page.wait_for_function(f"{FRAMES} !== null && document.querySelector('.verdict').textContent")
    box = page.locator("[data-run='0'] .circle").bounding_box()
    page.wait_for_timeout(300)
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["width"] * 0.045)
    page.wait_for_selector(".bubble:not([hidden])")
    assert page.inner_text(".bubble").startswith("item 0 → ")
    page.touchscreen.tap(5, 5)
    page.wait_for_selector(".bubble", state="hidden")


def test_the_title_claims_only_what_the_first_runs_show(explorer):
    page = explorer(reduced_motion="reduce")
    assert page.inner_text("#watch h1").startswith("Four narrow heads learn")
    assert page.is_visible("#watch .outcome")
    for hash in ("#d=40", "#g=2", "#seed=2", "#graph=antonyms"):
        page = explorer(hash, reduced_motion="reduce")
        assert page.inner_text("#watch h1") == "One wide head beside 4 narrow ones at equal D_K"
        assert page.is_hidden("#watch .outcome")


def test_the_circles_are_browsed_with_the_keyboard(explorer):
    page = explorer("#graph=antonyms&m=8&d=4", reduced_motion="reduce")
    page.wait_for_function(f"{FRAMES} !== null && document.querySelector('.verdict').textContent")
    circles = page.locator("#watch .circle")
    assert circles.nth(0).get_attribute("aria-valuetext") == "no item chosen"
    circles.nth(0).focus()
    for key, item in [("ArrowRight", 0), ("ArrowDown", 1), ("ArrowLeft", 0), ("ArrowUp", 7)]:
        page.keyboard.press(key)
        assert page.evaluate("explorer.state.item") == item
    page.keyboard.press("Home")
    seen = [circles.nth(n).get_attribute("aria-valuetext") for n in (0, 1)]
    told = [page.inner_text(f"[data-run='{n}'] .picked") for n in (0, 1)]
    assert seen == told  # both models on the same item
    source, target = told[0].split(":")[0].split(" → ")
    assert [source, target] in antonym_pairs() or [target, source] in antonym_pairs()
    assert circles.nth(0).get_attribute("role") == "slider"
    assert circles.nth(0).get_attribute("aria-valuemax") == "7"
    page.keyboard.press("2")
    page.wait_for_selector("#problem:not([hidden])")
    assert page.inner_text("#problem .told") == f"{source} → {target}"
    page.keyboard.press("1")
    page.focus("[data-run='1'] .circle")
    page.keyboard.press("Escape")
    assert page.evaluate("explorer.state.item") == -1
    assert page.inner_text("[data-run='1'] .picked") == ""


def test_a_click_chooses_an_item_and_another_lets_it_go(explorer):
    page = explorer(reduced_motion="reduce")
    page.wait_for_function(f"{FRAMES} !== null && document.querySelector('.verdict').textContent")
    box = page.locator("[data-run='0'] .circle").bounding_box()
    place = (box["x"] + box["width"] / 2, box["y"] + box["width"] * 0.045)
    page.mouse.click(*place)
    page.mouse.move(5, 5)
    assert page.evaluate("explorer.state.item") == 0
    assert page.inner_text("[data-run='1'] .picked").startswith("item 0 → item ")
    page.mouse.click(*place)
    assert page.evaluate("explorer.state.item") == -1


def test_a_phone_shows_heads_two_by_two_and_points_to_touch(explorer):
    page = explorer("#inside=open", width=390, reduced_motion="reduce")
    page.wait_for_function(f"{FRAMES}?.[1].perHead")
    heads = page.locator("[data-inside='1'] .heads canvas")
    boxes = [heads.nth(n).bounding_box() for n in range(4)]
    lefts, tops = ({round(box[side]) for box in boxes} for side in ("x", "y"))
    assert len(lefts) == len(tops) == 2
    assert all(box["width"] > 60 for box in boxes)
    radius = page.evaluate(
        """() => modules["views/circle.js"].drawCircle(document.querySelector(".circle"),
          modules["engine/problem.js"].permutationGraph(64, 1), {}).size"""
    )
    assert radius > 2.4  # of 6.5 pixels from one to the next
