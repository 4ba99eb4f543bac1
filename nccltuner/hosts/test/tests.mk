# SPDX-License-Identifier: Apache-2.0
# Tests of agreement among hosts, which is part of the preload library: ../preload/Makefile has this file. nccltuner/plugintest runs them.
HOSTS := ../hosts
# What is linked with the plugin's part has its headers, too.
$(T)/agree/plugin.o $(T)/agree/test_hosts.o $(T)/threads/test_hosts: $(wildcard ../plugin/*.h)
tests: $(T)/fence_check $(T)/test_hub $(T)/test_pace $(T)/test_hosts $(T)/threads/test_hosts

$(T)/test_pace: $(HOSTS)/test/test_pace.c $(HOSTS)/hub.c $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< $(HOSTS)/hub.c

$(T)/fence_check: $(HOSTS)/test/fence_check.c $(HOSTS)/test/mistakes.h ../plugin/test/states.h $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $<

$(T)/test_hub: $(HOSTS)/test/test_hub.c $(HOSTS)/test/hub_rig.h $(HOSTS)/test/hub_gin.h $(HOSTS)/test/mistakes.h $(HOSTS)/hub.c $(HOSTS)/rank.c $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -include $(HOSTS)/test/mistakes.h -o $@ $< $(HOSTS)/hub.c

# With the plugin's part, and all that waits in a hurry. Planted mistakes are linked with these objects (nccltuner/plugintest).
HURRY := -include $(HOSTS)/test/hurry.h
AGREE := hosts hosts_gin hosts_samples hub rank wire ids samples plugin
$(T)/agree:
	@mkdir -p $@
$(T)/agree/plugin.o: ../plugin/hosts.c $(HOSTS)/test/hurry.h $(HEADERS) | $(T)/agree
	@echo "cc $@"; $(CC) $(CFLAGS) $(HURRY) -c -o $@ $<
$(T)/agree/test_hosts.o: $(HOSTS)/test/test_hosts.c $(HOSTS)/test/hosts_rig.h $(HOSTS)/test/hosts_words.h $(HOSTS)/test/hosts_samples.h $(HOSTS)/test/hosts_trips.h $(HOSTS)/test/hosts_gin.h $(HOSTS)/test/hurry.h $(HEADERS) | $(T)/agree
	@echo "cc $@"; $(CC) $(CFLAGS) $(HURRY) -c -o $@ $<
$(T)/agree/%.o: $(HOSTS)/%.c $(HOSTS)/test/hurry.h $(HEADERS) | $(T)/agree
	@echo "cc $@"; $(CC) $(CFLAGS) $(HURRY) -c -o $@ $<
$(T)/test_hosts: $(AGREE:%=$(T)/agree/%.o) $(T)/agree/test_hosts.o | $(T)
	@echo "ld $@"; $(CC) $(CFLAGS) -o $@ $^ -pthread
$(T)/threads/test_hosts: $(HOSTS)/test/test_hosts.c $(HOSTS)/test/hosts_rig.h $(HOSTS)/test/hosts_words.h $(HOSTS)/test/hosts_samples.h $(HOSTS)/test/hosts_trips.h $(HOSTS)/test/hosts_gin.h $(HOSTS)/test/hurry.h ../plugin/hosts.c $(filter-out %/plugin.c,$(AGREE:%=$(HOSTS)/%.c)) $(HEADERS)
	@mkdir -p $(@D)
	@echo "cc $@"; $(CC) $(SANITIZED) $(HURRY) -o $@ $(filter %.c,$^) -pthread
