# make run    set up .venv, replicate the paper in miniature on this machine, say where to look
# make test   set up .venv with the test tools, lint, test, and run the smoke workflow end to end
# make help   everything else

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CORES  ?= all
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: help run test lint format unit smoke slurm plan audit bench bench-quick proofs lock schema clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo "make plan         what the experiment will cost, before it runs"
	@echo "make audit        verify every checksum and recompute a sample"
	@echo "make bench        all benchmarks -> docs/performance.md, benchmarks/results.json (35 to 75 min, idle machine)"
	@echo "make bench-quick  a short form of each in under 5 minutes -> benchmarks/.cache/quick.md"
	@echo "make proofs       kill storm, coverage of intervals, mutation of protections (75 min on two cores)"
	@echo "make lint format  check, or repair, the style of the code"
	@echo "make slurm        the workflow on a throw-away SLURM cluster (needs Debian's SLURM packages)"
	@echo "make lock         resolve dependencies anew -> requirements.lock, envs/*.yaml"
	@echo "make schema       export the configuration's JSON schema"

run: $(VENV)/.runtime
	@snakemake --cores $(CORES) --quiet host reason rules
	@python -m lmu_scaling summary

plan audit: $(VENV)/.runtime
	@snakemake --cores 1 $@

# ---- set-up -----------------------------------------------------------------------------------------------------
# torch comes first and by itself, so that no other package's looser wish decides its build
$(VENV)/.runtime: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..."; exit 1; }
	@echo "Setting up $(VENV) (once; torch is large, so this takes a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install $$(grep '^torch==' requirements.lock)
	@$(PIP) install -r requirements.lock
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@echo "Adding the test tools ..."
	@$(PIP) install -r requirements-dev.lock
	@touch $@

# ---- checks -----------------------------------------------------------------------------------------------------
test: lint unit smoke slurm

lint: $(VENV)/.dev
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow/rules
	mypy
	python envs/lock.py --check
	python -m lmu_scaling schema --check
	snakemake --lint

# unit tests share the cores; a workflow, or a cluster, wants them for itself
unit: $(VENV)/.dev
	pytest tests/unit tests/golden -q -n auto --dist loadfile

smoke: $(VENV)/.dev
	pytest tests/workflow -q

# a throw-away SLURM on loopback; skipped, with the reason, where Debian's packages are not installed
slurm: $(VENV)/.dev
	pytest tests/slurm -q

format: $(VENV)/.dev
	ruff check --fix -q . ; ruff format -q . ; snakefmt Snakefile workflow/rules

# ---- upkeep -----------------------------------------------------------------------------------------------------
# the benchmarks also report where the time of the default experiment went; if it is finished, `run` does nothing
bench: $(VENV)/.dev run
	python -m benchmarks

bench-quick: $(VENV)/.dev
	python -m benchmarks --quick

proofs: $(VENV)/.dev
	python -m tests.proofs.kill
	python -m tests.proofs.coverage --out docs/coverage.md
	python -m tests.proofs.protections --jobs 2

schema: $(VENV)/.runtime
	python -m lmu_scaling schema

# run it with the oldest Python that is supported (PYTHON=...): newer ones admit versions that it cannot install
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install -qq torch==2.13.0
	.venv-lock/bin/pip install -qq $$($(PYTHON) envs/lock.py --names)
	( echo "# Every runtime dependency, pinned by \`make lock\`; envs/*.yaml name the direct ones." ; \
	  .venv-lock/bin/pip freeze | sed 's/^torch==.*/torch==2.13.0/' ) > requirements.lock
	.venv-lock/bin/pip install -qq $$($(PYTHON) envs/lock.py --dev-names)
	( echo "# Test tools and linters, on top of requirements.lock." ; echo "-r requirements.lock" ; \
	  .venv-lock/bin/pip freeze | sed 's/^torch==.*/torch==2.13.0/' | grep -vxFf requirements.lock ) > requirements-dev.lock
	rm -rf .venv-lock
	$(PYTHON) envs/lock.py --write

clean:
	rm -rf .venv .venv-* .snakemake .mypy_cache .ruff_cache .pytest_cache .hypothesis
