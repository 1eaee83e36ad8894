# For those who have the tools; ./demo.sh and ./test.sh do the set-up too.
.PHONY: build test test-full sanitize lint format bundle fuzz coverage clean
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
CLANG_FORMAT ?= clang-format-19
SOURCES = $(shell find src include tests examples bench -name '*.cc' -o -name '*.h' | sort)

# Leaves build/release/bin/lapidary. The tests are built with it where GoogleTest is.
build:
	@cmake --preset release -DLAPIDARY_TESTS=$(if $(wildcard /usr/include/gtest/gtest.h),ON,OFF) -Wno-dev >/dev/null
	@cmake --build build/release -j $(JOBS) --target lapidary lapidary-worker

test:
	@cmake --preset release -DLAPIDARY_TESTS=ON >/dev/null
	@cmake --build build/release -j $(JOBS)
	@ctest --test-dir build/release --output-on-failure -LE slow -j 1

test-full: test
	@ctest --test-dir build/release --output-on-failure -L slow -j 1

# ASan + UBSan, then TSan, over everything that `make test` runs.
sanitize:
	@for preset in dev tsan; do \
	  cmake --preset $$preset >/dev/null && cmake --build build/$$preset -j $(JOBS) && \
	  TSAN_OPTIONS="suppressions=$(CURDIR)/scripts/tsan.supp" ctest --test-dir build/$$preset --output-on-failure -LE slow -j 1 || exit 1; done

lint:
	@scripts/lint.sh

format:
	@$(CLANG_FORMAT) -i $(SOURCES)

bundle:
	@scripts/bundle.sh

# Every fuzz target for FUZZ_SECONDS each, from the corpus in build/fuzz/corpus.
fuzz:
	@scripts/fuzz.sh $(FUZZ_SECONDS)

coverage:
	@scripts/coverage.sh

clean:
	@rm -rf build
