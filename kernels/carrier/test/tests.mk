# SPDX-License-Identifier: Apache-2.0
# Test programs, and libraries with a planted mistake each, which the first must find. kernels/carriertest runs them, with the
# libcuda.so.1 of nccltuner/fakegpu.
T := $(BUILD)/test
TEST_SOURCES := $(wildcard test/*.c)
MEETING := $(addprefix ../../nccltuner/preload/test/,meeting.h naps.h)
MISTAKES := $(foreach n,1 2 3 4 5 6 7 8 9 10 11 12 13 14,$(T)/mistake$(n).so)

tests: all $(T)/carrier_test $(MISTAKES) $(T)/threads/carrier_test $(T)/threads/carrier.so $(T)/card_test $(T)/threads/card_test \
  $(T)/nic_test $(T)/threads/nic_test

# What only calls the carrier need not be fast: optimising takes four times as long as compiling. Both are built once more under the thread
# sanitizer, below, with what warnings come of optimising.
$(T)/carrier_test $(T)/card_test: private override CFLAGS += -O0

$(T)/carrier_test: $(TEST_SOURCES) $(wildcard test/*.h) $(MEETING) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $(TEST_SOURCES) -pthread -ldl

# Compiled anew is only what has the mistake.
MISTAKEN = $(shell grep -lwE 'CARRIER_MISTAKE [!=]= $*' $(SOURCES))
$(T)/mistake%.so: $(SOURCES:%.c=$(BUILD)/%.o)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(CFLAGS) -fPIC -DCARRIER_MISTAKE=$* -o $@ $(MISTAKEN) $(filter-out $(MISTAKEN:%.c=$(BUILD)/%.o),$^) $(LINK)

# Both under the thread sanitizer.
SANITIZED := $(CFLAGS) -g1 -O1 -fsanitize=thread
$(T)/threads/carrier_test: $(TEST_SOURCES) $(wildcard test/*.h) $(MEETING) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -o $@ $(TEST_SOURCES) -pthread -ldl

$(T)/threads/carrier.so: $(SOURCES) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -fPIC -o $@ $(SOURCES) $(LINK)

# Ranks with GIN of type GDAKI, whose network card's kernel the stand-in for CUDA's driver runs; the second under the thread sanitizer.
CARD_SOURCES := $(wildcard test/card/*.c) test/rig.c
$(T)/card_test $(T)/threads/card_test: $(CARD_SOURCES) $(wildcard test/*.h test/card/*.h) $(MEETING) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(if $(filter threads,$(notdir $(@D))),$(SANITIZED),$(CFLAGS)) -o $@ $(CARD_SOURCES) -pthread -ldl

# The network card's kernel on threads of this CPU; the second under the thread sanitizer.
NIC_TEST = $(CXX) -std=c++17 -g1 -O1 -Wall -Wextra -Werror -pthread -o $@ $<
$(T)/nic_test $(T)/threads/nic_test: test/nic_test.cc $(wildcard test/*.h nic/*) $(MEETING)
	@mkdir -p $(@D)
	@echo "c++ $@"; $(NIC_TEST) $(if $(filter threads,$(notdir $(@D))),-fsanitize=thread)

# With NCCL's own sources, which are in no repository of ours: NCCL_TREE=DIR. Its headers ask for CUDA's; nccl.h is made from its
# template. What is built of them differs: from 2.30.5 on GIN's proxy stands on an RMA plugin.
CUDA = $(dir $(or $(NVCC),$(shell ../../.ci/cuda --only-get)))../include
NCCL_OF = $(shell sed -n 's/^NCCL_$(1) *:= *//p' $(NCCL_TREE)/makefiles/version.mk)
NCCL_CXX = $(CXX) -std=c++17 -g -O2 -w -pthread -DNCCL_OS_LINUX -I$(T)/nccl -I$(NCCL_TREE)/src/include -I$(NCCL_TREE)/src/include/plugin \
  -I$(NCCL_TREE)/src -I$(NCCL_TREE)/src/gin -isystem $(CUDA) -isystem $(CUDA)/cccl
nccl_headers:
	@mkdir -p $(T)/nccl
	@sed -e 's/$${nccl:Version}/$(shell expr $(call NCCL_OF,MAJOR)0000 + $(call NCCL_OF,MINOR)00 + $(call NCCL_OF,PATCH))/' \
	  -e 's/$${nccl:Major}/$(call NCCL_OF,MAJOR)/' -e 's/$${nccl:Minor}/$(call NCCL_OF,MINOR)/' -e 's/$${nccl:Patch}/$(call NCCL_OF,PATCH)/' \
	  -e 's/$${nccl:Suffix}//' $(NCCL_TREE)/src/nccl.h.in > $(T)/nccl/nccl.h
	@sed -n '/^#define DYN_CARRIER_LAYOUT/,/[^\\]$$/p' nccl_net_abi.h > $(T)/nccl/layout.h
	@sed -n '/^#define DYN_CARRIER_RMA_LAYOUT/,/[^\\]$$/p' nccl_rma_abi.h > $(T)/nccl/rma_layout.h
	@sed -n '/^#define DYN_CARRIER_GIN_LAYOUT/,/[^\\]$$/p' nccl_gin_abi.h > $(T)/nccl/gin_layout.h

abi: nccl_headers
	$(NCCL_CXX) -fsyntax-only test/abi_check.cc

RMA_OF_NCCL = $(addprefix $(NCCL_TREE)/src/,gin/gin_host.cc plugin/rma.cc plugin/rma/rma_v13.cc plugin/rma/rma_v14.cc plugin/gin.cc \
  plugin/gin/gin_v13.cc plugin/gin/gin_v14.cc plugin/plugin_open.cc) test/proxy/rma_stubs.cc
HAS_RMA = $(wildcard $(NCCL_TREE)/src/plugin/rma.cc)
proxy: nccl_headers all
	$(CC) $(CFLAGS) -c -o $(T)/nccl/rig.o test/rig.c
	$(CC) $(CFLAGS) -c -o $(T)/nccl/proxy_rig.o test/proxy/proxy_rig.c
	for name in $(if $(HAS_RMA),rma gdaki,proxy); do \
	  $(NCCL_CXX) -Itest/proxy -o $(T)/$$(test $$name = gdaki && echo gdaki || echo proxy)_test test/proxy/nccl_stubs.cc test/proxy/$${name}_test.cc $(if $(HAS_RMA),$(RMA_OF_NCCL)) \
	    $(NCCL_TREE)/src/gin/gin_host_proxy.cc $(T)/nccl/rig.o $(T)/nccl/proxy_rig.o -ldl || exit 1; \
	done

.PHONY: tests nccl_headers abi proxy
