"""The explorer's page in a real browser, offline: links, keys, sizes, themes."""

from __future__ import annotations

import pytest

import headcount as hc
from tests.browser_pages import FRAMES, VIEWS

pytestmark = pytest.mark.browser


def test_a_link_reproduces_the_state(explorer):
    page = explorer()
    page.locator("#watch input[name=h]").fill("6")
    page.locator("#watch input[name=g]").fill("1")  # the second divisor of 6: two key heads
    page.locator("#watch input[name=seed]").fill("12")
    page.click("text=The transition")
    page.locator("#transition input[name=tm]").fill("52")
    page.click("text=Two heads")
    page.wait_for_function("location.hash.includes('th=2')")
    state = page.evaluate("({ ...explorer.state })")
    assert (state["h"], state["g"], state["seed"], state["tm"]) == (6, 2, 12, 52)
    again = explorer(page.evaluate("location.hash"))
    assert again.evaluate("({ ...explorer.state })") == state
    assert again.is_visible("#transition")
    assert again.inner_text("#command") == (
        "headcount train --items 52 --d-model 16 --heads 2 --key-dim 16 --seeds 1 --first-seed 12"
    )
    again.click("text=Watch")
    shown = again.inner_text("#python")
    assert "heads=6, key_dim=8, kv_heads=2, seed=12" in shown
    back = again.evaluate("(location.hash = '#h=3&k=junk&m=1e9', 1)")
    assert back == 1
    again.wait_for_function("explorer.state.h === 3")
    assert again.evaluate("[explorer.state.k, explorer.state.m]") == [8, 192]  # made to fit


def test_a_link_followed_right_after_a_change_wins(explorer):
    page = explorer()
    # A change is written to the address a moment later: here, before the page hears of the link.
    page.evaluate(
        """() => {
            const { setTimeout } = window, due = [];
            window.setTimeout = (work) => due.push(work);
            const items = document.querySelector("#watch input[name=m]");
            items.value = 100;
            items.dispatchEvent(new Event("input", { bubbles: true }));
            window.setTimeout = setTimeout;
            location.hash = "#h=3";
            for (const work of due) work();
        }"""
    )
    page.wait_for_function("explorer.state.h === 3")
    page.wait_for_timeout(200)
    assert page.evaluate("[explorer.state.m, location.hash]") == [64, "#h=3"]


def test_copying_puts_the_command_on_the_clipboard(explorer):
    page = explorer("#view=plan&pm=500&pd=64", permissions=["clipboard-read", "clipboard-write"])
    page.click("text=Copy command")
    page.wait_for_function("document.querySelector('[data-copy=command]').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "headcount plan --items 500 --d-model 64 --steps 50000"
    page.click("text=Copy a link to this state")
    page.wait_for_function("document.querySelector('[data-copy=link]').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()").endswith("#view=plan&pm=500&pd=64")


@pytest.mark.parametrize("width", [390, 1300, 3840])
def test_no_view_scrolls_sideways(explorer, width):
    page = explorer(width=width)
    for view in VIEWS:
        page.evaluate(f"location.hash = '#view={view}'")
        page.wait_for_selector(f"#{view}:not([hidden])")
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        outside = page.evaluate(
            "[...document.querySelectorAll('canvas')].filter((canvas) =>"
            f" canvas.getBoundingClientRect().right > {width}).length"
        )
        assert outside == 0, view


def test_it_paints_within_a_second(explorer, explorer_file):
    assert explorer_file.stat().st_size <= 1_500_000
    times = []
    for _ in range(3):
        page = explorer()
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        times.append(page.evaluate(entry))
    assert min(times) < 1000


def test_the_keyboard_plays_steps_and_chooses(explorer):
    page = explorer(reduced_motion="reduce")
    page.wait_for_function(f"{FRAMES} !== null")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"{FRAMES}[0].step === 1")
    page.keyboard.press("Space")
    page.wait_for_function(f"{FRAMES}[0].step > 20")
    page.keyboard.press("Space")
    assert page.inner_text("[data-do=play]") == "Play"
    page.keyboard.press("2")
    page.wait_for_selector("#problem:not([hidden])")
    page.focus("#problem canvas")
    page.keyboard.press("ArrowRight")
    targets = hc.permutation_graph(64, seed=1).targets
    assert page.inner_text("#problem .told") == f"0 → {targets[0]}"


