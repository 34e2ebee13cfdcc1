# Everything runs in .venv, made once from pyproject.toml and constraints.txt.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo serve up environment check test tests image-check chaos reference bench load abuse fuzz measure docs lock clean bench-long hmm

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVING := $(VENV)/.serving
INSTALLED := $(VENV)/.installed
ORACLES := $(VENV)/.oracles
N ?= 2000
OTHERS := compile,redis,up,otel,dev
EXTRAS := $(OTHERS),inference

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export OMP_WAIT_POLICY ?= PASSIVE
# Where this is set every process would compile all that it imports, which is seconds for PyTorch alone.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make setup   install into $(VENV)"
	@echo "make demo    start the service with its built-in model, send three requests, stop"
	@echo "make serve   the service on http://127.0.0.1:8000 (HOST=... PORT=...)"
	@echo "make check   lint and types"
	@echo "make test    check, then all tests"
	@echo "make measure files and functions that a request enters, long functions, lines and comments of each package"
	@echo "make fuzz    N=100000 random constraints, each answer and refusal re-checked"
	@echo "make reference  what is only measured against: FAdo (GPL-3), outlines-core, XGrammar, llguidance; and an environment for each other decoder"
	@echo "make bench   a short form of all benchmarks, under half an hour; benchmarks/RESULTS.md and the README's table from the stored figures"
	@echo "make bench-long  the benchmarks, hours, which store those figures"
	@echo "make load    the service's processes under 200 clients for five minutes, which writes benchmarks/RESULTS.md"
	@echo "make up      the service as processes that may each die, with a server of their own (PORT=...)"
	@echo "make image-check  the Dockerfile's steps in an empty environment (minutes)"
	@echo "make chaos   500 requests while workers are killed every second; all faults as long and as many as promised"
	@echo "make abuse   attack the API: slow and hostile clients, schemathesis, 20,000 forged values of the store"
	@echo "make docs    the documentation as a site, which lies in .cache/site then"
	@echo "make lock    resolve constraints.txt in a fresh environment"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "installing into $(VENV) (the first time fetches PyTorch: some minutes)"
	@$(call install,$(OTHERS))
	@touch $(SERVING) $@

# Installs only the dependencies of serving, for a first look.
$(SERVING): pyproject.toml constraints.txt
	@echo "installing into $(VENV) (the first time fetches PyTorch: about a minute)"
	@$(call install,compile)
	@touch $@

# With two cores in mind: PyTorch, the largest by far, comes beside all else; then the environment's own pip, where Python
# has one that can install for another. Python compiles what it imports for the first time, which for what generates is
# ten seconds: it does so as soon as it can, whatever goes on. Nothing else is compiled, for little of what is fetched is
# imported.
GENERATING := torch transformers tokenizers
IMPORTED := import torch; from transformers import AutoModelForCausalLM, LlamaForCausalLM
ahead = $(BIN)/python -c "$(IMPORTED)" >/dev/null 2>&1
install = set -e; \
	if test -x $(BIN)/python; then pip="$(BIN)/python -m pip"; own=true; \
	elif $(PYTHON) -m pip --python $(PYTHON) --version >/dev/null 2>&1; then \
		$(PYTHON) -m venv --without-pip $(VENV); \
		pip="$(PYTHON) -m pip --python $(BIN)/python"; own="$(BIN)/python -m ensurepip"; \
	else $(PYTHON) -m venv $(VENV); pip="$(BIN)/python -m pip"; own=true; fi; \
	bring="$$pip install --quiet --no-compile --constraint constraints.txt"; \
	{ $$bring --no-deps torch && { $(ahead) & } && { $$own >/dev/null || $$bring pip; }; } & torch=$$!; \
	$$bring --no-warn-conflicts $(filter-out torch,$(GENERATING)) --editable '.[$(1)]'; wait $$torch; \
	$$bring $(GENERATING); { $(ahead) & }

