# SPDX-License-Identifier: Apache-2.0
# The C tests. Every one is linked with the library's own objects; `check` runs what takes seconds.
T := $(BUILD)/test
TEST_CFLAGS := $(CFLAGS)
PROGRAMS := stress test_no_syscall test_lifecycle test_files test_choose bench
EPOCH := epoch_check-8 epoch_check-2
MUTANTS := epoch_check-8-m1 epoch_check-8-m2 epoch_check-2-m3 epoch_check-8-m4 epoch_check-8-m5

$(T):
	mkdir -p $@

$(T)/%.o: test/%.c $(wildcard test/*.h) $(HEADERS) | $(T)
	$(CC) $(CFLAGS) -c -o $@ $<

$(T)/%: $(T)/%.o $(T)/support.o $(OBJECTS)
	$(CC) $(CFLAGS) -o $@ $^ -pthread -ldl

# epoch_check-LOGLENGTH[-mMUTATION]
CHECKER = $(CC) $(CFLAGS) -DDYN_LOG_LENGTH=$(word 2,$(subst -, ,$(notdir $@))) \
  -DDYN_MUTATE=$(or $(subst m,,$(word 3,$(subst -, ,$(notdir $@)))),0) -o $@ test/epoch_check.c test/model.c
$(addprefix $(T)/,$(EPOCH) $(MUTANTS)): test/epoch_check.c test/model.c test/model.h epoch.h ../abi.h | $(T)
	$(CHECKER)

tests: $(addprefix $(T)/,$(PROGRAMS) $(EPOCH) $(MUTANTS)) all

.SECONDARY:
.PHONY: tests
