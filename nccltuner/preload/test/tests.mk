# SPDX-License-Identifier: Apache-2.0
# test_watch, test_movers, test_windows, test_peers, test_graphs; test_preload, test_elsewhere, test_absent, test_late, test_names, test_hook, test_probe, test_groups and test_sends under the preload library, with a fake libnccl.so.2 and libcuda.so.1. nccltuner/plugintest
# runs them as well. test_lsa, test_room, test_direct, test_making, test_stamps, test_named and test_api likewise, with the libcuda.so.1 that runs kernels (../fakegpu): nccltuner/fakegputest runs them.
T := $(BUILD)/test

tests: $(T)/test_sends $(T)/test_graphs $(T)/test_preload $(T)/test_elsewhere $(T)/test_absent $(T)/libother.so $(T)/test_late $(T)/late/libdynamiccl.so $(T)/test_names $(T)/test_hook $(T)/test_probe $(T)/test_groups $(T)/test_watch $(T)/test_movers $(T)/test_windows $(T)/test_peers $(T)/test_lsa $(T)/test_room $(T)/test_direct $(T)/test_making $(T)/test_stamps $(T)/test_named $(T)/test_api $(T)/libnccl-net-dynamiccl-carrier.so $(T)/test_gin $(T)/threads/test_gin $(T)/threads/test_probe $(T)/threads/test_movers $(T)/threads/test_windows $(T)/threads/test_lsa $(T)/threads/test_room $(T)/threads/test_direct $(T)/threads/test_making $(T)/threads/test_stamps $(T)/threads/test_named $(T)/threads/test_api $(T)/libnccl.so.2 $(T)/libcuda.so.1 all

$(T):
	@mkdir -p $@

# What only calls the library need not be fast: optimising takes four times as long as compiling. These are built once more under the thread
# sanitizer, below, with what warnings come of optimising.
$(foreach t,probe lsa room direct making stamps named api,$(T)/test_$t) $(T)/agree/test_hosts.o: private override CFLAGS += -O0
# But this fills and compares for longer than it takes to optimise that a little.
$(T)/test_gin: private override CFLAGS += -O1

$(T)/libnccl.so.2: test/fake_nccl.c test/fake.h | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -fPIC -shared -Wl,-soname,libnccl.so.2 -o $@ $<

$(T)/libother.so: test/fake_nccl.c test/fake.h | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -fPIC -shared -Wl,-soname,libother.so -o $@ $<

$(T)/libnccl-net-dynamiccl-carrier.so: test/fake_carrier.c ../../kernels/carrier/expected.h | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -fPIC -shared -o $@ $<

$(T)/libcuda.so.1: test/fake_cuda.c test/fake.h | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<

$(T)/test_preload: test/test_preload.c test/forward_rig.h test/fake.h $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -Wl,--export-dynamic-symbol=clock_gettime -o $@ $< -pthread -ldl

$(T)/test_elsewhere $(T)/test_absent: $(T)/%: test/%.c test/fake.h | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -Wl,--export-dynamic-symbol=dlopen -o $@ $< -ldl

$(T)/libnames.so: test/names.c | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -fno-builtin -fPIC -shared -Wl,-soname,libnames.so -o $@ $<

$(T)/test_names: test/test_names.c $(T)/libnames.so | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< $(T)/libnames.so -Wl,-rpath,'$$ORIGIN'

$(T)/test_late: test/test_late.c test/fake.h | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< -ldl

