/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_lsa: the domain of memory operations that kernels are launched in. Included by it.
 */
#ifndef DYN_DOMAIN_STEPS_H
#define DYN_DOMAIN_STEPS_H

/* Kernels are launched in the domain of memory operations that is for what goes to peers, as NCCL's are, where the GPU has one and the user
 * has not said 0 to NCCL. */
static void domains_are(const char *user, const char *gpu, bool remote) {
  if (user != NULL) setenv("NCCL_MEM_SYNC_DOMAIN", user, 1);
  if (gpu != NULL) setenv("FAKEGPU_SYNC_DOMAINS", gpu, 1);
  begin();
  unsigned long (*with)(void) = (unsigned long (*)(void))dlsym(dlopen(driverPath, RTLD_NOLOAD | RTLD_LAZY), "fakegpu_launched_with");
  CHECK(with != NULL && with() == 0);
  struct step s = {.collective = ALL_REDUCE, .count = 500, .stream = streams[0], .action = LSA(1, 2)};
  fill(&s, 0);
  make_call(&s, 0, 0);
  wait_for_all();
  compare(&s, 0, true);
  unsigned long calls = with();
  CHECK(calls == (1ul << 6 | (unsigned long)remote << 10), "%lx", calls);
}
static void domains(void) { domains_are(NULL, NULL, true); }
static void domains_of_old(void) { domains_are(NULL, "1", false); }
static void domains_of_user(void) { domains_are("0", NULL, false); }
static void domains_named(void) { domains_are("1", NULL, true); }

static void all_domains(void) {
  play("domains", 2, domains);
  play("domains of an older GPU", 2, domains_of_old);
  play("domains, the user's 0", 2, domains_of_user);
  play("domains, the user's 1", 2, domains_named);
}

#endif
