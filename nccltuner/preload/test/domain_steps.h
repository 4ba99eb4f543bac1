/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_lsa: the domain of memory operations that kernels are launched in. Included by it.
 */
#ifndef DYN_DOMAIN_STEPS_H
#define DYN_DOMAIN_STEPS_H

/* Where the GPU has a domain of memory operations that is for what goes to peers, kernels of long calls are launched in it, as NCCL's are, if the
 * user has not said 0 to NCCL. */
static void domains_are(const char *user, const char *gpu, bool remote) {
  static const size_t counts[] = {500, (8 << 20) / sizeof(float) - 1, (8 << 20) / sizeof(float)};
  if (user != NULL) setenv("NCCL_MEM_SYNC_DOMAIN", user, 1);
  if (gpu != NULL) setenv("FAKEGPU_SYNC_DOMAINS", gpu, 1);
  begin();
  unsigned long (*with)(void) = (unsigned long (*)(void))dlsym(dlopen(driverPath, RTLD_NOLOAD | RTLD_LAZY), "fakegpu_launched_with");
  CHECK(with != NULL && with() == 0);
  CUdeviceptr memory[2];
  for (int i = 0; i < 2; i++) CHECK(cuda.cuMemAlloc_v2(&memory[i], (8 << 20) + sizeof(float)) == 0);
  in[0] = (float *)(uintptr_t)memory[0], out[0] = (float *)(uintptr_t)memory[1];
  for (int i = 0; i < 3; i++) {
    struct step s = {.collective = ALL_REDUCE, .count = counts[i], .stream = streams[0], .action = LSA(i == 0 ? 1 : 2, 2)};
    fill(&s, 0);
    make_call(&s, 0, 0);
    wait_for_all();
    compare(&s, 0, true);
    CHECK(with() == (1ul << 6 | (unsigned long)(remote && i == 2) << 10), "%zu elements: %lx", counts[i], with());
    meet();
  }
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