# The library as it is where no function of glibc.h is there when a program begins, as far as NCCL is looked for.
LATE := lookup.c preload.c driver.c glibc.c
$(T)/late/libdynamiccl.so: test/late.c $(LATE) $(OBJECTS) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $(@D)"; $(CC) $(CFLAGS) -Wno-maybe-uninitialized -fPIC -shared -Wl,--no-as-needed -o $(@D)/liblate.so test/late.c -lc
	@for f in $(LATE); do $(CC) $(CFLAGS) -DDYN_GLIBC_ABSENT -DDYN_GLIBC_LIBRARIES='"liblate.so"' -fPIC -ftls-model=initial-exec -include ../glibc.h -c -o $(@D)/$${f%.c}.o $$f; done
	@$(CC) $(CFLAGS) -shared -Wl,-Bsymbolic -Wl,-z,defs -Wl,-z,relro,-z,now -o $@ $(LATE:%.c=$(@D)/%.o) $(filter-out $(LATE:%.c=$(BUILD)/%.o),$(OBJECTS)) -pthread -ldl

$(T)/libhook.so: test/hook.c | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -fPIC -shared -Wl,-soname,libhook.so -o $@ $< -ldl

$(T)/test_hook: test/test_hook.c $(T)/libhook.so | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< $(T)/libhook.so -Wl,-rpath,'$$ORIGIN' -ldl

$(T)/test_sends: test/test_sends.c test/long_messages.h $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -Wl,--export-dynamic-symbol=fake_loading -o $@ $< -pthread -ldl

$(T)/test_probe $(T)/test_groups: $(T)/%: test/%.c test/probe_rig.h test/probe_which.h test/probe_ends.h test/fake.h $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< -pthread -ldl

$(T)/test_lsa $(T)/test_room $(T)/test_direct $(T)/test_making $(T)/test_stamps $(T)/test_named $(T)/test_api: $(T)/%: test/%.c test/lsa_rig.h test/exchange.h test/meeting.h test/lsa_steps.h test/lsa_ring.h test/norm_steps.h test/late_steps.h test/abort_steps.h test/end_steps.h test/revoke_steps.h test/system_steps.h test/fork_steps.h test/domain_steps.h test/group_steps.h test/broadcast_steps.h test/average_steps.h test/config_steps.h test/children.h test/child_steps.h test/fake.h $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -rdynamic -o $@ $< -pthread -ldl -lm

HOST_OBJECTS := $(filter $(BUILD)/host/% $(BUILD)/glibc.o,$(OBJECTS))
$(T)/test_gin: test/test_gin.c test/gin_rig.h test/gin_states.h test/gin_trips.h test/gin_captured.h test/gin_lanes.h test/gin_late.h test/gin_asked.h test/gin_expected.h test/gin_children.h test/children.h test/gin_memory.h test/gin_backends.h test/gin_places.h test/gin_contexts.h test/exchange.h test/meeting.h $(HOST_OBJECTS) $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< $(HOST_OBJECTS) -pthread -ldl

$(T)/test_watch: test/test_watch.c $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< -pthread

MOVERS := movers.c mover_count.c
$(T)/test_movers: test/test_movers.c test/mover_counts.h test/alone.h $(MOVERS) $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< $(MOVERS) -pthread

$(T)/test_graphs: test/test_graphs.c $(HOST)/graphs.c $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ test/test_graphs.c $(HOST)/graphs.c

$(T)/test_windows: test/test_windows.c windows.c windows.h peers.h | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ test/test_windows.c windows.c -pthread

$(T)/test_peers: test/test_peers.c peers.c peers.h $(HOST)/turns.c $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ test/test_peers.c peers.c $(HOST)/turns.c

# The same under the thread sanitizer, which wants its own runtime in the program: so the library is linked in.
SANITIZED := $(CFLAGS) -g1 -O1 -fsanitize=thread
SANITIZED_HOST := $(patsubst $(BUILD)/host/%,$(T)/threads/host/%,$(filter $(BUILD)/host/%,$(OBJECTS)))
SANITIZED_ALL := $(patsubst $(BUILD)/%,$(T)/threads/%,$(filter-out $(BUILD)/host/% $(BUILD)/dlsym.o $(BUILD)/lookup.o,$(OBJECTS))) $(SANITIZED_HOST)
.SECONDARY: $(SANITIZED_ALL)
$(T)/threads/host/%.o: $(HOST)/%.c $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -c -o $@ $<

