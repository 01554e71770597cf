"""The commands `plan` and `bounds`."""

from __future__ import annotations

import json

import pytest

from headcount.theory.upper_bounds import binary_embedding


@pytest.fixture
def shown(command):
    """The standard output of a command line that succeeds."""

    def run(line: str) -> str:
        code, out, err = command(*line.split())
        assert code == 0, err
        return out

    return run


def test_plan_prints_a_table_and_json(shown):
    table = shown("plan --items 256 --d-model 32")
    assert "Train 4 heads of width 12" in table
    assert "One head can never do it" in table
    assert "sign patterns" in table
    parsed = json.loads(shown("plan --items 128 --degree 8 --d-model 32 --json"))
    assert (parsed["family"], parsed["edges"]) == ("regular", 1024)
    kinds = {"lower bound", "compiled", "trained law", "construction"}
    assert {row["kind"] for row in parsed["rows"]} == kinds
    assert parsed["in_range"]
    assert parsed["advised"]["split"]["steps"] == 50_000


def test_plan_fixes_steps_budget_and_heads(shown):
    line = "plan --items 500 --d-model 64 --json"

    def split(options):
        return json.loads(shown(f"{line} {options}"))["advised"]["split"]

    assert split("--steps 20000")["steps"] == 20_000
    given = split("--budget 80")
    assert given["heads"] * given["key_dim"] <= 80
    assert given["chance"] >= 0.95
    assert split("--heads 8")["heads"] == 8
    assert split("--budget 20 --steps 20000")["chance"] < 0.05
    outside = json.loads(shown("plan --items 4096 --d-model 512 --json"))
    assert outside["in_range"] is False
    assert outside["advised"]["split"] is None
    assert outside["advice"].startswith("Outside the measured range")


def test_plan_judges_a_channel_by_hand(shown):
    line = "plan --d-model 4096 --heads 32 --key-dim 128 --kv-heads 8 --items 128256 --json"
    assert json.loads(shown(line))["degrees_of_freedom"] == 4096 * 40 * 128 - 8 * 128**2
    assert "Vaswani et al. 2017" in shown("plan --example gpt2")


def test_families_are_named(shown):
    line = "plan --items 1000 --edges 999 --max-degree 1 --d-model 64"
    assert "partial permutations of 1,000 items with 999 edges" in shown(line)
    line = "bounds --items 1000 --edges 1500 --max-degree 2 --d-model 64"
    assert "1,500 edges and degrees up to 2" in shown(line)


def test_plan_judges_models(shown, tmp_path):
    assert "key–query parameters" in shown("plan --example llama-3-8b")
    sizes = {"hidden_size": 64, "num_attention_heads": 8, "vocab_size": 1000}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    parsed = json.loads(shown("plan --hf-config config.json --items 500 --json"))
    assert parsed["items"] == 500
    assert parsed["architecture"]["key_dim"] == 8


def test_plan_answers_how_small_the_key_cache_may_be(shown):
    line = "plan --items 256 --d-model 32 --kv-heads 1 --heads 8 --steps 20000"
    table = " ".join(shown(line).split())
    assert "Measured: 64 to 1,024 items" in table
    assert "8 heads of width" in table
    assert "one shared key" in table
    line = "plan --items 256 --d-model 32 --json"
    whole = json.loads(shown(f"{line} --bytes-per-number 1"))
    fits = json.loads(shown(f"{line} --key-cache-bytes 40"))
    assert fits["split"]["cache_bytes"] <= 40
    assert fits["split"]["parameters"] <= whole["split"]["parameters"]
    assert whole["split"]["cache_bytes"] == min(one["cache_bytes"] for one in whole["choices"])
    low, high = fits["split"]["interval"]
    assert low < fits["split"]["key_dim"] < 1.3 * high
    none = json.loads(shown(f"{line} --key-cache-bytes 4"))
    assert none["split"] is None
    assert "the smallest key cache is" in none["text"]
    outside = json.loads(shown("plan --items 4096 --d-model 512 --kv-heads 1 --json"))
    assert outside["split"] is None
    assert outside["text"].startswith("Outside the measured range of shared keys (items 4,096")


def test_plan_shows_the_key_cache_of_models(shown):
    latent = " ".join(shown("plan --example deepseek-v2").split())
    assert "128 heads × 128 on one shared latent key of width 512" in latent
    assert "1,152 bytes per token and layer" in latent
    assert "the form of a head has rank 128 at most" in latent
    assert "that share one key" in shown("plan --example gemma-2b")
    parsed = json.loads(shown("plan --example llama-3-8b --bytes-per-number 1 --json"))
    assert parsed["key_cache_bytes"] == 1024
    assert parsed["shared_keys"][0] == {"kv_heads": 1, "key_dim": 155, "cache_bytes": 155.0}


