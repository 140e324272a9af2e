# `make demo`, `make test`, `make check`, `make sanitize`. The first three make a .venv where there is none.
SHELL := bash
.DEFAULT_GOAL := help
BIN := .venv/bin
RUN ?= runs/demo
SPECS := models grammar/std

.PHONY: help demo test check test-csrc sanitize venv venv-dev clean

help:
	@echo "make demo    train a small transformer on this machine and write some text with it"
	@echo "make test    every test"
	@echo "make check   style, types, layers, layout of the specs"
	@echo "make test-csrc   the tests of csrc/core, in C++, without torch"
	@echo "make sanitize    the same under ASan and UBSan, and under TSan (some minutes)"
	@echo "make clean   remove .venv, caches and runs"

venv:
	@.ci/venv text

venv-dev:
	@.ci/venv dev

demo: venv
	@echo "== training models/demo.giant into $(RUN)"
	@$(BIN)/giantdsl train models/demo.giant --profile demo --run-dir $(RUN)
	@echo "== text from the trained model"
	@$(BIN)/giantdsl generate models/demo.giant --profile demo --run $(RUN) \
	  --prompt "def " --max-tokens 200 --temperature 0.8 --seed 1
	@$(BIN)/giantdsl convert models/demo.giant --profile demo -o $(RUN)/demo.py
	@echo "== what was written"
	@echo "$(RUN)/metrics.jsonl      one line a step"
	@echo "$(RUN)/spec.giant         the spec as it ran"
	@echo "$(RUN)/demo.py            the same model as plain PyTorch"
	@ls -d $(RUN)/* | sed 's/^/  /'

test: venv-dev
	@$(BIN)/python -m pytest

check: venv-dev
	@echo "== ruff"; $(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy"; $(BIN)/mypy
	@echo "== layers"; $(BIN)/lint-imports --no-logo
	@echo "== specs"; $(BIN)/giantdsl fmt --check $(SPECS)

test-csrc:
	@$(MAKE) --no-print-directory -j2 -C csrc/tests test

sanitize:
	@$(MAKE) --no-print-directory -j2 -C csrc/tests test SANITIZE=address,undefined
	@$(MAKE) --no-print-directory -j2 -C csrc/tests test SANITIZE=thread

clean:
	rm -rf .venv runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
