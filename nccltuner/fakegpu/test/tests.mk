# SPDX-License-Identifier: Apache-2.0
# Programs over the stand-ins, against CUDA's own header. nccltuner/fakegputest runs them as well.
T := $(BUILD)/test
RIG := test/rig.c test/values.c
TESTS := $(T)/ranks_test $(T)/one_test $(T)/memory_test $(T)/launch_test $(T)/nccl_test
SANITIZED_TESTS := $(T)/threads/ranks_test $(T)/threads/one_test $(T)/threads/memory_test $(T)/threads/launch_test
TEST_HEADERS := test/rig.h ../../kernels/device/call.h ../preload/dynamiccl.h ../preload/test/meeting.h

tests: all $(TESTS) $(SANITIZED_TESTS)

# What only calls the stand-ins need not be fast. These are built once more, below, with what warnings come of optimising.
$(SANITIZED_TESTS:$(T)/threads/%=$(T)/%): private override CFLAGS += -O0

$(TESTS): $(T)/%: test/%.c $(RIG) $(TEST_HEADERS) $(LIB)/libcuda.so.1 $(LIB)/libnccl.so.2
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(CFLAGS) -isystem $(CUDA_INCLUDE) -o $@ $< $(RIG) -L$(LIB) -Wl,--as-needed -l:libcuda.so.1 -l:libnccl.so.2 -lm

# For tests with a daemon, of what is built here.
$(LIB)/one_process $(LIB)/groups $(LIB)/steps: $(LIB)/%: test/%.c $(RIG) $(TEST_HEADERS) $(LIB)/libcuda.so.1 $(LIB)/libnccl.so.2
	@echo "cc $@"; $(CC) $(CFLAGS) -isystem $(CUDA_INCLUDE) -o $@ $< $(RIG) -L$(LIB) -Wl,--as-needed -l:libcuda.so.1 -l:libnccl.so.2 -lm

# mix, of which the stand-in for NCCL has few types and sizes, and the driver's no runtime.
MIX := $(wildcard ../gputest/mix*) $(wildcard test/mix/*)
$(LIB)/libmix-cudart.so: test/mix/cudart.c $(LIB)/libcuda.so.1
	@echo "cc $@"; $(CC) $(CFLAGS) -Wno-unused-parameter -shared -isystem $(CUDA_INCLUDE) -o $@ $< -L$(LIB) -l:libcuda.so.1 -Wl,-rpath,'$$ORIGIN'

$(LIB)/mix: $(MIX) ../preload/dynamiccl.h $(LIB)/libmix-cudart.so $(LIB)/libnccl.so.2
	@python3 test/mix/translate.py $(T)/mix
	@echo "c++ $@"; $(CXX) -std=c++17 -g1 -O3 -Wno-attributes -pthread -isystem $(CUDA_INCLUDE) -isystem $(or $(addsuffix /include,$(NCCL_HOME)),$(CUDA_INCLUDE)/../../nccl/include) -o $@ $(T)/mix/mix.cc \
	  -L$(LIB) -l:libmix-cudart.so -l:libcuda.so.1 -l:libnccl.so.2 -Wl,-rpath,'$$ORIGIN' -ldl

# The same under the thread sanitizer, which wants its own runtime in the program: so the library is linked in.
SANITIZED := -g1 -O1 -fsanitize=thread
$(T)/threads/%.o: %.c $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(CFLAGS) $(SANITIZED) -c -o $@ $<

# Kernels run for two seconds here; optimising them takes twenty.
$(T)/threads/%.o: %.cc $(HEADERS) $(KERNELS)
	@mkdir -p $(@D)
	@echo "c++ $@"; $(CXX) $(CXXFLAGS) $(SANITIZED) -O0 -isystem $(CUDA_INCLUDE) -c -o $@ $<

$(T)/threads/cuda_nic.o: $(NIC)

SANITIZED_CUDA := $(CUDA:$(BUILD)/%=$(T)/threads/%)
.SECONDARY: $(SANITIZED_CUDA)
$(SANITIZED_TESTS): $(T)/threads/%: test/%.c $(RIG) $(TEST_HEADERS) $(SANITIZED_CUDA)
	@echo "cc $@"; $(CC) $(CFLAGS) $(SANITIZED) -isystem $(CUDA_INCLUDE) -o $@ $< $(RIG) $(SANITIZED_CUDA) -lm

check: tests
	for t in $(SANITIZED_TESTS); do TSAN_OPTIONS="die_after_fork=0 atexit_sleep_ms=0" $$t 6 || exit 1; done
	for t in $(TESTS); do LD_LIBRARY_PATH=$(LIB) FAKEGPU_TABLE=../../tuner/tunersim/testdata/measurements/h200x2-nvlink-quiet.csv $$t || exit 1; done

.PHONY: tests check
