"""Documents cannot drift: their code blocks run, and every symbol they name exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from headcount.report.figures import claims

from .documents import blocks, run_document, unknown_words
from .measured import measured_evidence

ROOT = Path(__file__).parent.parent
FOLDERS = ("reference", "tutorials")  # the others of docs/ are made by `make docs`
WRITTEN = [(ROOT / "docs").glob("*.md"), *((ROOT / "docs" / f).glob("*.md") for f in FOLDERS)]
DOCUMENTS = [ROOT / "README.md", *sorted(path for paths in WRITTEN for path in paths)]
COLUMNS = 100
SOURCES = [
    path
    for suffix in ("js", "css", "html", "h", "cpp")
    for path in sorted((ROOT / "src").rglob(f"*.{suffix}"))
]
# Timings are taken as often as it takes to run the code: what they come to is not compared.
LESS_OFTEN = {"((16, 200), (1024, 5))": "((16, 1), (1024, 1))"}
LINK_ONLY = re.compile(r"[-*]? *!?\[[^\]]*\](\([^)]*\)|: \S+)[.,;]?")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_blocks_run(document, command_in, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_document(document, command_in, LESS_OFTEN)


def test_every_timing_that_is_taken_less_often_is_in_a_document():
    code = "".join(block.code for path in DOCUMENTS for block in blocks(path.read_text()))
    assert all(code.count(words) == 1 for words in LESS_OFTEN)


def test_the_runner_compares_what_is_printed(tmp_path, command_in):
    page = tmp_path / "page.md"
    said = "```python\nx = 2\n```\n\n```python\nprint(x, 'and', x + 1)\n```\n\n```text\n{}\n```\n"
    page.write_text(said.format("2 ... 3"))
    run_document(page, command_in)
    page.write_text(said.format("2 and 4"))
    with pytest.raises(AssertionError, match=r"page.md, line 5 prints:\n2 and 3"):
        run_document(page, command_in)


def test_the_readme_is_short_and_has_something_to_run():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    python, *_ = [block for block in blocks(text) if block.language == "python"]
    assert "exact" in python.shown or "every pair" in python.shown
    assert any(block.language == "bash" for block in blocks(text))


def test_every_symbol_in_the_paper_map_exists():
    names = re.findall(r"`(headcount\.[\w.]+)`", (ROOT / "docs" / "paper-map.md").read_text())
    assert len(names) > 10
    for name in names:
        module, target = name, []
        while True:
            try:
                found = import_module(module)
                break
            except ModuleNotFoundError:
                module, _, last = module.rpartition(".")
                target.insert(0, last)
        for attribute in target:
            assert hasattr(found, attribute), name
            found = getattr(found, attribute)


def test_every_numbered_item_of_the_paper_is_on_the_map():
    text = (ROOT / "docs" / "paper-map.md").read_text()
    items = {
        "Algorithm": ["1", "2", "3", "4", "5"],
        "Theorem": ["4.1", "8.1", "9.2", "B.1", "B.2", "B.5", "B.9"],
        "Lemma": ["8.2", "8.3", "9.3", "B.3", "B.8"],
        "Definition": ["9.1", "B.4"],
        "Corollary": ["B.6", "B.7", "B.10"],
        "Proposition": ["8.4"],
    }
    for kind, numbers in items.items():
        for number in numbers:
            assert re.search(rf"{kind} {re.escape(number)}\b(?!\.\d)", text), f"{kind} {number}"


def test_every_equation_of_the_paper_is_on_the_map():
    text = (ROOT / "docs" / "paper-map.md").read_text()
    spans = re.findall(r"Eqs?\. \((\d+)\)(?:–\((\d+)\))?", text)
    named = {n for a, b in spans for n in range(int(a), int(b or a) + 1)}
    assert named >= set(range(1, 34))


def test_the_table_of_claims_is_what_the_report_says():
    judged = {claim.id: claim for claim in claims(measured_evidence())}
    rows = re.findall(
        r"^\| ([CK]\d+) [^|]*\| ([\w ]+?) \| (.*) \| [\d-]+ \|$",
        (ROOT / "docs" / "reproduction.md").read_text(),
        re.MULTILINE,
    )
    assert [name for name, _, _ in rows] == list(judged)
    for name, verdict, number in rows:
        assert verdict == judged[name].verdict
        ours = re.sub(r"\([^)]*\)", "", number)  # in brackets stand the paper's
        told = re.findall(r"−?\d+(?:\.\d+)?", judged[name].number)
        assert set(re.findall(r"−?\d+(?:\.\d+)?", ours)) <= set(told), (name, number, told)


def test_the_findings_tell_every_deviation():
    items = re.findall(
        r"^(\d+)\. \*\*", (ROOT / "docs" / "deviations.md").read_text(), re.MULTILINE
    )
    told = re.findall(r"\[(\d+)\]", (ROOT / "docs" / "findings.md").read_text())
    assert len(items) == 30
    assert set(items) == set(told)


def test_every_command_that_is_named_exists():
    """Also where it is not run: in sentences, in tables, and in blocks that are for reading."""
    named = 0
    for document in DOCUMENTS:
        text = document.read_text().replace("\\\n", " ")
        lines = re.findall(r"^headcount [^\n#|]*", text, re.MULTILINE)
        lines += [" ".join(line.split()) for line in re.findall(r"`(headcount [^`…|]*)`", text)]
        for line in lines:
            unknown = unknown_words(line.split()[1:])
            assert not unknown, f"{document.name}: {line}: {unknown}"
            named += 1
    assert named > 80


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
def test_prose_fits_100_columns(document):
    """Tables, code blocks and lines that are nothing but a link may be longer."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    prose = [
        line
        for line in text.splitlines()
        if not line.startswith("|") and not LINK_ONLY.fullmatch(line.strip())
    ]
    assert [line for line in prose if len(line) > COLUMNS] == []


def test_sources_in_other_languages_fit_100_columns():
    """Python's lines are checked by ruff."""
    assert {path.suffix for path in SOURCES} == {".js", ".css", ".html", ".h", ".cpp"}
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert found == []
