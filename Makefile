# Two commands: `make reproduce` and `make test`. Both need only python3, make and git.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: reproduce test test-slow lint clean

reproduce: .venv/installed
	$(BIN)/headcount tour --out results/tour
	@echo "Open results/tour/report.html"

test: .venv/installed-dev lint
	$(BIN)/pytest -n auto

test-slow: .venv/installed-dev
	$(BIN)/pytest -m slow

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv results build src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
