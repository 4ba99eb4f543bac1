/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of a libdl.so.2 or libpthread.so.0 that came after us (glibc.h): in the tables of what is loaded, since who would look them up by name
 * is one of them. Included once in each library.
 */
#ifndef DYN_GLIBC_LATE_H
#define DYN_GLIBC_LATE_H

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#ifndef DYN_GLIBC_LIBRARIES
#define DYN_GLIBC_LIBRARIES "libdl.so.2", "libpthread.so.0"
#endif

struct dyn_glibc_search {
  const char *name;
  void *found;
};

static bool dyn_glibc_is_of(const char *path) {
  static const char *const libraries[] = {DYN_GLIBC_LIBRARIES};
  const char *slash = strrchr(path, '/');
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
    if (strcmp(slash == NULL ? path : slash + 1, libraries[i]) == 0) return true;
  return false;
}

static uint32_t dyn_glibc_hash(const char *name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; name++) hash = hash * 33 + (unsigned char)*name;
  return hash;
}

/* By DT_GNU_HASH. The addresses in it are as the loader has put them. */
static void *dyn_glibc_find(ElfW(Addr) base, const ElfW(Dyn) *dynamic, const char *name) {
  const uint32_t *table = NULL;
  const ElfW(Sym) *symbols = NULL;
  const char *names = NULL;
  for (; dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag == DT_GNU_HASH) table = (const uint32_t *)dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym) *)dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_STRTAB) names = (const char *)dynamic->d_un.d_ptr;
  }
  if (table == NULL || symbols == NULL || names == NULL || table[0] == 0) return NULL;
  const uint32_t hash = dyn_glibc_hash(name), first = table[1];
  const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(table + 4) + table[2]), *chain = buckets + table[0];
  for (uint32_t i = buckets[hash % table[0]]; i >= first && i > 0; i++) {
    const ElfW(Sym) *s = &symbols[i];
    if ((chain[i - first] | 1) == (hash | 1) && s->st_shndx != SHN_UNDEF && (s->st_info & 15) == STT_FUNC && strcmp(names + s->st_name, name) == 0)
      return (void *)(base + s->st_value);
    if (chain[i - first] & 1) break;
  }
  return NULL;
}

static int dyn_glibc_look(struct dl_phdr_info *library, size_t bytes, void *of) {
  struct dyn_glibc_search *search = of;
  (void)bytes;
  if (library->dlpi_name == NULL || !dyn_glibc_is_of(library->dlpi_name)) return 0;
  for (int i = 0; i < library->dlpi_phnum && search->found == NULL; i++)
    if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
      search->found = dyn_glibc_find(library->dlpi_addr, (const ElfW(Dyn) *)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr), search->name);
  return search->found != NULL;
}

void *dyn_glibc_late(const char *name);
void *dyn_glibc_late(const char *name) {
  struct dyn_glibc_search search = {.name = name};
  dl_iterate_phdr(dyn_glibc_look, &search);
  return search.found;
}

#endif