# FAdo (GPL-3) judges our automata in the tests, and nothing else; what it declares would bring notebooks.
$(ORACLES): $(INSTALLED) tests/requirements.txt tests/requirements-linux.txt
	$(BIN)/python -m pip install --quiet --no-deps --requirement tests/requirements.txt
	@$(BIN)/python -m pip install --quiet --no-deps --requirement tests/requirements-linux.txt \
		|| echo "not here: the tests that need what tests/requirements-linux.txt names are skipped"
	@touch $@

demo: $(SERVING)
	@$(BIN)/abs demo

HOST ?= 127.0.0.1
PORT ?= 8000
serve: $(SERVING)
	$(BIN)/abs serve --host $(HOST) --port $(PORT)

up: $(INSTALLED)
	$(BIN)/abs up --host $(HOST) --port $(PORT)

# All that lint, types and tests run in.
environment: $(ORACLES)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/mypy

# One thread: the tests' models are tiny, and more threads would wait for one another on a busy machine. Five files at
# once: many tests wait for processes more than they work. Types are checked meanwhile. The longest files come first.
test: $(ORACLES)
	$(MAKE) --no-print-directory --jobs 2 check tests

tests: $(ORACLES)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 5 --dist loadfile --no-loadscope-reorder

measure: $(INSTALLED)
	$(BIN)/python -m tests.measure

fuzz: $(INSTALLED)
	$(BIN)/python -m tests.long.fuzz --cases $(N)

# What is only measured against. XGrammar declares GPU libraries that none of this needs.
reference: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS),reference]' --constraint constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps --requirement benchmarks/requirements.txt
	$(BIN)/python -m benchmarks.systems.environments

# What the HMM's look-ahead is distilled from, and after what; minutes each, made where one is missing.
HMM = .cache/systems/hmm
hmm: reference
	test -e $(HMM)/captions.npz || $(BIN)/python -m benchmarks.systems.hmm_model app/models/captions "sentence:"
	stories=$$($(BIN)/python -c 'from benchmarks.compile import DEFAULT_SHARED as d; import os; print(os.environ.get("ABS_SHARED", d))')/models; \
	for model in stories260k tinystories-656k; do \
		if [ -d $$stories/$$model ] && [ ! -e $(HMM)/$$model.npz ]; then \
			$(BIN)/python -m benchmarks.systems.hmm_model $$stories/$$model "One day, a girl saw" || exit 1; fi; done

# A short form of all benchmarks with its own figures; then the repository's tables from the files of the long form.
bench: hmm
	$(BIN)/python -m benchmarks.short
	$(BIN)/python -m benchmarks.report

bench-long: hmm
	for name in compile scale ltlf step batch decode search_quality beam_widths ablation page truncation commongen infilling runtimes fashion; do \
		$(BIN)/python -m benchmarks.$$name || exit 1; done

# The service's processes and server under 200 clients for five minutes.
load: $(INSTALLED)
	$(BIN)/python -m benchmarks.load

# The page of settings and the pictures of constraints are made first, by the code that they describe.
docs: $(INSTALLED)
	$(BIN)/python -m docs.tools.settings_page
	$(BIN)/python -m docs.tools.draw
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

image-check: $(INSTALLED)
	$(BIN)/python -m tests.deploy.image

chaos: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.long.chaos --record
	OMP_NUM_THREADS=1 ABS_TESTS_FULL=1 $(BIN)/python -m pytest tests/app/faults tests/app/broker/test_redis_connections.py

# The API attacked from outside and by its own description, in full.
abuse: $(INSTALLED)
	$(BIN)/python -m tests.long.abuse
	$(BIN)/python -m tests.long.mutants --cases 20000

lock:
	rm -rf .cache/lock
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/python -m pip install --quiet '.[$(EXTRAS),reference]'
	.cache/lock/bin/python -m pip freeze --exclude abs-server | sed 's/+[a-z0-9.]*$$//' > constraints.txt
	rm -rf .cache/lock

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
