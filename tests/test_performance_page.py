"""The tables of docs/performance.md are those of the benchmarks kept beside it."""

import pytest

from tests.made_benchmark import write_benchmark
from tests.scripts import script


@pytest.fixture(scope="module")
def tool():
    return script("tools/performance_tables.py")


def test_the_page_has_the_tables_of_its_benchmarks(tool):
    page = tool.PAGE.read_text(encoding="utf-8")
    assert "<!-- bench " in page
    assert tool.written(page) == page


def test_a_table_has_a_row_per_variant_and_a_column_per_shape(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    write_benchmark(tmp_path / "here.json", slower={"softmax": 2.0})
    page = tool.written("before\n<!-- bench here -->\nold\n<!-- end -->\nafter\n")
    assert page.startswith("before\n<!-- bench here -->\n\n`headcount bench all` on ")
    assert page.endswith("\n<!-- end -->\nafter\n")
    assert "old" not in page
    title = "Native engine against JAX, one core:"
    table = page.partition(title)[2].strip().split("\n\n")[0].split("\n")
    assert table[0].count("|") == 8
    assert [row.split(" | ")[0] for row in table[2:4]] == ["| max", "| softmax"]
    assert "| (64, 16, 4, 20) | 1.55 |" in page
    assert tool.written(page) == page
