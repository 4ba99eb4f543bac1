# SPDX-License-Identifier: Apache-2.0
# The test program and libraries with a planted mistake each, which it must find. kernels/carriertest runs them, with the
# libcuda.so.1 of nccltuner/fakegpu.
T := $(BUILD)/test
TEST_SOURCES := $(wildcard test/*.c)
MISTAKES := $(T)/mistake1.so $(T)/mistake2.so

tests: all $(T)/carrier_test $(MISTAKES) $(T)/threads/carrier_test $(T)/threads/carrier.so

$(T)/carrier_test: $(TEST_SOURCES) $(wildcard test/*.h) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $(TEST_SOURCES) -pthread -ldl

$(T)/mistake%.so: $(SOURCES) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(CFLAGS) -fPIC -DCARRIER_MISTAKE=$* -o $@ $(SOURCES) $(LINK)

# Both under the thread sanitizer.
SANITIZED := $(CFLAGS) -O1 -fsanitize=thread
$(T)/threads/carrier_test: $(TEST_SOURCES) $(wildcard test/*.h) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -o $@ $(TEST_SOURCES) -pthread -ldl

$(T)/threads/carrier.so: $(SOURCES) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -fPIC -o $@ $(SOURCES) $(LINK)

# NCCL's header asks for CUDA's; nccl.h is made from its template.
abi:
	@mkdir -p $(T)/abi
	@sed 's/\$${nccl:[A-Za-z]*}/0/' $(NCCL_TREE)/src/nccl.h.in > $(T)/abi/nccl.h
	@sed -n '/^#define DYN_CARRIER_LAYOUT/,/[^\\]$$/p' nccl_net_abi.h > $(T)/abi/layout.h
	$(CXX) -std=c++17 -fsyntax-only -I$(T)/abi -I$(NCCL_TREE)/src/include -I$(NCCL_TREE)/src/include/plugin \
	  -isystem $(dir $(or $(NVCC),$(shell ../../.ci/cuda --only-get)))../include test/abi_check.cc

.PHONY: tests abi
