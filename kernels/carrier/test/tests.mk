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

# With NCCL's own sources, which are in no repository of ours: NCCL_TREE=DIR. Its header asks for CUDA's; nccl.h is made from
# its template.
CUDA = $(dir $(or $(NVCC),$(shell ../../.ci/cuda --only-get)))../include
NCCL_CXX = $(CXX) -std=c++17 -g -O2 -w -pthread -I$(T)/nccl -I$(NCCL_TREE)/src/include -I$(NCCL_TREE)/src/include/plugin -I$(NCCL_TREE)/src \
  -isystem $(CUDA) -isystem $(CUDA)/cccl
nccl_headers:
	@mkdir -p $(T)/nccl
	@sed 's/\$${nccl:Version}/22809/; s/\$${nccl:[A-Za-z]*}/0/' $(NCCL_TREE)/src/nccl.h.in > $(T)/nccl/nccl.h
	@sed -n '/^#define DYN_CARRIER_LAYOUT/,/[^\\]$$/p' nccl_net_abi.h > $(T)/nccl/layout.h

abi: nccl_headers
	$(NCCL_CXX) -fsyntax-only test/abi_check.cc

proxy: nccl_headers all
	$(CC) $(CFLAGS) -c -o $(T)/nccl/rig.o test/rig.c
	$(CC) $(CFLAGS) -c -o $(T)/nccl/proxy_rig.o test/proxy/proxy_rig.c
	$(NCCL_CXX) -Itest/proxy -o $(T)/proxy_test test/proxy/*.cc $(NCCL_TREE)/src/gin/gin_host_proxy.cc $(T)/nccl/rig.o $(T)/nccl/proxy_rig.o -ldl

.PHONY: tests nccl_headers abi proxy
