# `make demo` and `make test` set up everything they need in .venv, from pinned versions.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && echo 4 || echo $$n)

.PHONY: help setup demo docs test test-fast test-all test-slurm fuzz kills lint golden results clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/.ready  ## install the package and its tools into .venv

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("ipseg needs Python 3.11 or newer; name one with `make PYTHON=...`") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup  ## four methods on drawn scenes, a few minutes: runs/demo/report.html
	$(BIN)/ipseg demo

test: setup lint  ## all tests but the long ones
	$(PYTEST) -m "not long"

test-fast: setup  ## the fast part, under two minutes
	$(PYTEST) -m "not slow and not long"

test-all: setup lint  ## every test
	$(PYTEST)

fuzz: setup  ## changed files for every command and reader, some twenty minutes
	$(BIN)/python tests/fuzz/readers.py --cases 5000 --seed $$(date +%j)
	$(BIN)/python tests/fuzz/fuzz.py --minutes 10 --seed $$(date +%j)

kills: setup  ## commands killed at random moments, ten minutes
	$(BIN)/python tests/fuzz/kills.py --minutes 10 --seed $$(date +%j)

test-slurm: setup  ## sweeps on a real SLURM, started on this machine (Debian: slurm-wlm, munge); minutes
	$(BIN)/python -m pytest tests/slurm

lint: setup  ## style and types
	$(BIN)/ruff check --no-cache .  # its cache does not see that a module beside the tests is new
	$(BIN)/ruff format --check .
	$(BIN)/mypy

golden: setup  ## compute the golden curves anew and print what moved
	$(BIN)/python tests/golden/regenerate.py

docs: setup  ## the documentation as a site: build/docs/index.html
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs

results: setup  ## every table and figure of the docs, from benchmarks/
	$(BIN)/python benchmarks/tables.py README.md docs/*.md
	$(BIN)/python benchmarks/figures.py demo/results.jsonl --out docs/images/demo.png \
		--run ipseg --run ipseg_lda --run ablated --run finetune
	$(BIN)/python benchmarks/figures.py animals/results.jsonl --scenario 2-1 --out docs/images/animals.png \
		--run ipseg_lda --run ipseg --run ssul_m --run plop_m --run mib --run finetune --run joint
	$(BIN)/python benchmarks/few-images/few_images.py figure --out docs/images/few-images.png

clean:  ## remove what make and the tools made (not runs/)
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .hypothesis