def test_bounds_prints_a_table_and_json(shown):
    line = "bounds --items 512 --d-model 16 --heads 1"
    assert "One head cannot do it, however wide" in shown(line)
    parsed = json.loads(shown(f"{line} --json"))
    assert parsed["heads_at_least"] == 2
    assert parsed["lower"][2]["budget"] is None  # inf: JSON has no infinity
    first = parsed["upper"][0]
    assert first["budget"] == first["heads"] * first["key_dim"]
    for variant in ("sum", "softmax"):
        assert shown(f"bounds --items 64 --d-model 16 --variant {variant}")
    line = "bounds --items 64 --edges 99 --d-model 16 --variant softmax"
    assert "no construction" in shown(line)


def test_bounds_show_corollaries_and_proposition_8_4(shown):
    def names(options=""):
        line = f"bounds --items 256 --d-model 64 {options} --json"
        return [row["name"] for row in json.loads(shown(line))["upper"]]

    assert names() == ["compressive", "binary table", "single-head", "pseudo-inverse"]
    assert names("--variant softmax") == ["softmax", "single-head"]
    assert names("--variant softmax --edges 200") == ["softmax"]
    assert "(Eq. (22))" in shown("bounds --items 256 --d-model 64 --variant softmax")
    assert not binary_embedding(256, 64).sure  # C was measured on Gaussian tables


@pytest.mark.parametrize("heads", ["", "--heads 4"])
def test_no_sum_is_ruled_out_by_its_head_count(shown, heads):
    table = shown(f"bounds --items 512 --d-model 16 --variant sum {heads}")
    assert "A sum of heads, however many, cannot do it" in table
    assert "impossible" in table


def test_plan_shows_a_contexts_flops_and_doubtful_holdings_in_brackets(shown):
    line = "plan --items 256 --d-model 32"
    assert "context" in shown(f"{line} --context-length 1024")
    assert "context" not in shown(line)
    assert "(about 0)" in shown("plan --example llama-3-8b")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plan", "--items is missing"),
        ("bounds --variant softmax --heads -4", "heads = -4"),
        ("plan --example gpt2 --context-length 8", "fixes its own sizes"),
        ("plan --items 8", "--d-model is missing"),
        ("bounds --d-model 8", "--items is missing"),
        ("plan --items 8 --d-model 4 --degree 2 --edges 9", "leave out --edges"),
        ("plan --items 8 --d-model 4 --degree 8", "allow 1 to 7"),
        ("plan --example gpt2 --d-model 4", "fixes its own sizes"),
        ("plan --example gpt2 --hf-config x.json", "give one"),
        ("plan --items 8 --d-model 4 --variant sum", "'sum' is not one of 'max', 'softmax'"),
        ("plan --items 8 --d-model 4 --steps 0", "steps = 0"),
        ("plan --items 8 --d-model 4 --chance 1", "chance = 1"),
        ("plan --items 8 --d-model 4 --budget 3 --heads 4", "more than the 3 columns"),
        ("plan --items 8 --d-model 4 --kv-heads 2 --budget 3", "--budget: not planned"),
        ("plan --items 64 --d-model 16 --kv-heads 2 --variant softmax", "--variant softmax: not"),
        ("plan --items 64 --d-model 16 --kv-heads 3 --heads 8", "kv_heads = 3: does not divide"),
        ("plan --items 64 --d-model 16 --kv-heads 0", "kv_heads = 0"),
        ("plan --items 64 --d-model 16 --key-cache-bytes 1", "less than one number of 2 bytes"),
        ("plan --items 64 --d-model 16 --bytes-per-number -2", "bytes_per_number = -2"),
        ("plan --items 64 --d-model 16 --kv-heads 1 --steps 0", "steps = 0"),
        ("plan --items 64 --d-model 16 --kv-heads 1 --chance 1", "chance = 1"),
        ("plan --example gpt2 --key-cache-bytes 8", "fixes its own sizes"),
        ("plan --d-model 768 --heads 12 --key-dim 64", "--items"),
        ("plan --d-model 768 --key-dim 64 --items 9", "give all three"),
        ("plan --example gpt2 --bits 0", "bits = 0"),
        ("plan --example gpt2 --items 1", "items = 1"),
        ("plan --example gpt9", "choose one of gpt2"),
        ("plan --hf-config absent.json", "no such file"),
        (
            "bounds --items 8 --d-model 4 --variant mean",
            "'mean' is not one of 'max', 'sum', 'softmax'",
        ),
    ],
)
def test_commands_refuse(command, line, message):
    code, _, err = command(*line.split())
    assert code == 2
    assert message in " ".join(err.split())
