# Needs make (GNU 3.81 or newer), git and any Python from 3.11 on; everything else goes into .venv.
.SUFFIXES:
# Every program that tests start would compile all it imports anew.
unexport PYTHONDONTWRITEBYTECODE
# As our programs run: see federation/runtime/native_libraries.py.
export OPENBLAS_NUM_THREADS = 1
.PHONY: help install same-python check collect test test-all demo bench compare accuracy attack chaos replays fuzz soak drills truth mutation proto reference manifests lock sbom dist

VENV = .venv
BIN = $(VENV)/bin
PYTHONS = $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3)
# Runs the first of them that is there, that runs, and that is new enough.
RUN_PYTHON = for python in $(PYTHONS); do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	exec $$python $(1); fi; done; \
	echo "fedsched needs Python 3.11 or newer, and none of these is: $(PYTHONS)"; \
	echo "Debian, Ubuntu: apt install python3 python3-venv    macOS: brew install python"; \
	exit 1
VERSION = -c 'import sys; print(*sys.version_info[:2], sep=".")'
# What is installed: the locks, and the programs of pyproject.toml. By content, since git writes
# times anew; where it is another one, or where an installation was interrupted, all is made anew.
KEY := $(shell { cat requirements*.lock; sed -n '/^.project.scripts/,/^$$/p' pyproject.toml; } \
	2>/dev/null | cksum | tr -d ' ')
# An upgrade of Python leaves a dead link behind.
_ := $(shell $(BIN)/python -c '' 2>/dev/null || rm -rf $(VENV))
DEV = $(VENV)/dev-$(KEY)
DEMO = $(or $(wildcard $(DEV)),$(VENV)/demo-$(KEY))
PIP = $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check
# uv is several times as fast as pip, and does not read what pip is set to.
PACKAGES = { settings=$$($(BIN)/python -m tools.uv_settings) && eval "$$settings" && \
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(1); } || $(PIP) --no-compile $(1)

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

install: $(DEV) ## Make .venv with everything that developing needs

$(VENV)/%-$(KEY): | same-python
	@rm -rf $(VENV)
	@echo "fedsched: making $(VENV) of $(LOCK), which takes up to a minute"
	@$(call RUN_PYTHON,-m venv $(VENV))
	@$(PIP) --require-hashes --no-deps --only-binary=:all: -r requirements-uv.lock || \
		echo "fedsched: uv cannot be had here: pip installs, which takes longer"
	@$(call PACKAGES,--require-hashes --no-deps -r $(LOCK))
	@$(if $(findstring dev,$*),$(call PACKAGES,--require-hashes --no-deps --target $(VENV)/schemas \
		-r requirements-schemas.lock))
	@$(call PACKAGES,--no-deps --no-build-isolation -e .)
	@touch $@

$(VENV)/demo-$(KEY): LOCK = requirements.lock
$(VENV)/dev-$(KEY): LOCK = requirements-dev.lock

# PYTHON=... is taken or refused: .venv may have been made by another one.
same-python:
	@test -z "$(PYTHON)" || test ! -x $(BIN)/python || { \
	ours=$$($(BIN)/python $(VERSION)); theirs=$$($(PYTHON) $(VERSION) 2>/dev/null) || theirs=; \
	test "$$ours" = "$$theirs" || { \
	if test -z "$$theirs"; then echo "PYTHON=$(PYTHON) does not run"; \
	else echo "$(VENV) has Python $$ours, PYTHON=$(PYTHON) is $$theirs: rm -r $(VENV), then again"; \
	fi; exit 1; }; }

check: install ## Format, lint, types, migrations, floors, stubs, protos, sizes, suppressions, locks
	@$(BIN)/python -m tools.check

collect: install ## Find all tests, without running them
	@$(BIN)/python -m pytest -qq --collect-only

test: install ## All but whole programs, pages, browsers; STRICT=1: what fails is not tried again
	@$(BIN)/python -m tools.run_tests $(if $(STRICT),--strict)

test-all: test ## The rest of the tests, too, and what may differ on every other Python here
	@$(BIN)/python -m tools.run_tests --rest $(if $(STRICT),--strict)
	@sh tools/other_pythons.sh $(if $(STRICT),--strict)

demo: $(DEMO) ## A control plane and a fleet on this machine, to look at; KARMADA=1: the bridge, too
	@$(BIN)/federation demo $(if $(KARMADA),--karmada)

