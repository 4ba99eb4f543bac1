/* SPDX-License-Identifier: Apache-2.0 */
#include "ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static struct board *map(int fd, size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}

struct board *board_make(int nRanks, int *fd) {
  size_t bytes = board_bytes(nRanks);
  struct board *board = NULL;
  *fd = memfd_create("dynamiccl-carrier", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd < 0) return NULL;
  if (ftruncate(*fd, (off_t)bytes) == 0 && fcntl(*fd, F_ADD_SEALS, SEALS) == 0) board = map(*fd, bytes);
  if (board == NULL) close(*fd);
  else board->nRanks = (uint32_t)nRanks;
  return board;
}

/* Sealed: a peer that shrank it later would end this process. */
struct board *board_open(int fd, int nRanks) {
  size_t bytes = board_bytes(nRanks);
  struct stat s;
  if (fstat(fd, &s) != 0 || (size_t)s.st_size != bytes || (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS) return NULL;
  struct board *board = map(fd, bytes);
  if (board == NULL || board->nRanks == (uint32_t)nRanks) return board;
  munmap(board, bytes);
  return NULL;
}

void board_close(struct board *board, int nRanks) {
  if (board != NULL) munmap(board, board_bytes(nRanks));
}
