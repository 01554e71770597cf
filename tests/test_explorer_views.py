"""The explorer's smaller views in a real browser: the problem, interference, the plan."""

from __future__ import annotations

import ast

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


def test_the_python_lines_take_the_same_score_apart(explorer, capsys):
    page = explorer("#view=interference&im=32&id=16&ik=8&ih=3&ii=5&ij=7&seed=4")
    page.wait_for_function("document.querySelector('.bars').ariaLabel.includes('score')")
    exec(page.inner_text("#python"), {})
    parts = ast.literal_eval(capsys.readouterr().out.splitlines()[0])
    labels = dict(zip(("signal", "N₁", "N₂", "N₃", "score"), parts.values(), strict=True))
    told = ", ".join(f"{label} {value:.1f}" for label, value in labels.items())
    assert page.get_attribute(".bars", "aria-label") == told
    assert page.inner_text("#command").endswith("--seed 4 --pair 5 7")


def test_the_legend_names_lines_and_points(explorer):
    page = explorer("#view=plan")
    entries = page.locator("#plan .legend li")
    assert entries.all_inner_texts()[:3] == ["one head", "2 heads", "4 heads"]
    kinds = [entries.nth(n).get_attribute("class") for n in range(3)]
    assert kinds == ["lined dotted", "dotted", "lined dotted"]
    bare = explorer("#view=plan&pm=300&pd=40").locator("#plan .legend li")
    assert {bare.nth(n).get_attribute("class") for n in range(bare.count())} == {"lined"}


@pytest.mark.parametrize(("items", "least"), [(64, 64), (128, 40)])
def test_a_phone_shows_names(explorer, items, least):
    page = explorer(f"#view=plan&graph=antonyms&m={items}&item=3", width=390)
    page.evaluate(
        """() => {
          window.drawn = [];
          const plain = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.drawn.push([text, Number.parseFloat(/[\\d.]+px/.exec(this.font)[0])]);
            plain.call(this, text, ...rest);
          };
        }"""
    )
    page.click("text=The problem")
    drawn = dict(page.evaluate("window.drawn"))
    assert least <= len(drawn) <= items
    assert min(drawn.values()) >= 8  # pixels
    source, target = page.inner_text("#problem .told").split(" → ")
    assert {source, target} <= set(drawn)
