# Every target works from a fresh checkout on a machine with Python 3.11+, make and a reachable package index.
# PYTHON=python3.12 chooses the Python of .venv; ARGS="…" is passed on to the command a target runs.
# Tests run with PYTHONDONTWRITEBYTECODE empty: else each process of pytest compiles all tests again at each run.

VENV := .venv
PY := $(VENV)/bin/python
ARGS ?=
WORKERS ?= 3
DIR ?= tests/wire_vectors

.DEFAULT_GOAL := help
.PHONY: help venv up test check bench bench-wire bench-smp bench-auth audit-timing bench-push bench-ntf bench-agent bench-direct bench-pipeline bench-scale bench-fleet bench-start docs vectors fuzz chaos soak pins sbom audit clean

help: ## List the targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)$$/  make \1|\2/p' Makefile | \
		while IFS='|' read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done

# The one set-up target. It asks tools/setup_venv.py whether .venv matches the pins (by content, not by time stamp).
# Only if it does not, it looks for a Python with which to create or repair it.
venv: ## Create or repair .venv from the pins in requirements/
ifdef PYTHON
	@"$(PYTHON)" tools/setup_venv.py
else
	@if [ -x $(PY) ] && $(PY) -I tools/setup_venv.py --check; then exit 0; fi; \
	for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			exec "$$python" tools/setup_venv.py; \
		fi; \
	done; \
	echo "Tocsin needs Python 3.11 or newer and found none on PATH: install one," \
		"or name it, for example: make test PYTHON=/path/to/python3.11" >&2; \
	exit 1
endif

up: venv ## Set up and run everything: routers, a push provider, phones, the pipeline (ARGS="--once" to check and stop)
	@$(VENV)/bin/tocsin up $(ARGS)

test: venv ## Run all tests, in several processes (ARGS="-k name" to choose, WORKERS=0 for one)
	@$(PY) -m tests.doubles.java_classes
	@PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder $(ARGS)

check: venv ## The gate before a commit: format, lint, types, tests with branch coverage of wire and protocol
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@PYTHONDONTWRITEBYTECODE= $(PY) -m coverage run -m pytest $(ARGS)
	@$(PY) -m coverage report

bench: bench-wire bench-smp bench-auth bench-push bench-ntf bench-agent bench-direct bench-pipeline ## Run all benchmarks

bench-wire: venv ## Commands per second over TLS next to the bare cost of crypto and TLS
	@$(PY) -m bench.wire $(ARGS)

bench-smp: venv ## Cost of the SMP router: sending, delivering, holding queues, restarting
	@$(PY) -m bench.smp $(ARGS)

audit-timing: venv ## Is any difference in the time of ERR AUTH significant? Random order, stated level, both routers
	@$(PY) -m bench.timing_audit $(ARGS)

bench-auth: venv ## Does the time of ERR AUTH reveal whether a queue or token exists? Every kind of key, limit 0.30
	@$(PY) -m bench.auth_timing $(ARGS)

bench-push: venv ## CPU of a push with APNs, FCM and Web Push, beside the floor: encryption and TLS alone
	@$(PY) -m bench.push $(ARGS)

bench-ntf: venv ## Cost of the NTF router: from NMSG to push, holding and renewing subscriptions, its store, commands
	@$(PY) -m bench.ntf $(ARGS)
	@$(PY) -m bench.ntf_store $(ARGS)
	@$(PY) -m bench.ntf_commands $(ARGS)

bench-start: venv ## Time to the first push after a start of the NTF router with a million subscriptions in PostgreSQL
	@$(PY) -m bench.start $(ARGS)

bench-fleet: venv ## Cost of a notification in a fleet of NTF routers, next to one router that has the database alone
	@$(PY) -m bench.fleet $(ARGS)

bench-agent: venv ## Cost of an agent: setting up notifications for 10,000 connections, waking up by a push
	@$(PY) -m bench.agent $(ARGS)

bench-direct: venv ## Gain of direct notifications: an NTF router that reconnects with 10k, 100k, 1M queues
	@$(PY) -m bench.direct $(ARGS)

bench-pipeline: venv ## Cost of the data pipeline's jobs, next to DuckDB (ARGS="--events 2000000" for fewer)
	@$(PY) -m bench.pipeline $(ARGS)

bench-scale: venv ## Does anything cost more for each unit when there are more? Subscriptions, routers, connections, rates
	@$(PY) -m bench.scale $(ARGS)

docs: venv ## Build the documentation site into build/site; a dead link is an error
	@$(PY) -m sphinx -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

vectors: venv ## Replay recorded traffic through our codecs and crypto (DIR=folder)
	@$(PY) -m tools.wire_vectors "$(DIR)"

fuzz: venv ## Fuzz the decoders with coverage guidance (ARGS="--help" for options)
	@$(PY) -m fuzz $(ARGS)

chaos: venv ## Faults at random in a whole world: kills, outages, broken networks; then the accounts must add up (ARGS="--help")
	@$(PY) -m chaos $(ARGS)

soak: venv ## Flood both routers for ten minutes, watch memory and honest users, see them recover (ARGS="--seconds 20")
	@$(PY) -m soak $(ARGS)

pins: venv ## Write the hashes of pins that have none into requirements/ (ARGS="--all" to look up all again)
	@$(PY) -m tools.pin_hashes $(ARGS)

sbom: venv ## List everything that Tocsin is made of in build/sbom.json (CycloneDX)
	@$(PY) -m tools.supply_chain sbom

audit: venv ## Ask the advisory databases whether a pinned package has a known vulnerability (needs the network)
	@$(PY) -m tools.supply_chain audit $(ARGS)

clean: ## Remove .venv, caches and build output
	@rm -rf $(VENV) .venv-audit .venv.setup build dist htmlcov .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .fuzz
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@find src -name '*.egg-info' -type d -prune -exec rm -rf {} +