bench: install ## The measurements; QUICK=1 in minutes, FULL=1 with 10,000 clusters; NAMES, RESULTS=file for JSON
	@$(BIN)/python -m lab.benchmarks $(if $(QUICK),--quick) $(if $(FULL),--full) $(NAMES)

compare: install ## This checkout beside BASE=commit or folder, behind shipped agents; 1 below 0.95; ROUNDS, OPTIONS
	@$(BIN)/python -m lab.compare $(BASE) . $(or $(ROUNDS),2) $(OPTIONS)

accuracy: install ## How true estimates from pools are; FULL=--full for a million pairs
	@$(BIN)/python -m lab.accuracy $(FULL)

attack: install ## A control plane attacked by strangers, callers and agents; 1 if others notice
	@$(BIN)/python -m lab.attack $(NAMES)

chaos: install ## kill -9 around, lost clusters, a killed bridge; SECONDS, PLANES, CALLERS, SEED
	@$(BIN)/python -m lab.chaos --seconds $(or $(SECONDS),120) --planes $(or $(PLANES),3) \
		--callers $(or $(CALLERS),8) --seed $(or $(SEED),1)
	@$(BIN)/python -m lab.chaos --losses --seconds $(or $(SECONDS),120) \
		--planes $(or $(PLANES),3) --seed $(or $(SEED),1)
	@$(BIN)/python -m lab.chaos --bridge --seed $(or $(SEED),1)

replays: install ## Ten thousand decisions of a storm, all made again; DECISIONS, PLANES, SEED; 1 if one differs
	@$(BIN)/python -m lab.replays --decisions $(or $(DECISIONS),10000) --planes $(or $(PLANES),2) \
		--seed $(or $(SEED),1)

truth: install ## Do promises hold in front of kube-scheduler? SEEDS, STREAM, OPTIONS="--shuffled --kills 4"
	@$(BIN)/python -m lab.truth --seeds $(or $(SEEDS),1) --stream $(or $(STREAM),plain) $(OPTIONS)

fuzz: install ## What reads others' bytes is fed what is nearly right; NAMES, SECONDS for each (300)
	@$(BIN)/python -m lab.fuzz --seconds $(or $(SECONDS),300) $(NAMES)

drills: install ## PostgreSQL fails over, goes back to a backup; a whole stack stays up; SECONDS; 1 if a promise breaks
	@$(BIN)/python -m lab.drills failover --seconds $(or $(SECONDS),10)
	@$(BIN)/python -m lab.drills failover --asynchronous --seconds $(or $(SECONDS),10)
	@$(BIN)/python -m lab.drills restore
	@$(BIN)/python -m lab.drills stack --seconds $(or $(SECONDS),10)

mutation: install ## Faults put into the product one at a time, and the share that tests see; N, SEED, OPTIONS="--resume"
	@$(BIN)/python -m lab.mutation --count $(or $(N),400) --seed $(or $(SEED),1) $(OPTIONS)

soak: install ## Ten minutes of everything on one control plane; SECONDS, AGENTS; 1 if memory grows or anything goes wrong
	@$(BIN)/python -m lab.benchmarks.soak --seconds $(or $(SECONDS),600) --agents $(or $(AGENTS),1000)

proto: install ## Generate the stubs from proto/
	@$(BIN)/python -m tools.protos update

reference: ## Write docs/reference from protos, commands and metrics
	@$(BIN)/python -m tools.reference

manifests: install ## Write the plain manifests of deploy/ from the Helm chart
	@$(BIN)/python -m lab.manifests

lock: install ## Resolve the lock files again; UPGRADE=--upgrade for the newest of everything
	@$(BIN)/python -m tools.locks compile $(UPGRADE)

SBOM = dist/fedsched.cdx.json
sbom: install ## The bill of materials (CycloneDX) of requirements.lock, in dist/
	@mkdir -p $(dir $(SBOM))
	@$(BIN)/python -m cyclonedx_py requirements requirements.lock --pyproject pyproject.toml \
		--mc-type application --spec-version 1.6 --output-format JSON --output-reproducible \
		--output-file $(SBOM) --validate
	@echo $(SBOM)

dist: install ## Wheel and sdist, in dist/, each built twice; 1 where the bytes differ
	@$(BIN)/python -m tools.dist
