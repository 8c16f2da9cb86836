# Everything runs in .venv, built from the lock files; the system's Python packages are never touched.
# Needed: make and python3 (3.11 or newer) with venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# What mypy reads; ruff reads everything.
TYPED  := $(wildcard kubexm_spec kubexm_exec kubexm_steps tests benchmarks tools/*.py)
# What `make bench-ssh` compares with; each has an environment and a lock file of its own.
PEERS  := ansible fabric pyinfra
# How many processes run the tests, and anything else for pytest: make tests ARGS="-k layers"
JOBS   ?= 2
ARGS   ?=

# Tests start the program some thousand times: without its bytecode each of them compiles it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: FORCE help venv demo test lint types tests test-kubernetes machines kubernetes format bench bench-ssh lock wheel docs clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(VENV)/.stamp-dev ## Build .venv with everything for tests, lint and builds

demo: $(VENV)/.stamp-run ## Run specs/quickstart.yaml on this machine
	$(BIN)/kubexm-run specs/quickstart.yaml

test: lint types tests ## Lint, check the types and run all the tests

lint: $(VENV)/.stamp-dev ## Check style and formatting (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.stamp-dev ## Check the types (mypy --strict)
	$(BIN)/mypy $(TYPED)

tests: $(VENV)/.stamp-dev $(VENV)/.stamp-browser $(VENV)/.stamp-sshd $(VENV)/.stamp-machines $(VENV)/.stamp-postgres $(VENV)/.stamp-programs $(VENV)/.stamp-objectstore $(VENV)/.stamp-ansible ## Run the tests alone; HYPOTHESIS_PROFILE=random tries new examples
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

test-kubernetes: $(VENV)/.stamp-dev $(VENV)/.stamp-machines ## Run the flows of real clusters; `make kubernetes` builds what they need
	$(BIN)/python -m pytest -m kubernetes $(ARGS)

machines: ## Install what the tests on full hosts need, and build their base image
	tools/machines.sh

kubernetes: $(VENV)/.stamp-dev machines ## Build the programs of Kubernetes for the tests of real clusters, once
	tools/kubernetes.sh
	$(BIN)/python -m tests.lab.depot

format: $(VENV)/.stamp-dev ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.stamp-bench ## Run the benchmarks and print a table
	$(BIN)/python -m benchmarks

bench-ssh: $(VENV)/.stamp-run $(VENV)/.stamp-sshd .venv-peers/kubexm/.stamp $(PEERS:%=.venv-peers/%/.stamp) ## Compare with ansible, pyinfra, fabric and scp; ARGS="--quick b50"
	$(BIN)/python -m benchmarks.ssh $(if $(ARGS),$(ARGS),--page docs/benchmarks.md)

wheel: $(VENV)/.stamp-dev ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

docs: $(VENV)/.stamp-dev ## Generate the reference pages in docs/
	$(BIN)/python tools/docs.py

lock: ## Resolve the dependencies anew into requirements*.lock
	PYTHON="$(PYTHON)" tools/lock.sh

clean: ## Remove everything that was built, .venv too
	rm -rf $(VENV) .venv-peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a second call does nothing, a changed lock or pyproject.toml brings the environment up to date.
# An environment knows its own path, so the first stamp holds it: one that was moved or left half made is built anew.
$(VENV)/.stamp-venv: $(shell [ "$$(cat $(VENV)/.stamp-venv 2>/dev/null)" = "$(CURDIR)" ] || echo FORCE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'kubexm needs Python 3.11 or newer; "$(PYTHON)" is' "$$($(PYTHON) --version 2>&1 || true)." \
	       'Name another one: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '"$(PYTHON)" cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@echo "$(CURDIR)" >$@

$(VENV)/.stamp-run: requirements.lock requirements-build.lock pyproject.toml $(VENV)/.stamp-venv
	$(PIP) install --require-hashes -r requirements.lock -r requirements-build.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.stamp-dev: requirements-dev.lock $(VENV)/.stamp-run
	$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.stamp-bench: requirements-bench.lock $(VENV)/.stamp-dev
	$(PIP) install --require-hashes -r requirements-bench.lock
	@touch $@

.venv-peers/%/.stamp: requirements-bench-ssh-%.lock
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

# The program as its users have it: not beside the tools of its developers, which every start would look through.
.venv-peers/kubexm/.stamp: requirements.lock requirements-build.lock FORCE
	[ -e $@ ] || $(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements.lock -r requirements-build.lock
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --force-reinstall .
	@touch $@

# The real ansible-inventory, which ours is compared with; without it those tests are skipped.
$(VENV)/.stamp-ansible: requirements-bench-ssh-ansible.lock $(VENV)/.stamp-venv
	@$(MAKE) --no-print-directory .venv-peers/ansible/.stamp || echo 'ansible cannot be installed: tests against it are skipped' >&2
	@touch $@

# One attempt per environment: offline machines should not wait for it at every call.
$(VENV)/.stamp-browser: $(VENV)/.stamp-venv
	@tools/browser.sh
	@touch $@

# Not beside the other one: apt lets only one in at a time.
$(VENV)/.stamp-sshd: $(VENV)/.stamp-venv $(VENV)/.stamp-browser
	@tools/sshd.sh
	@touch $@

$(VENV)/.stamp-machines: tests/lab/image.sh tests/lab/packages.txt tools/machines.sh $(VENV)/.stamp-venv $(VENV)/.stamp-sshd
	@tools/machines.sh
	@touch $@

$(VENV)/.stamp-objectstore: tools/objectstore.sh $(VENV)/.stamp-venv
	@PYTHON=$(BIN)/python tools/objectstore.sh
	@touch $@

$(VENV)/.stamp-postgres: $(VENV)/.stamp-venv $(VENV)/.stamp-machines
	@tools/postgres.sh
	@touch $@

$(VENV)/.stamp-programs: tools/programs.sh $(VENV)/.stamp-venv $(VENV)/.stamp-postgres
	@tools/programs.sh
	@touch $@
