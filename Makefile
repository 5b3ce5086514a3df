# make run    set up .venv, replicate the paper in miniature on this machine, say where to look
# make test   set up .venv with the test tools, lint, test, and run the smoke workflow end to end
# make help   everything else

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CORES  ?= all
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: help run study test lint format unit smoke slurm wheel docs plan audit bench bench-quick proofs lock schema clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo "make study        six architectures, five sizes, several budgets on the RFCs: two hours (docs/data.md: how to get the text)"
	@echo "make plan         what the experiment will cost, before it runs"
	@echo "make audit        verify every checksum and recompute a sample"
	@echo "make bench        all benchmarks -> docs/performance.md, benchmarks/results.json (35 to 75 min, idle machine)"
	@echo "make bench-quick  a short form of each in under 5 minutes -> benchmarks/.cache/quick.md"
	@echo "make proofs       kill storm, coverage of intervals, mutation of protections (75 min on two cores)"
	@echo "make lint format  check, or repair, the style of the code"
	@echo "make wheel docs   the installed package; the documentation as a site -> site/"
	@echo "make slurm        the workflow on a throw-away SLURM cluster (needs Debian's SLURM packages)"
	@echo "make lock         resolve dependencies anew, with hashes -> the locks, envs/*.yaml (UPGRADE=1: newest versions)"
	@echo "make schema       export the configuration's JSON schema"

run: $(VENV)/.runtime
	@echo "Reading the workflow ..."
	@snakemake --cores $(CORES) --logger lmu
	@python -m lmu_scaling summary

# the RFCs must lie in data/rfc (docs/data.md); stop and start it as you like; large products are rounded to bfloat16
study: $(VENV)/.runtime
	@test -e data/rfc || { echo "This experiment reads the RFCs from data/rfc, which does not exist: see docs/data.md"; exit 1; }
	@echo "Reading the workflow ..."
	@snakemake --cores $(CORES) --logger lmu --configfile workflow/presets/study.yaml --set-resources train:precision=bfloat16
	@python -m lmu_scaling summary

plan audit: $(VENV)/.runtime
	@snakemake --cores 1 $@

# ---- set-up -----------------------------------------------------------------------------------------------------
# By hash and with pip alone; envs/install.py shows progress, and links the environment to this clone.
$(VENV)/.runtime: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..."; exit 1; }
	@echo "Setting up $(VENV) (once; torch is large, so this takes a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python envs/install.py requirements.lock
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@echo "Adding the test tools ..."
	@$(BIN)/python envs/install.py requirements-dev.lock
	@touch $@

# ---- checks -----------------------------------------------------------------------------------------------------
test: lint unit smoke slurm wheel docs

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

# the package without the clone: built, installed elsewhere by pip, used
wheel: $(VENV)/.dev
	pytest tests/install -q

# the documentation as a site -> site/; a broken link is an error
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --config-file .github/mkdocs.yml

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

# keeps the pins that still fit; UPGRADE=1 drops them
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install -qq uv==0.13.8
	PATH="$(abspath .venv-lock/bin):$$PATH" .venv-lock/bin/python envs/lock.py --resolve
	rm -rf .venv-lock

clean:
	rm -rf .venv .venv-* build dist site *.egg-info .snakemake .mypy_cache .ruff_cache .pytest_cache .hypothesis
