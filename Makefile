# The only task runner; `make help` lists the targets. All built files are inside this folder (.venv/, target/).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
# How Rust is compiled: `release` for people; `dev` for CI, which then compiles each library once for programs and tests.
# The programs of `dev` are a quarter slower, and check for overflows.
PROFILE ?= release
ARCH ?= x86_64
BIN := .venv/bin
BUILT := target/$(PROFILE:dev=debug)
export PATH := $(CURDIR)/$(BIN):$(PATH)
# The caller's virtual environment and Python path must not affect the one in .venv/.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME

RUST := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name '*.c' -o -name '*.h' -o -name Cargo.toml -o -name '*.csv')
say = @printf '\n==> %(%T)T %s\n' -1 "$(1)"

.PHONY: help demo build docs test test-long lab-test package-test web test-page lint lint-rust lint-python lint-web wasm compile-tests test-rust test-python hostd-tools bench bench-cluster bench-live bench-ns3 wheel deb readme lock clean

help:  ## List the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: .venv/.simulator  ## Build the simulator, compare four schemes on a small FatTree as README.md does, and print where the report is (seconds after the first build)
	$(call say,Comparing single path$(comma) ECMP$(comma) Hedera and OFPT: every host sends to the host half a fabric away)
	pathloom compare --fabric fat-tree:k=4,rate=10Mbps,buffer=150 --traffic long-lived:pattern=stride --schemes spt,ecmp,hedera,ofpt --duration 60s --runs 5 --seed 1 --out results/stride

build: .venv/.built  ## Build everything into .venv/; run it as .venv/bin/pathloom

docs: build  ## Build the documentation site into site/; executes the tutorials, fails on any warning (half a minute)
	$(call say,The documentation$(comma) its links and its tutorials)
	mkdir -p .venv/ipython/profile_default
	echo 'c.IPKernelApp.log_level = 40' > .venv/ipython/profile_default/ipython_kernel_config.py
	IPYTHONDIR='$(CURDIR)/.venv/ipython' NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	python scripts/site/links.py site https://site.invalid/

# The last crates of a build use one core. Meanwhile the other core compiles for lint and tests.
test: .venv/.deps hostd-tools  ## Lint, and every test except the lab's; CI runs both, with PROFILE=dev
	$(MAKE) --jobs=2 --output-sync=line --no-print-directory build compile-tests
	$(MAKE) --jobs=2 --output-sync=line --no-print-directory lint-python lint-web
	$(MAKE) --no-print-directory test-rust test-python
	python scripts/tiers.py

test-long: build bench-ns3  ## The long tests: large fabrics, ns-3 itself, and as root those of the lab (these take an hour)
	$(call say,Large fabrics and long runs)
	cargo test --release --package pathloom-sim -- --ignored
	PROPTEST_CASES=3000 cargo test --release --package pathloom-sim --test all any_number_of_threads
	cargo test --release --package pathloom-switching -- --ignored
	pytest -m long
	python scripts/tiers.py --all
	$(call say,The tests of Rust with new random cases)
	PROPTEST_RNG_SEED="$$(date +%s)" python scripts/rust_tests.py
	$(call say,Random faults in the simulator and over OpenFlow)
	pathloom bench faults --seed 1 --schedules 4000
	pathloom bench faults --seed 1 --schedules 300 --over-openflow
	if [ "$$(id -u)" = 0 ]; then scripts/prepare.sh lab; pytest -m 'long and not measure' tests/lab; else echo 'not root: the long lab tests are left out' >&2; fi

lab-test: build  ## Test the lab, as root: namespaces and Open vSwitch, two labs at a time (installs what it needs)
	scripts/prepare.sh lab
	$(call say,The lab: namespaces and a private Open vSwitch)
	pytest --numprocesses 2 --dist loadfile --durations 10 tests/lab

bench-live: build  ## Measure the lab and the live controller, as root; adds lines to results/live.jsonl and draws them
	scripts/prepare.sh lab
	$(call say,Measurements in the lab$(comma) each beside a control)
	mkdir -p results
	python benches/live/measure.py --out results/live.jsonl
	python benches/live/draw.py results/live.jsonl --out results/live.svg

web:  ## Build the page of `pathloom show` and of the controller from web/ (with Node 20 or later)
	scripts/web.sh build

test-page: build  ## Test that page in Chromium: views, keyboard, widths, dark mode, axe, 1,024 hosts (about 2 minutes)
	scripts/prepare.sh page
	scripts/web.sh check
	$(call say,The page in Chromium)
	pytest tests/page

