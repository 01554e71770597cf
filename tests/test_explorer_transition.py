"""The transition in a real browser: training across R = 1."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser


def test_more_heads_finish_what_one_cannot_hold(explorer):
    """R is below 1 for one head and above it for three; few items keep the test short."""
    page = explorer("#view=transition&td=8&tm=20&seed=0")
    page.wait_for_function("explorer.views.transition.attempts.length === 1", timeout=300_000)
    page.click("text=Three heads")
    page.wait_for_function("explorer.views.transition.attempts.length === 2", timeout=300_000)
    one, three = page.evaluate("explorer.views.transition.attempts")
    assert one["ratio"] < 1 < three["ratio"]
    assert not one["reached"]
    assert three["reached"]
    assert "It has learnt all relations" in page.inner_text("#transition .told")


def test_the_transition_trains_the_seed_that_is_set(explorer):
    page = explorer("#view=transition&td=8&tm=16")
    spec = "explorer.views.transition.spec()"
    page.wait_for_function(f"{spec}?.seed === 1")
    page.click("text=Watch")
    page.click("text=Another seed")
    page.click("text=The transition")
    assert page.evaluate(f"{spec}.seed") == 2


def test_a_sweep_gives_way_to_the_reader(explorer):
    page = explorer("#view=transition&td=8&tm=16")
    sweep = page.locator("[data-do=sweep]")
    for leave in ("text=Two heads", "text=Train again", "[data-do=sweep]", "text=Watch"):
        sweep.click()
        assert sweep.inner_text() == "Stop"
        assert page.evaluate("[explorer.state.tm, explorer.state.td]") == [32, 16]
        page.click(leave)
        assert sweep.text_content() == "Train m = 32 … 60 in turn"


def test_a_link_begins_training_once(explorer):
    """What a reader does in the first moments, such as to pause, was undone by a second beginning.

    `epoch` counts beginnings.
    """
    epoch = "explorer.views.transition.trainer.epoch"
    page = explorer("#view=transition&td=8&tm=16")
    page.wait_for_timeout(400)  # changes of sliders, and so of the address, wait for 150 ms
    assert page.evaluate(epoch) == 1
    page.click("text=Watch")
    page.evaluate("location.hash = '#view=transition&td=8&tm=18'")
    page.wait_for_timeout(400)
    assert page.evaluate(epoch) == 2


def test_training_is_paused_stepped_and_found_again(explorer):
    page = explorer("#view=transition&td=24&tm=96")
    steps = "explorer.views.transition.trainer.frames?.[0].step"
    play = page.locator("#transition [data-do=play]")
    page.wait_for_function(f"{steps} > 0")
    assert play.inner_text() == "Pause"
    page.keyboard.press("Space")
    assert play.inner_text() == "Play"
    page.wait_for_function("location.hash.includes('tstep=')")
    rest = page.evaluate("explorer.state.tstep")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"explorer.state.tstep === {rest + 250}")
    page.wait_for_function(f"location.hash.includes('tstep={rest + 250}')")
    page.click("text=Watch")
    page.click("text=The transition")
    assert play.inner_text() == "Play"  # it was paused when it was left
    again = explorer(page.evaluate("modules['views/state.js'].hash()"))  # the address comes later
    again.wait_for_function(f"{steps} === {rest + 250}")
    scores = "[...explorer.views.transition.trainer.frames[0].joined]"
    assert again.evaluate(scores) == page.evaluate(scores)
    again.keyboard.press("r")
    assert again.evaluate("[explorer.state.tstep, explorer.views.transition.trainer.playing]") == [
        0,
        True,
    ]
