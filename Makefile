# Kvasir: one place for every command; CI calls these too.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CACHE ?= $(or $(KVASIR_CACHE),$(HOME)/.cache/kvasir)
export KVASIR_CACHE := $(CACHE)

.PHONY: help setup setup-kube tokenizers build demo simulate check fmt clippy deny test faults-long soak bench e2e-vllm e2e-tokenizer-service exactness image-check docs

help: ## Show the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what a build needs (compiler, cmake), once
	@e2e/setup.sh

tokenizers: setup ## Fetch the real tokenizers of the exactness tests, once
	@e2e/tokenizers/fetch.sh

setup-kube: ## Build etcd, kube-apiserver, helm and kubeconform, which the cluster tests run, once; five minutes
	@e2e/kube/setup.sh

build: setup ## Build the binary, release profile
	cargo build --release -p kvasir

demo: build ## The main job: what cache-aware routing does, in a minute, with no cluster, GPU, Redis or network
	@$(or $(CARGO_TARGET_DIR),target)/release/kvasir demo $(ARGS)

simulate: build ## Policies compared on a simulated fleet, into docs/simulation.md; minutes
	@$(or $(CARGO_TARGET_DIR),target)/release/kvasir simulate --fleets 8,100,1000,4000 --report docs $(ARGS)

fmt: ## Check the format
	cargo fmt --all --check

clippy: setup ## Lints, warnings as errors
	cargo clippy --workspace --all-targets -- -D warnings

deny: ## Licences and advisories, where cargo-deny and its data are there
	@e2e/deny.sh

check: fmt clippy deny ## Format, lints, dependency rules

test: setup setup-kube tokenizers ## All tests; the closing line has the counts
	@e2e/test.sh

faults-long: setup setup-kube tokenizers ## Every fault at full length, into docs/faults.md; a quarter of an hour
	@e2e/faults/run.sh $(ARGS)

soak: setup ## Ten minutes of churn, then every view against the engines' truth, into docs/soak.md
	@e2e/soak/run.sh $(ARGS)

bench: build ## Figures against a direct call, a bare hop and public peers; minutes long
	@e2e/bench/run.sh $(ARGS)

e2e-vllm: build ## Against two real vLLM engines on the CPU; half an hour
	@e2e/vllm/run.sh $(ARGS)

e2e-tokenizer-service: build ## The tokenizer service over real `vllm launch render` children; minutes
	@e2e/vllm/setup.sh
	@e2e/tokenizer-service/run.sh $(ARGS)

image-check: setup ## Build the image's stages without a container engine, and run what comes out; PROFILE=release is faster
	@e2e/image/check.sh

docs: ## Make the generated reference pages, the chart's CRDs, README and schema of values anew
	cargo run -q -p kvasir-telemetry --example metrics_page > docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md
	cargo run -q -p kvasir-settings --example generate_docs
	cargo run -q -p kvasir-api --example crdgen
	python3 charts/generate.py
