# SPDX-License-Identifier: Apache-2.0
# The C tests of the tuner half. Every program is linked with the library's own objects and passes by exiting 0.
# nccltuner/plugintest runs the same list under `go test`.
T := $(BUILD)/test
PROGRAMS := stress test_no_syscall test_lifecycle test_files test_processes test_daemon test_namespace test_why test_choose test_device test_captured test_transport bench
EPOCH := epoch_check-8 epoch_check-2
MASK := mask_check-m0 mask_check-m1 mask_check-m2 mask_check-m3 mask_check-m4 mask_check-m5 mask_check-m6
MUTANTS := epoch_check-8-m1 epoch_check-8-m2 epoch_check-2-m3 epoch_check-8-m4 epoch_check-8-m5
include test/profiler_tests.mk
LONG := $(filter-out 0,$(DYN_LONG))

tests: $(addprefix $(T)/,$(PROGRAMS) $(PROFILER_TESTS) bench_profiler $(EPOCH) $(MUTANTS) $(MASK)) all

$(T):
	mkdir -p $@

$(T)/%.o: test/%.c $(wildcard test/*.h) $(HEADERS) | $(T)
	@echo "cc $<"; $(CC) $(CFLAGS) -c -o $@ $<

$(T)/%: $(T)/%.o $(T)/support.o $(OBJECTS)
	@echo "ld $@"; $(CC) $(CFLAGS) -Wl,--export-dynamic-symbol=dynamiccl_preload -Wl,--export-dynamic-symbol=ncclGetVersion -o $@ $^ -pthread -ldl

# epoch_check-LOGLENGTH[-mMUTATION]: the exhaustive check, compiled with the log's length and a planted mistake.
part = $(word $(1),$(subst -, ,$(notdir $@)))
$(addprefix $(T)/,$(EPOCH) $(MUTANTS)): test/epoch_check.c test/model.c test/model.h test/states.h epoch.h ../abi.h | $(T)
	$(CC) $(CFLAGS) -DDYN_LOG_LENGTH=$(call part,2) -DDYN_MUTATE=$(or $(subst m,,$(call part,3)),0) -o $@ \
	  test/epoch_check.c test/model.c

# mask_check-mMUTATION: likewise, for the activation mask.
$(addprefix $(T)/,$(MASK)): test/mask_check.c mask.h | $(T)
	$(CC) $(CFLAGS) -DDYN_MASK_MUTATE=$(subst m,,$(call part,2)) -o $@ test/mask_check.c

check: tests check-profiler
	for m in $(MASK); do $(T)/$$m || exit 1; done
	$(T)/epoch_check-8 agreement
	$(T)/epoch_check-8 veto
	$(T)/epoch_check-8 reuse
	$(T)/epoch_check-2 drift
	$(T)/epoch_check-2 reuse
	$(T)/epoch_check-8-m1 agreement
	$(T)/epoch_check-8-m2 agreement
	$(T)/epoch_check-2-m3 drift
	$(T)/epoch_check-8-m4 agreement
	$(T)/epoch_check-8-m5 agreement
	$(T)/epoch_check-8 reuse 1
	$(T)/epoch_check-8 reuse 2
	$(T)/test_choose
	$(T)/test_device
	$(T)/test_captured
	$(T)/test_transport
	$(T)/test_files
	$(T)/test_processes
	$(T)/test_daemon
	$(T)/test_namespace
	$(T)/test_why $(TUNER)
	$(T)/test_no_syscall
	$(T)/test_lifecycle $(TUNER) 100000
	$(T)/stress 8 400000 20 100
ifneq ($(LONG),)
	$(T)/epoch_check-2 agreement
	$(T)/epoch_check-8 drift
	$(T)/epoch_check-8 drift3
	$(T)/epoch_check-8 reuse-long
	$(T)/epoch_check-2 reuse-long
endif

# JSON lines: latency while plans change, agreement over ten million calls with a publisher killed a hundred times.
bench: tests
	@$(T)/epoch_check-8 agreement
	@$(T)/bench 8 1000000
	@$(T)/stress 8 10000000 100 1000
	@$(T)/bench_profiler


.SECONDARY:
.PHONY: tests check bench
