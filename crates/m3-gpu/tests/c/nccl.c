/* A double of NCCL for one process: copies on the host, is late or fails where the compiler flags say so. */
#include <stddef.h>
#include <string.h>

#ifndef VERSION
#define VERSION 22703
#endif
#ifndef JOIN
#define JOIN 7 /* in progress */
#endif
#ifndef LATER
#define LATER 0
#endif
#ifndef REDUCE
#define REDUCE 0
#endif
#ifndef POLLS
#define POLLS 3
#endif

typedef struct { char bytes[128]; } id_t;
typedef struct { size_t size; unsigned magic, version; int blocking; } config_t;
static int polls, aborts;
static char name[] = "the double's error";

int ncclGetVersion(int *version) { *version = VERSION; return 0; }
int ncclGetUniqueId(id_t *id) { memset(id->bytes, 42, sizeof id->bytes); return 0; }
const char *ncclGetErrorString(int status) { (void)status; return name; }
int ncclCommInitRankConfig(void **comm, int world, id_t id, int rank, config_t *config) {
  if (config->blocking != 0 || config->magic != 0xcafebeef || id.bytes[127] != 42 || rank >= world) return 4;
  *comm = &polls;
  polls = 0;
  return JOIN;
}
int ncclCommGetAsyncError(void *comm, int *status) {
  *status = comm != &polls ? 4 : ++polls < POLLS ? 7 : LATER;
  return 0;
}
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream) {
  (void)from; (void)to; (void)stream;
  return comm != &polls || op != 0 || type != 9 || count != 8 ? 4 : REDUCE;
}
int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream) {
  (void)from; (void)to; (void)stream;
  return comm != &polls || type != 1 || count != 16 ? 4 : 0;
}
int ncclCommAbort(void *comm) { aborts += comm == &polls; return 0; }
int double_aborts(void) { return aborts; }
