# `make run` shows the main job; `make test` checks everything. Each sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Test processes at once: many tests wait. Those of one file stay together, and what waits most begins first. JOBS=0 runs
# all in one process.
JOBS ?= 4
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: run test compiled peers quick chaos drivers hostile simulate crash fuzz coverage big leaks mutants planted snapshots bench bench-compare bench-starts conformance conform-released clients crossing lint types links docs release-check vendor clean
.DEFAULT_GOAL := run

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("isthmus needs Python 3.11 or newer, this is %d.%d: make PYTHON=python3.x" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo 'setting up $(VENV), the first time only …' >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

run: $(STAMP)
	@$(BIN)/isthmus demo

test: $(STAMP)
	@$(MAKE) --no-print-directory -j2 lint types compiled peers
	$(PYTEST)

# The tests, once, and not by each of the processes that then run them: these say what is wrong with them.
compiled: $(STAMP)
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true

# The servers and clients that are not ours.
peers: $(STAMP)
	@sh tests/real/setup.sh

quick: $(STAMP)
	$(PYTEST) -m 'not real and not chaos'

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) links
	$(BIN)/mypy .links/isthmus

# Type checkers cannot follow package-dir: a folder of links shows them the installed layout.
links:
	@mkdir -p .links/isthmus
	@for d in core transports storage app; do ln -sfn ../../$$d .links/isthmus/$$d; done

# What a call costs, against floors, byte proxies and peers in one run: QUICK=1 for the shortest, ARGS='--only http_c16'
# for one workload, PYTHON=python3.13 for another interpreter than that of $(VENV). Needs a C compiler. Not part of the
# tests.
MEASURING = python=$$($(BIN)/python bench/interpreter.py $(if $(filter file,$(origin PYTHON)),,$(PYTHON))) && "$$python"

bench: $(STAMP)
	@$(BIN)/python bench/peers.py
	@$(MEASURING) bench/run.py --json build/bench/report.json $(if $(QUICK),--quick) $(ARGS)

# The same of this tree and of a commit, in turns: make bench-compare BASE=HEAD~3 ARGS='--only http_c16'.
bench-compare: $(STAMP)
	@$(MEASURING) bench/compare.py $(or $(BASE),HEAD) $(if $(QUICK),--quick) $(ARGS)

# How long a person waits for the servers of a configuration file, through this and through other proxies: ARGS='--only
# two' for two servers, ARGS='--through isthmus' for one proxy, ARGS='--rounds 9' for more rounds. Not part of the tests.
bench-starts: $(STAMP)
	@$(BIN)/python bench/peers.py starts
	@$(MEASURING) bench/starts.py --json build/bench/starts.json $(ARGS)

# Storms over real processes: SEEDS='1 2' repeats some, MINUTES=60 goes on for an hour.
chaos: $(STAMP)
	@$(BIN)/python tests/chaos/campaign.py --minutes $(or $(MINUTES),10) $(SEEDS)

# Hostile clients and servers beside honest clients: SEEDS='1 2' repeats some, MINUTES=60 goes on for an hour, and
# ONLY='giant-event backslashes' has these kinds alone.
hostile: $(STAMP)
	@$(BIN)/python tests/hostile/campaign.py --minutes $(or $(MINUTES),10) $(if $(ONLY),--only $(ONLY)) -- $(SEEDS)

# The checks of drivers on every example, and on the product with each of its drivers. `make test` leaves some out.
drivers: $(STAMP)
	DRIVERS=1 $(PYTEST) -q tests/examples/test_checks_of_examples.py tests/examples/test_checks_of_product.py

# Worlds round one engine, on a clock that jumps: SECONDS=3600 of them, JOBS=2 at once, SEEDS='1 2' repeats some, SHRINK=1
# takes longer to make one small that goes wrong, and LOG=1 prints what happens in them.
simulate: $(STAMP)
	@$(BIN)/python tests/simulation/simulating.py --seconds $(or $(SECONDS),60) \
		--jobs $(if $(filter file,$(origin JOBS)),1,$(JOBS)) $(if $(SHRINK),--shrink) $(if $(LOG),--log) $(SEEDS)

# A process ended at each step of storing files, and what the next one finds: WHAT='a_session --at 17' looks at one.
crash: $(STAMP)
	@$(BIN)/python tests/app/crashing.py $(WHAT)

# Inputs that break the targets in fuzz/: SECONDS=3600 for all of them together, ONLY='sse tasks' for some. Where there
# is no atheris for this Python, the search is our own.
fuzz: $(STAMP)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary atheris -e '.[fuzz]' 2>/dev/null || true
	@$(BIN)/python fuzz/harness/campaign.py $(if $(SECONDS),--seconds $(SECONDS)) $(foreach name,$(ONLY),--only $(name))

