# SPDX-License-Identifier: Apache-2.0
# Tests of the profiler half: programs of this folder that are linked with the library's objects and pass by exiting 0.
# test_profiler_chain builds small plugins with $(CC) while it runs. Included by tests.mk, whose rules build them.
PROFILER_TESTS := test_abi_facts test_profiler_sample test_profiler_join test_profiler_late test_profiler_capture test_profiler_threads test_profiler_chain test_profiler_timed test_kernels test_gin

check-profiler: $(addprefix $(T)/,$(PROFILER_TESTS))
	@for t in $^; do CC='$(CC)' $$t || exit 1; echo "ok $${t##*/}"; done

bench-profiler: $(T)/bench_profiler
	@$<

.PHONY: check-profiler bench-profiler
