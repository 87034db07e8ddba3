# `make help` lists the targets. Everything is installed with pip into .venv.
PYTHON ?= python3
VENV ?= .venv
# One known release for this environment; the range in pyproject.toml admits newer ones (make TORCH=torch).
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test lint live selftest bench docs golden fuzz verify-knowledge vllm-env test-vllm test-gpu clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing .[demo] (torch is large: some minutes)"
	$(PIP) '$(TORCH)'
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "installing .[test]"
	$(PIP) '$(TORCH)'
	$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## Run the bundled engine, diagnose it healthy, then with a fault
	@$(BIN)/python tools/demo.py

test: $(VENV)/.test  ## Run the whole offline test suite
	$(BIN)/python -m pytest

live: $(VENV)/.test  ## Run only the tests that attach to real processes
	$(BIN)/python -m pytest -m live

selftest: $(VENV)/.test  ## Run every fault of the bundled engine against its expected finding
	$(BIN)/enginectl selftest

lint: $(VENV)/.test  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.test  ## Measure cost: start-up, doctor against a bare dump, pause, throughput
	$(BIN)/python tools/bench.py

fuzz: $(VENV)/.test  ## Fuzz the readers of saved dumps for five minutes
	$(BIN)/python tools/fuzz_read.py --seconds 300

docs: $(VENV)/.test  ## Regenerate docs/rules, docs/waits and the help blocks
	$(BIN)/python tools/make_docs.py

golden: $(VENV)/.test  ## Rewrite the golden reports after a wanted change
	$(BIN)/python -m pytest tests/render --update-golden

verify-knowledge: $(VENV)/.test  ## Check every pattern against the sources of the listed engine versions
	$(BIN)/python tools/verify_knowledge.py

vllm-env:  ## Build the environments with the real vLLM and Infinity (4 GB, outside the tree)
	bash tools/vllm_env.sh
	-bash tools/infinity_env.sh

test-vllm: $(VENV)/.test  ## Run the suite against a real vLLM server
	$(BIN)/python -m pytest -m real_vllm tests/real_vllm

test-gpu: $(VENV)/.test  ## Run the bundled engine on a real NVIDIA GPU (skips where there is none)
	$(BIN)/python -m pytest -m gpu tests/gpu -rs

clean:  ## Remove the environment and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