# Lines and branches of core/ that no test reaches, of those that need nothing but ours: fails below 98 % of either.
coverage: $(STAMP)
	@mkdir -p build/coverage && $(BIN)/coverage erase
	@nice -n 5 $(BIN)/coverage run -m pytest -q -n $(JOBS) -m 'not real and not chaos' \
		tests/core tests/transports tests/app tests/test_fuzz_corpora.py; tests=$$?; \
		$(BIN)/coverage combine -q && $(BIN)/python tests/reached.py && exit $$tests

# 2 GiB in by POST, PUT and tus, and out again, in memory that does not grow: SIZE=64Mi is quicker.
big: $(STAMP)
	@$(BIN)/python tests/big/moving.py --size $(or $(SIZE),2Gi)

# 10,000 sessions opened and dropped, and what is left of them.
leaks: $(STAMP)
	@$(BIN)/python tests/chaos/leaks.py

# Small faults put into the core one at a time, and which of them no test sees. SECONDS=3600 tries more of them, COUNT=500
# so many, SEED=2 others, ONLY='core/base/timers.py core/wire' those of a part, JOBS=2 at once; AGAIN=1 those that survived the
# last time, EQUIVALENT=1 those that are named as no faults, TESTS=200 before so many seconds of tests each. Not part of
# the tests.
mutants: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'coverage>=7'
	@nice -n 10 $(BIN)/python tests/mutation/mutating.py --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) \
		--jobs $(if $(filter file,$(origin JOBS)),1,$(JOBS)) \
		$(if $(COUNT),--count $(COUNT)) $(if $(AGAIN),--again) $(if $(EQUIVALENT),--equivalent) $(if $(TESTS),--tests $(TESTS)) $(ONLY)

# Bugs as they come about, planted one at a time in a copy of the tree, and which test notices each: ONLY='03 07' for
# some, SECONDS=60 of simulation for those that no test notices. Not part of the tests.
planted: $(STAMP)
	@nice -n 10 $(BIN)/python tests/planted/prove.py --jobs $(if $(filter file,$(origin JOBS)),2,$(JOBS)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(ONLY)

# The official conformance suites, directly and through the proxy. Not part of the tests either.
conformance: $(STAMP)
	@$(BIN)/python tests/conformance/run.py

# `isthmus conform` on released servers, from npm and PyPI: SEEDS='1 2' for other runs, ARGS='--only …' for some servers,
# ARGS=--replay to play again what they broke. Not part of the tests.
conform-released: $(STAMP)
	@$(BIN)/python tests/conformance/released.py $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

# A file, taken through released agent frameworks, from npm and PyPI: ONLY='langchain adk' for some of them, ARGS=--log
# prints what each step saw. Not part of the tests.
clients: $(STAMP) peers
	@$(BIN)/python tests/clients/run.py $(ONLY) $(ARGS)

# Writes the snapshots of the engine's tests anew, after a change of behaviour that is meant. Review their differences.
snapshots: $(STAMP)
	@SNAPSHOTS=write $(PYTEST) -q tests/core/engine >/dev/null; git diff --stat -- tests/core/snapshots

# Which files that released servers make reach a client elsewhere: ONLY='word excel' for some servers, ARGS='--forms bare
# --eras 2026-07-28' for some forms of paths or one era. Needs ffmpeg, chromium and pandoc. Not part of the tests either.
crossing: $(STAMP)
	@$(BIN)/python tests/real/crossing.py $(if $(ONLY),--only $(ONLY)) $(ARGS)

# The parts of the pages that come from the code, the completions of shells, the manual page, and the site in build/site.
# A dead link is an error.
docs: $(VENV)/.docs
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/release.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -W ignore -m mkdocs build --strict -f docs/site/mkdocs.yml
	@echo 'the site: $(CURDIR)/build/site/index.html' >&2

$(VENV)/.docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

# Builds the wheel and the sdist, and tries them where nothing else is, installed by pip, uv and pipx: PYTHONS='python3.12
# /opt/python3.13' for some interpreters. What is built is in build/release/. `make test` only looks into it.
release-check: $(STAMP)
	@$(BIN)/python tests/release_check.py $(PYTHONS)

# A copy of core/ for another program: DEST=src/acme/mcp_core, WITHOUT=files,tasks leaves these folders out.
vendor: $(STAMP)
	@$(BIN)/isthmus vendor $(if $(DEST),'$(DEST)',$(error say where: make vendor DEST=FOLDER)) \
		$(if $(WITHOUT),--without '$(WITHOUT)')

clean:
	rm -rf $(VENV) .links .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
