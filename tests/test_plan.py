"""The planner: budgets of the constructions, trained laws, plans, capacities, models and the two commands."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.theory import upper_bounds as upper
from headcount.theory.architectures import EXAMPLES, audit_architecture, example, read_config
from headcount.theory.capacity import capacity
from headcount.theory.constants import constants
from headcount.theory.counting import family_of
from headcount.theory.laws import (
    BUDGET,
    BUDGET_REGULAR,
    BUDGET_WIDE,
    COMPILED,
    HEADS,
    MEASURED,
    MEASURED_WIDE,
    TrainedLaw,
    own_law,
    trained_split,
)
from headcount.theory.planner import plan
from headcount.theory.single_head import (
    single_head,
    softmax_advantage,
    softmax_single_head,
    softmax_width,
)

GRID = [(m, d) for m in (64, 128, 256, 512) for d in (16, 32, 64)]
GRID += [(128, 16), (1024, 128), (2048, 256), (4096, 512), (1024, 32)]
quick = settings(deadline=None, max_examples=50)


# Constructions


def test_constructions_by_hand():
    assert upper.compressive(100, 30, constant=2).heads == 4  # ⌈100/30⌉
    assert upper.compressive(100, 30, constant=2).key_dim == 10  # ⌈2·4.605⌉
    assert upper.bounded_skew(100, 500, 30, constant=2).heads == 17
    assert (
        upper.bounded_skew(100, 500, 30, max_degree=40).heads == 40
    )  # Eq. (33) fails: one colour a degree
    assert upper.softmax(100, 30, constant=1).key_dim == 22  # ⌈4.605²⌉
    assert upper.gaussian_embedding(100, 30, constant=2).heads == upper.compressive(100, 30).heads
    assert single_head(100, 30, constant=1).key_dim == 52  # ⌈(100/30)²·4.605⌉
    assert softmax_advantage(100, 10) == pytest.approx(10 / math.log(100))


def test_softmax_width_is_the_larger_of_floor_and_leakage():
    floor = softmax_width(1000, 64, block=64, context_length=1000, floor=1, leakage=1)
    assert floor == math.ceil(math.log(1000) ** 2)
    leaky = softmax_width(1000, 64, block=1000, context_length=16, floor=1, leakage=1)
    assert leaky == math.ceil((1000 / 64) ** 2 * math.log(1000))
    single = softmax_single_head(1000, 64, floor=1, leakage=1)
    assert (single.budget, single.sure) == (
        leaky,
        False,
    )  # Eq. (20) is necessary, not known to suffice


def test_constants_name_their_source():
    for name in (
        "compressive",
        "general-embedding",
        "general-graph",
        "softmax",
        "single-head",
        "one-hot",
    ):
        constant = constants()[name]
        assert constant.C > 0
        assert constant.source


def test_one_hot_constant_is_proved():
    """Hoeffding: C(m, 2) pairs of signatures, each at d_k/2 or more with probability at most exp(−d_k/8)."""
    assert constants()["one-hot"].source.startswith("proved")
    for items in (2, 10, 1000, 10**6):
        width = upper.one_hot(items).key_dim
        assert math.comb(items, 2) * math.exp(-width / 8) < 1 / 2


@quick
@given(
    items=st.integers(2, 500),
    d_model=st.integers(1, 200),
    share=st.floats(0, 1),
    degree=st.integers(1, 20),
)
def test_construction_four_grows_with_edges_and_degree(items, d_model, share, degree):
    edges = max(1, int(share * items * (items - 1)))
    more = min(edges + items, items * (items - 1))
    assert (
        upper.bounded_skew(items, edges, d_model).budget
        <= upper.bounded_skew(items, more, d_model).budget
    )
    low = -(-edges // items)
    top = min(low + degree, items, edges)
    if low <= top:
        plain = upper.bounded_skew(items, edges, d_model, low)
        assert plain.budget <= upper.bounded_skew(items, edges, d_model, top).budget
        lemma = -(-edges // d_model) + top  # the heads of Lemma B.8 and Theorem B.9
        assert upper.bounded_skew(items, edges, d_model, top).heads <= lemma


@pytest.mark.parametrize(
    "call",
    [
        lambda: upper.compressive(1, 4),
        lambda: upper.compressive(8, 0),
        lambda: upper.compressive(8, 4, constant=0),
        lambda: upper.general_embedding(8, block=9),
        lambda: upper.bounded_skew(8, 24, 4, max_degree=2),  # 24 edges on 8 items need degree 3
        lambda: upper.bounded_skew(8, 4, 4, max_degree=5),
    ],
)
def test_constructions_refuse(call):
    with pytest.raises(InputError):
        call()


# Trained laws


def test_laws_of_the_paper():
    assert BUDGET(256, 256, 32) == pytest.approx(1.19 * 256 * 8 / 32)
    assert BUDGET_WIDE(4096, 4096, 512) == pytest.approx(0.966 * 8 * 12)
    assert BUDGET_REGULAR(128, 8 * 128, 32) == pytest.approx(
        0.46 * 32 * 7
    )  # Eqs. (31)–(32): log₂ 128 = 7
    assert HEADS(512, 512, 16) == pytest.approx(1.65 * 32 - 6.64)
    assert HEADS(64, 64, 32) == 1  # clipped


def test_a_law_with_an_interval_replaces_the_papers():
    own = TrainedLaw(
        name="own",
        quantity="budget",
        form="edges·log2(items)/d_model",
        slope=1.0,
        source="ours",
        interval=(0.8, 1.3),
    )
    row = plan(256, d_model=32, law=own).row("trained law")
    value = 256 * 8 / 32
    assert row is not None
    assert row.name == "own"
    assert row.interval == pytest.approx((0.8 * value, 1.3 * value))
    assert BUDGET.interval_at(256, 256, 32) is None


def test_trained_split_reaches_the_law_and_table_1():
    assert trained_split(256, 256, 32) == (8, 7)  # ours 48 … 56; Table 1: 4 heads of width 16
    for items, d_model in GRID:
        heads, key_dim = trained_split(items, items, d_model)
        law = own_law(items, items, d_model)(items, items, d_model)
        assert law <= heads * key_dim <= law + heads + key_dim
        assert heads >= items / d_model


# Plans


@pytest.mark.parametrize(("items", "d_model"), GRID)
@pytest.mark.parametrize("variant", ["max", "softmax"])
def test_bounds_enclose_the_trained_law_on_the_papers_grid(items, d_model, variant):
    answer = plan(items, d_model=d_model, variant=variant)
    lower, trained, built = (
        answer.row(kind) for kind in ("lower bound", "trained law", "construction")
    )
    assert lower is not None
    assert trained is not None
    assert built is not None
    assert lower.budget <= trained.budget <= built.budget
    assert answer.bits == pytest.approx(math.lgamma(items + 1) / math.log(2))


def test_plan_by_hand():
    answer = plan(items=256, edges=256, d_model=32)
    row = answer.row("trained law")
    assert row is not None
    assert (row.heads, row.key_dim, row.budget) == (8, 7, 56)
    assert row.parameters == 2 * 32 * 56 + 1
    assert row.flops_per_token == 4 * 32 * 56
    assert row.bytes == 4 * row.parameters
    assert row.bits_per_parameter == pytest.approx(answer.bits / (2 * 32 * 56))
    assert answer.advice.startswith(
        "Train 8 heads of width 7 (D_K = 56); the bit budget rules out D_K < 4"
    )
    assert answer.advice.count(".") == 1


def test_wide_tables_need_one_head():
    built = plan(256, d_model=256).row("construction")
    assert built is not None
    assert (built.heads, built.name) == (1, "one-hot")


def test_hubs_drive_the_heads():
    built = plan(1000, 5000, d_model=64, max_degree=400).row("construction")
    assert built is not None
    assert built.heads == 400
    assert "Eq. (33), Δ ≤ m'/d_model, fails" in built.reason
    even = plan(1000, 5000, d_model=64, max_degree=5).row("construction")
    assert even is not None
    assert even.heads == math.ceil(5000 / 64)
    assert "Eq. (33), Δ ≤ m'/d_model, holds" in even.reason


def test_a_known_degree_never_costs_heads():
    unknown = upper.best_upper_bound(1000, 5000, 64)
    assert unknown is not None
    for degree in (5, 20, 79, 80, 400):
        known = upper.best_upper_bound(1000, 5000, 64, max_degree=degree)
        assert known is not None
        lemma = math.ceil(5000 / 64) + degree  # the heads of Lemma B.8 and Theorem B.9
        assert known.heads == max(unknown.heads, degree) <= lemma


def test_partial_permutations_are_counted_as_such(command):
    answer = plan(1000, 999, d_model=64, max_degree=1)
    whole = plan(1000, d_model=64)
    assert (answer.family, answer.max_degree) == ("bounded", 1)
    assert whole.bits < answer.bits < whole.bits + math.log2(1000)
    shown = command(
        "plan", "--items", "1000", "--edges", "999", "--max-degree", "1", "--d-model", "64"
    )[1]
    assert "partial permutations of 1,000 items with 999 edges" in shown
    words = ["--items", "1000", "--edges", "1500", "--max-degree", "2", "--d-model", "64"]
    assert "1,500 edges and degrees up to 2" in command("bounds", *words)[1]


def test_the_papers_other_fits_stand_beside_the_law():
    def trained(answer):
        return [(row.name, row.budget) for row in answer.rows if row.kind == "trained law"]

    assert trained(plan(4096, d_model=512))[2] == ("wide", 8 * 12)  # 0.966·8·12 = 92.7 in 8 heads
    assert trained(plan(128, 8 * 128, d_model=32))[2][0] == "regular"
    assert trained(plan(128, 8 * 128, d_model=32))[2][1] >= 0.46 * 32 * 7  # Eqs. (31)–(32)
    names = [name for name, _ in trained(plan(128, d_model=16))]
    assert names == ["measured", "permutations"]  # left out of the second fit


def test_a_context_costs_its_projections_and_logits():
    row = plan(256, d_model=32, context_length=16).row("trained law")
    assert row is not None
    assert row.context_flops == 16 * 4 * 32 * 56 + 16**2 * 2 * 56  # Appendix C
    bare = plan(256, d_model=32).row("trained law")
    assert bare is not None
    assert bare.context_flops is None


def test_the_compiled_law_stands_between_the_bounds_and_the_trained_laws():
    answer = plan(256, d_model=32)
    kinds = [row.kind for row in answer.rows]
    assert kinds == [*["lower bound"] * 3, "compiled", *["trained law"] * 3, *["construction"] * 2]
    row = answer.row("compiled")
    assert row is not None
    assert (row.name, row.heads, row.budget) == (
        "compiled law",
        None,
        math.ceil(COMPILED(256, 256, 32)),
    )
    assert row.interval == COMPILED.interval_at(256, 256, 32)
    assert "headcount compile" in row.reason
    assert f"; compiled weights need about {row.budget};" in answer.advice
    assert "fitted to permutations" in str(plan(128, 512, d_model=32).row("compiled"))
    assert "compiled" not in plan(128, 512, d_model=32).advice
    assert plan(256, d_model=32, variant="softmax").row("compiled") is None


def test_softmax_beyond_permutations_has_no_construction():
    answer = plan(256, 512, d_model=32, variant="softmax")
    assert answer.row("construction") is None
    assert "no softmax construction" in answer.advice


def test_families():
    assert family_of(64, 64) == "permutation"
    assert family_of(64, 64, 3) == "bounded"
    assert family_of(64, 63, 1) == "bounded"
    assert family_of(64, 99, 63) == family_of(64, 5, 5) == "graph"  # degrees that exclude no graph
    assert family_of(64, 192, 3) == "regular"


@quick
@given(items=st.integers(3, 5000), d_model=st.integers(1, 1000), degree=st.integers(1, 8))
def test_plans_are_consistent(items, d_model, degree):
    edges = min(degree, items - 1) * items
    answer = plan(items, edges, d_model=d_model)
    wider = plan(items, edges, d_model=d_model + 1)
    for row in answer.rows:
        if row.heads and row.key_dim:
            assert row.budget == row.heads * row.key_dim
        assert row.budget >= 1
        assert row.parameters == 2 * d_model * row.budget + 1
    floors, wider_floors = (
        [row for row in p.rows if row.kind == "lower bound"] for p in (answer, wider)
    )
    for row, other in zip(floors, wider_floors, strict=True):
        assert other.budget <= row.budget


def test_ten_million_items_are_planned_quickly():
    start = time.perf_counter()
    answer = plan(10**7, 10**8, d_model=4096)
    assert all(math.isfinite(row.bits_per_parameter) for row in answer.rows)
    assert len(capacity(4096, 32, 128, items=10**7)) == 4
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"items": 1}, "items = 1"),
        ({"d_model": 0}, "d_model = 0"),
        ({"edges": 4, "max_degree": 9}, "max_degree = 9"),
        ({"edges": 24, "max_degree": 2}, "lies between 3 and 8"),
        ({"context_length": 0}, "context_length = 0"),
    ],
)
def test_plans_refuse(arguments, words):
    with pytest.raises(InputError, match=words):
        plan(**{"items": 8, "d_model": 4} | arguments)


# Capacity


@quick
@given(d_model=st.integers(8, 2000), heads=st.integers(1, 64), key_dim=st.integers(4, 256))
def test_capacity_inverts_the_laws(d_model, heads, key_dim):
    budget = heads * key_dim
    *_, limit, trained, built = capacity(d_model, heads, key_dim)
    held = trained.edges
    law = MEASURED_WIDE if d_model > 16 else MEASURED
    assert (
        math.prod(trained_split(held, held, d_model, law)) <= budget
    )  # what is held fits after rounding
    more = max(held + held // 8, held + 8)
    assert law(more, more, d_model) > 0.9 * budget
    assert limit.edges >= held
    if built.edges:
        usual = upper.best_upper_bound(built.items, built.edges, d_model)
        pinv = upper.pseudo_inverse(built.items, built.edges, d_model)
        bound = next(one for one in (usual, pinv) if one and one.name == built.law)
        assert bound.budget <= budget
        assert bound.sure == built.sure == (built.sense == "at least")
    bits = {holding.law: holding.edges for holding in capacity(d_model, heads, key_dim)}
    rows = {row.name: row for row in plan(bits["bit budget"], d_model=d_model).rows}
    assert rows["bit budget"].budget <= budget
    beyond = {row.name: row for row in plan(bits["bit budget"] + 1, d_model=d_model).rows}
    assert beyond["bit budget"].budget > budget


@quick
@given(
    items=st.integers(100, 10**6),
    heads=st.sampled_from([4, 8, 32]),
    variant=st.sampled_from(["max", "softmax"]),
)
def test_shared_keys_hold_no_more_than_own_keys(items, heads, variant):
    own = capacity(512, heads, 64, items=items, variant=variant)
    shared = capacity(512, heads, 64, heads // 4, items=items, variant=variant)
    fewer = capacity(512, heads // 4, 64, items=items, variant=variant)
    for most, middle, least in zip(own, shared, fewer, strict=True):
        assert least.edges <= middle.edges <= most.edges


def test_only_a_met_condition_promises_at_least():
    narrow = capacity(32, 64, 32, items=1024)[-1]  # every c₀ ln m is above 32
    assert (narrow.sense, narrow.sure) == ("about", False)
    assert "fails here" in narrow.reason
    wide = capacity(1024, 64, 32, items=4096)[
        -1
    ]  # 10·8.3 < 1024: the pseudo-inverse, the least of the sure ones
    assert (wide.law, wide.sense, wide.sure) == ("pseudo-inverse", "at least", True)
    assert (
        capacity(1024, 64, 32, items=4096, variant="softmax")[-1].sense == "about"
    )  # C is provisional


def test_plans_fit_what_a_channel_is_said_to_hold():
    held = capacity(768, 12, 64)[2].edges
    row = plan(held, d_model=768).row("trained law")
    assert row is not None
    assert row.budget <= 768


def test_a_small_vocabulary_caps_the_relations():
    assert {holding.edges for holding in capacity(4096, 32, 256, items=10)} == {90}


@pytest.mark.parametrize("sizes", [(0, 1, 1), (8, 0, 1), (8, 1, 0), (8, 6, 1, 4), (8, 6, 1, 0)])
def test_capacity_refuses(sizes):
    with pytest.raises(InputError):
        capacity(*sizes)


# Published models


def test_examples_hold_their_facts():
    llama = example("llama-3-8b")
    assert (llama.d_model, llama.heads, llama.kv_heads, llama.key_dim) == (4096, 32, 8, 128)
    assert (llama.query_budget, llama.key_budget, llama.layers, llama.vocabulary) == (
        4096,
        1024,
        32,
        128256,
    )
    assert example("gpt2").key_dim == 64
    assert example("gpt3-175b").key_budget == 12288


@pytest.mark.parametrize("name", EXAMPLES)
def test_audits_stay_within_the_budget(name):
    audit = audit_architecture(example(name))
    assert audit.split_heads * audit.split_key_dim <= audit.architecture.key_budget
    assert audit.split_heads > audit.architecture.kv_heads  # the laws ask for more, smaller heads
    senses = [holding.sense for holding in audit.holdings]
    assert senses == ["at most", "about", "about"]  # Algorithm 2's constant is provisional
    assert [holding.sure for holding in audit.holdings] == [True, True, False]
    edges = [holding.edges for holding in audit.holdings]
    assert edges == sorted(edges, reverse=True)


def test_gpt2_by_hand():
    audit = audit_architecture(example("gpt2"))
    assert audit.parameters == 2 * 768 * 768 + 1
    law = int(768 * 768 / (0.859 * math.log2(50257)))
    assert 0.98 * law < audit.holdings[1].edges <= law  # the split is rounded up


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"hidden_size": 64, "num_attention_heads": 8}, (64, 8, 8, 8)),
        ({"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": None}, (64, 8, 8, 8)),
        ({"n_embd": 64, "n_head": 8, "multi_query": True}, (64, 8, 1, 8)),
        ({"d_model": 64, "num_heads": 8, "d_kv": 16}, (64, 8, 8, 16)),
        (
            {"hidden_size": 64, "n_head": 8, "n_head_kv": 2, "multi_query": True},
            (64, 8, 1, 8),
        ),  # Falcon 7B
        (
            {
                "hidden_size": 64,
                "n_head": 8,
                "n_head_kv": 2,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            (64, 8, 2, 8),  # Falcon 40B
        ),
        ({"hidden_size": 64, "num_attention_heads": 8, "num_kv_heads": 2}, (64, 8, 2, 8)),
        ({"d_model": 64, "n_heads": 8, "attn_config": {"kv_n_heads": 2}}, (64, 8, 2, 8)),  # DBRX
        (
            {"d_model": 64, "n_heads": 8, "attn_config": {"attn_type": "multiquery_attention"}},
            (64, 8, 1, 8),
        ),  # MPT
        (
            {"d_model": 64, "n_heads": 8, "attn_config": {"attn_type": "multihead_attention"}},
            (64, 8, 8, 8),
        ),
        (
            {
                "hidden_size": 64,
                "num_attention_heads": 8,
                "kv_channels": 16,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
            },
            (64, 8, 2, 16),  # ChatGLM 2
        ),
        (
            {
                "hidden_size": 64,
                "num_attention_heads": 8,
                "multi_query_attention": False,
                "multi_query_group_num": 2,
            },
            (64, 8, 8, 8),
        ),
        (
            {"text_config": {"hidden_size": 64, "num_attention_heads": 8, "head_dim": 32}},
            (64, 8, 8, 32),
        ),
    ],
)
def test_configs_are_read(tmp_path, config, expected):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    shape = read_config(path)
    assert (shape.d_model, shape.heads, shape.kv_heads, shape.key_dim) == expected
    assert audit_architecture(shape).items is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"hidden_size": 64', "line 1"),
        ("[1, 2]", "no JSON object"),
        ("{}", "none of hidden_size"),
        ('{"hidden_size": 64}', "none of num_attention_heads"),
        ('{"hidden_size": "64", "n_head": 8}', "hidden_size = '64'"),
        ('{"hidden_size": true, "n_head": 8}', "hidden_size = True"),
        ('{"hidden_size": 64, "n_head": 7}', "add head_dim"),
        ('{"hidden_size": 64, "n_head": 8, "num_key_value_heads": 3}', "do not divide"),
        ('{"hidden_size": 64, "n_head": 8, "kv_lora_rank": 512}', "latent keys"),
    ],
)
def test_bad_configs_are_refused(tmp_path, text, words):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as refusal:
        read_config(path)
    assert "config.json" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_missing_and_binary_configs_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "absent.json")
    binary = tmp_path / "model.bin"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match="not a text file"):
        read_config(binary)
    with pytest.raises(InputError, match="choose one of gpt2"):
        example("gpt5")


# Commands


def test_plan_prints_a_table_and_json(command):
    code, shown, _ = command("plan", "--items", "256", "--d-model", "32")
    assert code == 0
    assert "Train 8 heads of width 7" in shown
    assert "sign patterns" in shown
    parsed = json.loads(
        command("plan", "--items", "128", "--degree", "8", "--d-model", "32", "--json")[1]
    )
    assert parsed["family"] == "regular"
    assert parsed["edges"] == 1024
    assert {row["kind"] for row in parsed["rows"]} == {
        "lower bound",
        "compiled",
        "trained law",
        "construction",
    }


def test_plan_judges_models(tmp_path, command):
    assert "key–query parameters" in command("plan", "--example", "llama-3-8b")[1]
    path = tmp_path / "config.json"
    path.write_text('{"hidden_size": 64, "num_attention_heads": 8, "vocab_size": 1000}')
    parsed = json.loads(command("plan", "--hf-config", str(path), "--items", "500", "--json")[1])
    assert parsed["items"] == 500
    assert parsed["architecture"]["key_dim"] == 8


def test_bounds_prints_a_table_and_json(command):
    _, shown, _ = command("bounds", "--items", "512", "--d-model", "16", "--heads", "1")
    assert "One head cannot do it, however wide" in shown
    parsed = json.loads(
        command("bounds", "--items", "512", "--d-model", "16", "--heads", "1", "--json")[1]
    )
    assert parsed["heads_at_least"] == 2
    assert parsed["lower"][2]["budget"] is None  # inf: JSON has no infinity
    assert (
        parsed["upper"][0]["budget"] == parsed["upper"][0]["heads"] * parsed["upper"][0]["key_dim"]
    )
    for variant in ("sum", "softmax"):
        assert command("bounds", "--items", "64", "--d-model", "16", "--variant", variant)[0] == 0
    words = ("--items", "64", "--edges", "99", "--d-model", "16", "--variant", "softmax")
    assert "no construction" in command("bounds", *words)[1]


def test_bounds_show_corollaries_and_proposition_8_4(command):
    def names(*words):
        return [row["name"] for row in json.loads(command("bounds", *words, "--json")[1])["upper"]]

    sizes = ["--items", "256", "--d-model", "64"]
    assert names(*sizes) == ["compressive", "binary table", "single-head", "pseudo-inverse"]
    assert names(*sizes, "--variant", "softmax") == ["softmax", "single-head"]
    assert names(*sizes, "--variant", "softmax", "--edges", "200") == ["softmax"]
    assert "(Eq. (22))" in command("bounds", *sizes, "--variant", "softmax")[1]
    binary = upper.binary_embedding(256, 64)
    assert not binary.sure  # C was measured on Gaussian tables


def test_no_sum_is_ruled_out_by_its_head_count(command):
    for heads in ([], ["--heads", "4"]):
        shown = command("bounds", "--items", "512", "--d-model", "16", "--variant", "sum", *heads)[
            1
        ]
        assert "A sum of heads, however many, cannot do it" in shown
        assert "impossible" in shown


def test_plan_shows_a_contexts_flops_and_doubtful_holdings_in_brackets(command):
    words = ["plan", "--items", "256", "--d-model", "32"]
    assert "context" in command(*words, "--context-length", "1024")[1]
    assert "context" not in command(*words)[1]
    assert "(about 0)" in command("plan", "--example", "llama-3-8b")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan"], "--items is missing"),
        (["bounds", "--variant", "softmax", "--heads", "-4"], "heads = -4"),
        (["plan", "--example", "gpt2", "--context-length", "8"], "fixes its own sizes"),
        (["plan", "--items", "8"], "--d-model is missing"),
        (["bounds", "--d-model", "8"], "--items is missing"),
        (
            ["plan", "--items", "8", "--d-model", "4", "--degree", "2", "--edges", "9"],
            "leave out --edges",
        ),
        (["plan", "--items", "8", "--d-model", "4", "--degree", "8"], "allow 1 to 7"),
        (["plan", "--example", "gpt2", "--d-model", "4"], "fixes its own sizes"),
        (["plan", "--example", "gpt2", "--hf-config", "x.json"], "give one"),
        (
            ["plan", "--items", "8", "--d-model", "4", "--variant", "sum"],
            "choose one of max, softmax",
        ),
        (["plan", "--example", "gpt2", "--bits", "0"], "bits = 0"),
        (["plan", "--example", "gpt2", "--items", "1"], "items = 1"),
        (["plan", "--example", "gpt2", "--variant", "max"], "fixes its own sizes"),
        (["plan", "--example", "gpt9"], "choose one of gpt2"),
        (["plan", "--hf-config", "absent.json"], "no such file"),
        (
            ["bounds", "--items", "8", "--d-model", "4", "--variant", "mean"],
            "choose one of max, softmax, sum",
        ),
    ],
)
def test_commands_refuse(words, message, command):
    code, _, err = command(*words)
    assert code == 2
    assert message in err
