# What one types here. `make` alone prints this list.

VENV := .venv
BIN := $(VENV)/bin
# The first Python that is new enough; PYTHON=... on the command line wins.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BENCHES := $(wildcard benchmarks/allocator.py benchmarks/speed*.py)
EXAMPLE := examples/llama-3.1-8b/config.json
ASK ?= estimate $(EXAMPLE) --sequence 4096 --batch 1 --gpu H100

.PHONY: help run test check docs bench agreement page figures load renew clean python

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: python ## set up, then answer a real question in the terminal (ASK="..." asks another)
	@echo "peakmem $(ASK)"; echo
	@if $(MAKE) --no-print-directory --silent $(VENV)/.run >/dev/null 2>&1; \
	then $(BIN)/peakmem $(ASK); code=$$?; echo; \
	echo "More: . $(BIN)/activate, then peakmem --help. Without that: $(BIN)/peakmem --help"; exit $$code; \
	else echo "(no virtual environment can be made here: running from the source tree)"; \
	PYTHONPATH=src $(PYTHON) -c 'import sys; from peakmem.cli import main; sys.exit(main())' $(ASK); fi

test: $(VENV)/.dev ## set up everything that is tested against (PyTorch, transformers), then run all tests
	@sh scripts/browser.sh
	@$(BIN)/python -m pytest $(TESTS)

check: $(VENV)/.dev docs ## style, types, examples in the documentation, the documentation itself
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict src
	@$(BIN)/python scripts/doctests.py

docs: $(VENV)/.dev ## the documentation, as pages in docs/_build/html
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/.dev ## how fast: a cold command, a new structure, a sweep
	@for file in $(BENCHES); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

agreement: $(VENV)/.dev ## estimate and trace over the whole grid; the last line tells points and bytes off
	@$(BIN)/python benchmarks/agreement.py

renew: $(VENV)/.dev ## write outputs in the documentation and golden files anew; look at the difference before you commit it
	@$(BIN)/python scripts/cli_reference.py --write
	@$(BIN)/python scripts/families.py --write
	@$(BIN)/python scripts/console.py --write
	@$(BIN)/python scripts/picture.py
	@PEAKMEM_GOLD=1 $(BIN)/python -m pytest tests/views

page: $(VENV)/.dev ## the page that runs by itself, as site/ and page.html (Pyodide from npm)
	@npm ci --no-audit --no-fund
	@$(BIN)/peakmem page --out site/ --pyodide node_modules/pyodide
	@$(BIN)/peakmem page --out page.html --pyodide node_modules/pyodide

figures: $(VENV)/.dev ## the page in figures: size, first paint, a change of the calculator, Lighthouse (from npm)
	@$(BIN)/python benchmarks/page.py
	@$(BIN)/python benchmarks/lighthouse.py

load: $(VENV)/.dev ## 200 clients at once against the server for a minute; SECONDS=10 for less
	@$(BIN)/python benchmarks/load_server.py --seconds $(or $(SECONDS),60)

clean: ## remove what the commands above have made
	rm -rf $(VENV) docs/_build build dist site page.html node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; say which: make PYTHON=/path/to/python3"; exit 2; }

$(BIN)/python: | python
	@echo "virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# Stamps: the next run is quick, and a change of pyproject.toml installs again.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "installing peakmem"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing peakmem and what its tests need: PyTorch, transformers, pytest, ... (minutes, once)"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.run
