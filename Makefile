# make demo    a virtual environment with the harness in it, and a first sweep (no Docker needed)
# make test    style, types and all tests but the stories, after setting up what they need (9 minutes)
# make unit    only the unit tests: no Docker, no network (a minute)
# make nightly make test with more random examples, every test on every Python, repeated kills, and random faults
# make stories the published stories in real containers with TensorFlow and onnxruntime (15 minutes)
# make check   style and types
# make base    a local base image, for machines that cannot reach an image registry
# make site    the documentation as a site, in site/; a broken link is an error
# make figures the benchmarks, printed as ratios
# make clean   remove what the above left in this folder

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE_IMAGE := harness-base:bookworm

.PHONY: demo test ready unit nightly stories check base engine browser lab slurm registry figures site clean
.DEFAULT_GOAL := demo

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "make: harness needs Python 3.10 or later; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "make: $(PYTHON) cannot create a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/installed: $(BIN)/python pyproject.toml
	@echo "installing the harness into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

# By uv, which needs a tenth of pip's time; by pip where only pip knows the way to an index.
$(VENV)/installed-dev: $(BIN)/python pyproject.toml
	@echo "installing the harness and what the tests need into $(VENV)"
	@$(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]' \
	  || $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(VENV)/installed $@

$(VENV)/installed-docs: $(VENV)/installed
	@echo "installing what the site needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

demo: $(VENV)/installed
	@$(BIN)/python -m harness demo --folder examples || [ $$? = 1 ]
	@command -v harness >/dev/null || echo "before you run the commands above, type: . $(VENV)/bin/activate"

check: $(VENV)/installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

engine:
	@tools/docker-engine || [ -z "$(HARNESS_REQUIRE_DOCKER)" ]

browser:
	@tools/browser || [ -z "$(HARNESS_REQUIRE_CHROMIUM)" ]

registry:
	@tools/registry >/dev/null || [ -z "$(HARNESS_REQUIRE_REGISTRY)" ]

lab:
	@tools/lab need || [ -z "$(HARNESS_REQUIRE_LAB)" ]

slurm:
	@tools/slurm need || [ -z "$(HARNESS_REQUIRE_SLURM)" ]

base:
	@tools/base-image $(BASE_IMAGE) >/dev/null && echo "made $(BASE_IMAGE); use it with: export HARNESS_BASE=$(BASE_IMAGE)"

# The tests other than the unit tests spend half of their time waiting for engines and for sleeping processes. They
# therefore get two test processes per processor (three took 575 s instead of 530 s). Tests that must not run together
# form one group (tests/groups.py); tests that measure all of /dev/shm (marked `alone`) run before them.
PROCESSORS := $(shell nproc 2>/dev/null || echo 2)
# The tests start a thousand processes, none of which should compile the harness again, even if the environment forbids
# Python to write bytecode. The bytecode is next to each source file, like that of installed packages and of the agent.
BYTECODE := env -u PYTHONDONTWRITEBYTECODE -u PYTHONPYCACHEPREFIX
PYTEST := HARNESS_BASE=$${HARNESS_BASE:-$(BASE_IMAGE)} $(BYTECODE) $(BIN)/python -m pytest
BESIDE_UNITS := --ignore tests/unit --ignore tests/stories

unit: $(VENV)/installed-dev
	@$(PYTEST) -n $(PROCESSORS) tests/unit

# What the other tests need, set up one after the other, because the system installs one package at a time.
ready: engine browser lab slurm registry
	@tools/docker-engine --check 2>/dev/null && tools/base-image $(BASE_IMAGE) || [ -z "$(HARNESS_REQUIRE_DOCKER)" ]

# Style, types and unit tests need nothing that `ready` sets up. They use the processors while the other tests wait, yield
# to them (`nice`), and what they print follows at the end.
test:
	@$(MAKE) --no-print-directory ready & ready=$$!; \
	  $(MAKE) --no-print-directory $(VENV)/installed-dev || exit 1; \
	  nice -n 19 $(MAKE) --no-print-directory --jobs=2 --output-sync check unit >$(VENV)/units.log 2>&1 & units=$$!; \
	  wait $$ready && { $(PYTEST) -q $(BESIDE_UNITS) -m alone || [ $$? = 5 ]; } \
	  && $(PYTEST) -n $$((2 * $(PROCESSORS))) --dist loadgroup $(BESIDE_UNITS) -m "not alone"; ended=$$?; \
	  wait $$units || ended=$$?; cat $(VENV)/units.log; exit $$ended

nightly: export HARNESS_NIGHTLY := 1
nightly: test

stories: $(VENV)/installed-dev engine
	@tools/base-image $(BASE_IMAGE)
	@$(PYTEST) -m stories tests/stories

figures: $(VENV)/installed-dev
	@for each in "cost agent" "cost trial" "cost reports" accuracy; do \
	  echo "== $$each"; $(BIN)/python -m benchmarks.$$each || exit 1; done

# Without --quiet: with it, MkDocs counts no warnings, and --strict lets every broken link pass.
site: $(VENV)/installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean && echo "made site/index.html"

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