lint: lint-rust lint-python lint-web  ## Check formatting, warnings, types, stubs, the purity of the pure crates, the prose of the documentation

lint-rust: .venv/.deps | hostd-tools  ## Check Rust: formatting, clippy, the purity of the pure crates, circles of imports
	$(call say,Rust: formatting$(comma) clippy$(comma) purity$(comma) circles of imports)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	python scripts/purity.py
	python scripts/cycles.py

wasm:  ## Build the pure crates for WebAssembly: neither they nor their dependencies need an operating system
	rustup target add wasm32-unknown-unknown
	cargo check --quiet --target wasm32-unknown-unknown $$(python scripts/purity.py packages)

lint-python: build  ## Check Python: ruff, mypy, stubs; and the prose of the documentation
	$(call say,Python: ruff$(comma) mypy$(comma) stubs; the prose of the documentation)
	python scripts/site/prose.py
	ruff check --quiet python tests scripts benches examples docs
	ruff format --check --quiet python tests scripts benches examples docs
	mypy
	cd tests/lab && mypy --config-file ../../pyproject.toml *.py
	cd tests/page && mypy --config-file ../../pyproject.toml *.py
	cd benches/ns3 && mypy --config-file ../../pyproject.toml *.py
	cd benches/openflow && mypy --config-file ../../pyproject.toml *.py
	cd benches/conweave && mypy --config-file ../../pyproject.toml *.py
	cd benches/htsim && mypy --config-file ../../pyproject.toml *.py
	python -m mypy.stubtest pathloom._core --mypy-config-file pyproject.toml

lint-web:  ## Check that the committed page is the one that web/ builds
	$(call say,The committed page is the one that web/ builds)
	scripts/web.sh check

compile-tests: lint-rust  ## Compile the tests of Rust
	$(call say,Compiling the tests of Rust)
	cargo test --workspace --exclude pathloom-python --quiet --lib --bins --tests --no-run

test-rust: build .venv/judges/.deps  ## Run the tests of Rust
	$(call say,Rust tests)
	python scripts/rust_tests.py
	cargo test --workspace --exclude pathloom-python --quiet --doc

test-python: build .venv/judges/.deps  ## Run the tests of Python, and compare the simulator with recorded figures of ns-3
	scripts/prepare.sh judges
	$(call say,Python tests$(comma) and the simulator compared with recorded figures of ns-3)
	pytest --numprocesses 2 --dist loadfile --durations 10 -m 'not long and not cluster and not notebook'
	python benches/ns3/compare.py --recorded

bench: build .venv/judges/.deps  ## Measure the simulator (packet-hops, instructions, memory), and the controller compared with others
	scripts/prepare.sh bench
	$(call say,k=8: 128 hosts)
	pathloom bench sim --instructions
	$(call say,k=16: 1024 hosts)
	pathloom bench sim --fabric fat-tree:k=16$(comma)rate=1Gbps$(comma)delay=1us$(comma)buffer=100 --duration 300ms
	$(call say,The controller: answers and path set-ups a second$(comma) compared with ovs-testcontroller and os-ken)
	pathloom bench controller --schemes spt$(comma)ecmp$(comma)hedera$(comma)ofpt

# The machine may run an etcd of its own at the usual ports.
BENCH_ETCD := http://127.0.0.1:23791
BENCH_PEER := http://127.0.0.1:23792

bench-cluster: build  ## Measure what several controllers cost: answers and paths with and without [cluster], and reading the state
	scripts/prepare.sh cluster
	$(call say,The controller with and without an etcd$(comma) by turns)
	folder="$$(mktemp -d)"; \
	etcd --data-dir "$$folder" --quota-backend-bytes 4294967296 \
	    --listen-client-urls $(BENCH_ETCD) --advertise-client-urls $(BENCH_ETCD) --listen-peer-urls $(BENCH_PEER) \
	    --initial-advertise-peer-urls $(BENCH_PEER) --initial-cluster default=$(BENCH_PEER) 2> "$$folder/log" & \
	trap "kill $$!; wait $$! || true; rm -r $$folder" EXIT; \
	until etcdctl --endpoints $(BENCH_ETCD) endpoint health &> "$$folder/health"; do sleep 0.2; kill -0 $$!; done; \
	kill -0 $$!; \
	pathloom bench controller cluster $(BENCH_ETCD)