$(T)/threads/hosts/%.o: ../hosts/%.c $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -c -o $@ $<

$(T)/threads/%.o: %.c $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -c -o $@ $<

$(T)/threads/test_probe: test/test_probe.c test/probe_rig.h test/probe_which.h test/probe_ends.h test/fake_nccl.c test/fake_cuda.c test/fake.h $(SANITIZED_ALL) $(HEADERS) | $(T)
	@mkdir -p $(@D)
	@echo "cc $(@D)"; $(CC) $(SANITIZED) -fPIC -shared -Wl,-soname,libnccl.so.2 -o $(@D)/libnccl.so.2 test/fake_nccl.c
	@$(CC) $(SANITIZED) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $(@D)/libcuda.so.1 test/fake_cuda.c
	@$(CC) $(SANITIZED) -rdynamic -o $@ test/test_probe.c $(SANITIZED_ALL) -pthread -ldl

$(T)/threads/test_movers: test/test_movers.c test/mover_counts.h test/alone.h $(MOVERS) $(HEADERS) | $(T)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -o $@ $< $(MOVERS) -pthread

$(T)/threads/test_windows: test/test_windows.c windows.c windows.h peers.h | $(T)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -o $@ test/test_windows.c windows.c -pthread

$(T)/threads/test_lsa $(T)/threads/test_room $(T)/threads/test_direct $(T)/threads/test_making $(T)/threads/test_stamps $(T)/threads/test_named $(T)/threads/test_api: $(T)/threads/%: test/%.c test/lsa_rig.h test/exchange.h test/meeting.h test/lsa_steps.h test/lsa_ring.h test/norm_steps.h test/late_steps.h test/abort_steps.h test/end_steps.h test/revoke_steps.h test/system_steps.h test/fork_steps.h test/domain_steps.h test/group_steps.h test/broadcast_steps.h test/average_steps.h test/config_steps.h test/children.h test/child_steps.h test/fake.h $(SANITIZED_ALL) $(HEADERS) | $(T)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -rdynamic -o $@ $< $(SANITIZED_ALL) -pthread -ldl -lm

$(T)/threads/test_gin: test/test_gin.c test/gin_rig.h test/gin_states.h test/gin_trips.h test/gin_captured.h test/gin_lanes.h test/gin_late.h test/gin_asked.h test/gin_expected.h test/gin_children.h test/children.h test/gin_memory.h test/gin_backends.h test/gin_places.h test/gin_contexts.h test/exchange.h test/meeting.h $(SANITIZED_HOST) $(HEADERS) | $(T)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) -o $@ $< $(SANITIZED_HOST) -pthread -ldl

check: tests
	TSAN_OPTIONS="die_after_fork=0 atexit_sleep_ms=0" $(T)/threads/test_probe $(abspath $(T))/threads
	$(T)/test_watch
	$(T)/test_movers
	TSAN_OPTIONS="die_after_fork=0 atexit_sleep_ms=0" $(T)/threads/test_movers moves closes breaks ends beside alone at_a_time
	$(T)/test_windows
	$(T)/threads/test_windows
	$(T)/test_peers
	$(T)/test_graphs
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_probe $(abspath $(T))
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_groups $(abspath $(T))
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_elsewhere $(abspath $(T))
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_absent $(abspath $(T))
	LD_PRELOAD=$(abspath $(T))/late/libdynamiccl.so $(T)/test_late $(abspath $(T))
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_names
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_hook $(abspath $(T))
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_sends $(abspath $(T))
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_preload local $(abspath $(T))
	LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_preload global $(abspath $(T))
	@LD_PRELOAD=$(abspath $(PRELOAD)) $(T)/test_preload none 2>$(T)/said
	@test $$(wc -l <$(T)/said) = 1 || { echo "not one line:"; cat $(T)/said; exit 1; }

.PHONY: tests check