def test_keys_work_after_a_click(explorer):
    page = explorer(reduced_motion="reduce")
    page.click("[data-do=step]")
    page.wait_for_function(f"{FRAMES}?.[0].step === 1")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"{FRAMES}[0].step === 2")
    page.locator("#watch input[name=h]").focus()
    page.keyboard.press("ArrowRight")  # the slider's
    assert page.evaluate("explorer.state.h") == 5
    page.keyboard.press("n")
    assert page.evaluate("explorer.state.seed") == 2
    page.locator("#watch input[name=seed]").fill("")
    page.keyboard.press("3")
    assert page.evaluate("[explorer.state.seed, explorer.state.view]") == [3, "watch"]


def test_everything_drawn_has_a_label(explorer):
    page = explorer()
    unnamed = page.evaluate(
        "[...document.querySelectorAll('canvas, input, select, button')].filter((one) =>"
        " !one.getAttribute('aria-label') && !one.closest('label') && !one.textContent.trim())"
        ".length"
    )
    assert unnamed == 0
    assert page.locator("[role=tab]").count() == len(VIEWS)


def test_the_dark_is_dark(explorer):
    colour = "getComputedStyle(document.body).backgroundColor"
    light, dark = (explorer(color_scheme=scheme).evaluate(colour) for scheme in ("light", "dark"))
    assert light == "rgb(255, 255, 255)"
    assert dark == "rgb(21, 24, 28)"


def test_a_link_goes_to_the_step_where_training_rests(explorer):
    page = explorer("#m=16&d=8&speed=2000&inside=open", width=390)
    page.wait_for_function(f"{FRAMES}?.[1].step > 50")
    page.keyboard.press("Space")
    page.click("#watch [name=grouped]")
    page.focus("[data-run='1'] .circle")
    page.keyboard.press("End")
    page.wait_for_function("/step=.*item=15&group=0&inside=open/.test(location.hash)")
    page.wait_for_function(f"{FRAMES}[1].perHead")
    hash = page.evaluate("location.hash")
    again = explorer(hash, width=390)
    step = page.evaluate("explorer.state.step")
    assert f"step={step}&" in hash
    again.wait_for_function(f"{FRAMES}?.[1].step === {step} && {FRAMES}[1].perHead")
    again.wait_for_function("document.querySelector('.picked').textContent")
    assert again.evaluate("({ ...explorer.state })") == page.evaluate("({ ...explorer.state })")
    for shown in (f"{FRAMES}.map((frame) => [...frame.joined])", f"{FRAMES}[1].owner"):
        assert again.evaluate(shown) == page.evaluate(shown)
    for part in ("[data-run='0'] .picked", "[data-run='1'] .picked", "[data-inside='1'] .facts"):
        assert again.inner_text(part) == page.inner_text(part) != ""
    assert not again.is_checked("#watch [name=grouped]")
    assert again.inner_text("[data-do=play]") == "Play"
    again.wait_for_timeout(200)
    assert again.evaluate(f"{FRAMES}[1].step") == step  # it rests there
    again.evaluate("location.hash = '#m=16&d=8&step=7'")
    again.wait_for_function(f"{FRAMES}?.[1].step === 7")
    again.locator("#watch input[name=m]").fill("18")  # another run is not at that step
    assert again.evaluate("explorer.state.step") == 0


def test_a_link_copied_while_training_runs_has_its_step(explorer):
    page = explorer("", permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_function(f"{FRAMES}?.[1].step > 20")
    page.click("[data-copy=link]")
    page.wait_for_function("document.querySelector('[data-copy=link]').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert int(copied.split("step=")[1]) > 20
    assert page.evaluate("explorer.views.watch.trainer.playing")
    assert "step" not in page.evaluate("location.hash")
