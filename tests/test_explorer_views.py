"""The explorer's smaller views in a real browser: the problem, interference, the plan."""

from __future__ import annotations

import pytest

import headcount as hc

pytestmark = pytest.mark.browser


def test_words_have_opposites(explorer):
    page = explorer("#view=problem&graph=antonyms")
    page.focus("#problem canvas")
    page.keyboard.press("ArrowRight")
    word, opposite = page.inner_text("#problem .told").split(" → ")
    graph = hc.relations("antonyms")
    names = list(graph.names)
    assert graph.has_edges([names.index(word)], [names.index(opposite)])[0]


def test_the_command_has_no_more_heads_than_items(explorer):
    page = explorer("#view=interference&ih=32&im=16")
    assert "--items 16 --d-model 64 --heads 16 " in page.inner_text("#command")
    assert page.inner_text("#interference input[name=ih] + output") == "16"


def test_the_plan_says_what_python_says(explorer):
    page = explorer("#view=plan&pm=500&pd=64")
    answer = hc.plan(items=500, d_model=64, steps=50_000)
    assert page.inner_text(".answer") == answer.advised.text
    page = explorer("#view=plan&pm=4000&pd=64")
    assert page.inner_text(".answer").startswith("Outside the measured range (items 4,000;")
    assert page.locator(".chart-pair.outside").count() == 1


def test_large_plans_are_told_to_the_item(explorer):
    page = explorer("#view=plan&pm=4096&pd=8&pr=16")
    assert page.inner_text(".answer").startswith("Outside the measured range (items 4,096;")
