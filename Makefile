# isobudget. `make sweep` and `make test` do their own set-up; nothing else is needed.
STUDY   ?= preregistrations/dense-rewards-laptop.yaml
BACKEND ?= local
RUNS    ?=
PYTHON  ?= python3
TORCH_INDEX ?=
ARGS    ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.ready
RUNS_OPTION := $(if $(RUNS),--runs $(RUNS))

.DEFAULT_GOAL := help
.PHONY: help setup sweep plan check test test-slow gpu-check generated bench clean

help:            ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP)  ## .venv with pinned dependencies, once

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh scripts/setup.sh $(VENV)
	@touch $@

sweep: $(STAMP)  ## plan, run, gather and report STUDY (default: the example study)
	@$(BIN)/isobudget sweep $(STUDY) --backend $(BACKEND) $(RUNS_OPTION) $(ARGS)

plan: $(STAMP)   ## what `make sweep` would run
	@$(BIN)/isobudget plan $(STUDY) $(RUNS_OPTION) $(ARGS)

check: $(STAMP)  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: $(STAMP)   ## the tests (at most ten minutes on two cores)
	$(BIN)/pytest $(ARGS)

test-slow: $(STAMP) ## kill points, long sweeps and what else takes minutes
	$(BIN)/pytest -m slow --timeout 1200 $(ARGS)

gpu-check: $(STAMP) ## the tests that need a GPU, where there is one
	@$(BIN)/python -c 'import torch, sys; torch.cuda.is_available() or sys.exit("gpu-check: torch finds no GPU here; nothing was checked")' || exit 2
	$(BIN)/pytest -m gpu $(ARGS)

generated: $(STAMP) ## rewrite the schema and the reference page that are made from the code
	$(BIN)/python -m harness.study.json_schema
	$(BIN)/python -m harness.study.reference

bench: $(STAMP)  ## speed, as ratios against a rival in the same run
	$(BIN)/python -m benchmarks $(ARGS)

clean:           ## removes .venv and caches; runs/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