bench-ns3: build  ## Compare the simulator with ns-3: goodput and queues of TCP, and speed (installs libns3-dev; about 5 minutes)
	scripts/prepare.sh ns3
	$(MAKE) -C benches/ns3
	python benches/ns3/compare.py

wheel: .venv/package/.deps .venv/.simulator  ## Build a wheel with all programs into dist/, for any Linux with glibc 2.17 or later (ARCH=aarch64 for Arm)
	$(call say,Building the wheel (about 10 minutes the first time))
	scripts/package.sh wheel $(ARCH)

deb: .venv/package/.deps .venv/.simulator  ## Build Debian packages of controller, host agent and live switch into dist/ (ARCH=aarch64 for Arm)
	$(call say,Building the Debian packages)
	scripts/package.sh deb $(ARCH)

package-test: .venv/.deps wheel deb  ## Install the wheel in an empty environment, unpack the Debian packages, try all, follow the doors of README.md
	if [ "$$(id -u)" = 0 ]; then scripts/prepare.sh lab; fi
	$(call say,The packages$(comma) installed and tried)
	pytest tests/packages

readme: build  ## Renew the output of the commands in README.md, and its picture
	python scripts/readme.py

COMPILE := --quiet --upgrade --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

lock: .venv/.deps  ## Renew requirements.lock from pyproject.toml, and the lock of the packaging tools
	python -m venv .venv/lock
	.venv/lock/bin/pip install --quiet pip-tools
	.venv/lock/bin/pip-compile $(COMPILE) --extra all --extra cluster --extra notebook --extra dev --output-file requirements.lock pyproject.toml
	.venv/lock/bin/pip-compile $(COMPILE) --output-file packaging/requirements.lock packaging/requirements.in

clean:  ## Remove all built files
	rm -rf .venv target dist site

comma := ,

.venv/.deps: requirements.lock
	$(call say,Checking the machine$(comma) and fetching Python packages into .venv/)
	PYTHON='$(PYTHON)' scripts/prepare.sh build
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	touch $@

.venv/package/.deps: packaging/requirements.lock .venv/.deps
	$(call say,Fetching zig and the packaging tools into .venv/package/)
	test -x .venv/package/bin/python || $(BIN)/python -m venv .venv/package
	.venv/package/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement packaging/requirements.lock
	touch $@

JUDGES := benches/openflow/requirements.lock benches/api/requirements.lock

.venv/judges/.deps: .venv/.deps $(JUDGES)
	$(call say,Fetching independent checkers of OpenFlow messages and of the API into .venv/judges/)
	test -x .venv/judges/bin/python || $(BIN)/python -m venv .venv/judges
	for lock in $(JUDGES); do .venv/judges/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement $$lock; done
	touch $@

# This is a separate target, so that it never runs twice at the same time: it may install a Debian package.
hostd-tools: .venv/.deps  ## Install clang, for the BPF programs of the host agent and of the live switch
	@scripts/prepare.sh hostd || echo 'pathloom: continuing without pathloom-hostd and pathloom-switch' >&2

# Names the profile of what is in .venv/, so that no figure is taken with the programs of another one.
.venv/.profile-$(PROFILE): .venv/.deps
	rm -f .venv/.profile-*
	touch $@

.venv/.simulator: .venv/.deps .venv/.profile-$(PROFILE) $(RUST) pyproject.toml
	$(call say,Building the simulator: $(PROFILE))
	PIP_QUIET=1 VIRTUAL_ENV='$(CURDIR)/.venv' maturin develop --profile $(PROFILE) --quiet
	touch $@

.venv/.built: .venv/.simulator | hostd-tools
	$(call say,Building the programs: $(PROFILE): controller$(comma) host agent$(comma) live switch$(comma) paths for programs$(comma) long links of the lab$(comma) the simulator for C)
	programs=(controller controller-bench preload delay net); \
	if scripts/prepare.sh hostd 2>/dev/null; then programs+=(hostd switchd); fi; \
	cargo build --profile $(PROFILE) --quiet "$${programs[@]/#/--package=pathloom-}"
	install -m 755 $(BUILT)/pathloom-controller $(BUILT)/pathloom-controller-bench $(BUILT)/pathloom-delay $(BIN)/
	install -m 755 $(BUILT)/libpathloom_preload.so $(BUILT)/libpathloom_net.so .venv/lib/
	install -D -m 644 -t .venv/include crates/net/include/pathloom_net.h
	for one in pathloom-hostd pathloom-switch; do if test -x $(BUILT)/$$one; then install -m 755 $(BUILT)/$$one $(BIN)/; fi; done
	touch $@
