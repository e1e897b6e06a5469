# The one task runner: `make help` says what there is. Everything is kept inside this folder (.venv/, target/).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# A virtual environment or a find-links of the caller must not leak into ours.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME

RUST := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml -o -name '*.csv')
say = @printf '\n==> %s\n' "$(1)"

.PHONY: help demo build test test-long lint lint-rust lint-python test-rust test-python bench wheel readme lock clean

help:  ## Say what there is
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: build  ## Build, compare three schemes on a small FatTree, and say where the report is (about 2 minutes)
	$(call say,Comparing single path$(comma) ECMP and Hedera under web-search traffic)
	pathloom compare --fabric fat-tree:k=4,rate=10Mbps,buffer=150 --traffic web-search:load=0.4,pattern=random --schemes spt,ecmp,hedera --duration 60s --runs 3 --seed 1 --out results/demo

build: .venv/.built  ## Build everything into .venv/; run it as .venv/bin/pathloom

test: lint test-rust test-python  ## Run every test and the lint: what CI runs (about 10 minutes the first time)

test-long: build  ## The tests that take long: large fabrics, and the judge against ns-3 (installs libns3-dev)
	$(call say,Large fabrics and long runs)
	pytest -m long tests/python
	cargo test --release --workspace --exclude pathloom-python -- --ignored
	scripts/prepare.sh ns3
	$(MAKE) -C benches/ns3 judge

lint: lint-rust lint-python  ## Check formatting, warnings, types, stubs, the purity of the pure crates

lint-rust: build
	$(call say,Rust: formatting$(comma) clippy$(comma) purity)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	python scripts/purity.py

lint-python: build
	$(call say,Python: ruff$(comma) mypy$(comma) stubs)
	ruff check --quiet python tests/python scripts
	ruff format --check --quiet python tests/python scripts
	mypy
	python -m mypy.stubtest pathloom._core --mypy-config-file pyproject.toml

test-rust: build
	$(call say,Rust tests)
	cargo test --workspace --exclude pathloom-python --quiet

test-python: build
	$(call say,Python tests)
	pytest

bench: build  ## Measure the simulator: packet-hops per CPU second, instructions per hop, memory; beside ns-3's
	scripts/prepare.sh bench
	scripts/prepare.sh ns3
	$(call say,The simulator)
	pathloom bench sim --instructions
	$(call say,ns-3 on the same work)
	$(MAKE) -C benches/ns3 bench

wheel: .venv/.deps  ## Build a wheel into dist/; it needs nothing of this folder
	$(call say,Building the wheel)
	maturin build --release --out dist

readme: build  ## Renew what the commands in README.md print, and its picture
	python scripts/readme.py

lock: .venv/.deps  ## Renew requirements.lock from pyproject.toml
	python -m venv .venv/lock
	.venv/lock/bin/pip install --quiet pip-tools
	.venv/lock/bin/pip-compile --quiet --upgrade --extra dev --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml

clean:  ## Remove all that was built
	rm -rf .venv target dist

comma := ,

.venv/.deps: requirements.lock
	$(call say,Checking the machine$(comma) and fetching what Python needs into .venv/)
	PYTHON='$(PYTHON)' scripts/prepare.sh build
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	touch $@

.venv/.built: .venv/.deps $(RUST) pyproject.toml
	$(call say,Building the simulator (a few minutes the first time))
	PIP_QUIET=1 VIRTUAL_ENV='$(CURDIR)/.venv' maturin develop --release --quiet
	touch $@
