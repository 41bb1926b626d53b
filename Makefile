# The usual work as one word each; `make help` lists it. Everything below is CMake and scripts.
BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local

.DEFAULT_GOAL := help
.PHONY: help setup build test quickstart bench format lint install asan tsan coverage fuzz clean

help:
	@echo "make quickstart   install what is needed, build, train a small model, write text"
	@echo "make test         install what is needed, build, run every test"
	@echo "make build        the program, at $(BUILD)/weft"
	@echo "make bench        build and run the benchmarks"
	@echo "make asan | tsan  build and test under sanitizers"
	@echo "make coverage     line coverage of the tests"
	@echo "make format       format all C++ sources"
	@echo "make lint         formatting, layers, house rules, cppcheck"
	@echo "make install      install the program under PREFIX ($(PREFIX))"

setup:
	@tools/setup.sh

$(BUILD)/build.ninja: | setup
	cmake --preset release -B $(BUILD)

build: $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS) --target weft

test: $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure

quickstart: build
	WEFT_BUILD_DIR=$(abspath $(BUILD)) scripts/quickstart.sh

bench: | setup
	cmake --preset release -B $(BUILD) -DWEFT_BENCH=ON
	cmake --build $(BUILD) -j $(JOBS)
	set -e; for program in $(BUILD)/bench/bench_*; do echo "== $$program"; $$program; done

format: | setup
	tools/format.sh

lint: | setup
	tools/format.sh --check
	tools/lint.sh

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

asan: | setup
	cmake --preset asan-ubsan
	cmake --build --preset asan-ubsan -j $(JOBS)
	ctest --preset asan-ubsan

tsan: | setup
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan

coverage: | setup
	cmake --preset coverage
	cmake --build --preset coverage -j $(JOBS)
	ctest --preset coverage
	tools/coverage.py build-coverage

clean:
	rm -rf $(BUILD) build-asan-ubsan build-tsan build-coverage build-dev
