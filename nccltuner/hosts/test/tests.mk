# SPDX-License-Identifier: Apache-2.0
# Tests of agreement among hosts, which is part of the preload library: ../preload/Makefile has this file. nccltuner/plugintest runs them.
HOSTS := ../hosts
tests: $(T)/fence_check $(T)/test_hub $(T)/test_pace

$(T)/test_pace: $(HOSTS)/test/test_pace.c $(HOSTS)/hub.c $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $< $(HOSTS)/hub.c

$(T)/fence_check: $(HOSTS)/test/fence_check.c $(HOSTS)/test/mistakes.h ../plugin/test/states.h $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -o $@ $<

$(T)/test_hub: $(HOSTS)/test/test_hub.c $(HOSTS)/test/hub_rig.h $(HOSTS)/test/mistakes.h $(HOSTS)/hub.c $(HOSTS)/rank.c $(HEADERS) | $(T)
	@echo "cc $@"; $(CC) $(CFLAGS) -include $(HOSTS)/test/mistakes.h -o $@ $< $(HOSTS)/hub.c
