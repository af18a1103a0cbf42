/* Many threads use one file system, one file and one queue. */
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include "example.h"

enum { THREADS = 8, ROUNDS = 50, BYTES = 5000 };

static weir_fs_t fs;
static weir_file_t shared;
static weir_queue_t queue;
/* Buffers of calls that another thread may take out. */
static char ahead[THREADS][ROUNDS][BYTES];

/* Each thread has every eighth piece of the file, and a file and names of its own. */
static void *works(void *number) {
  uint64_t me = (uint64_t)(size_t)number;
  char mine[32], data[BYTES], back[BYTES];
  snprintf(mine, sizeof mine, "/threads-%d", (int)me);
  memset(data, 'a' + (int)me, BYTES);
  for (uint64_t round = 0; round < ROUNDS; round++) {
    uint64_t at = (round * THREADS + me) * BYTES;
    assert(check(weir_pwrite(shared, data, BYTES, at), "weir_pwrite") == BYTES);
    assert(check(weir_pread(shared, back, BYTES, at), "weir_pread") == BYTES);
    assert(memcmp(data, back, BYTES) == 0);
    check(weir_submit_pread(queue, shared, ahead[me][round], BYTES, at, me), "weir_submit_pread");
    weir_file_t own;
    check(weir_open(fs, mine, O_RDWR | O_CREAT, 0600, &own), "weir_open");
    check(weir_append(own, data, 10, NULL), "weir_append");
    check(weir_close(own), "weir_close");
    /* Whose it is does not matter: each takes one out for each that it has put in. */
    weir_completion_t done;
    assert(check(weir_reap(queue, &done, 1, -1), "weir_reap") == 1 && done.result == BYTES);
    /* Errors are of the thread that has made them. */
    assert(weir_unlink(fs, "/nothing") < 0 && strstr(weir_errmsg(), "nothing") != NULL);
  }
  weir_stat_t stat;
  check(weir_stat(fs, mine, &stat), "weir_stat");
  assert(stat.size == 10 * ROUNDS);
  check(weir_unlink(fs, mine), "weir_unlink");
  return NULL;
}

int main(int argc, char **argv) {
  fs = connect_to(argc, argv);
  check(weir_open(fs, "/threads", O_RDWR | O_CREAT | O_TRUNC, 0600, &shared), "weir_open");
  check(weir_queue_open(2 * THREADS, &queue), "weir_queue_open");
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++)
    assert(pthread_create(&threads[i], NULL, works, (void *)i) == 0);
  for (size_t i = 0; i < THREADS; i++) assert(pthread_join(threads[i], NULL) == 0);
  weir_stat_t stat;
  check(weir_fstat(shared, &stat), "weir_fstat");
  assert(stat.size == (uint64_t)ROUNDS * THREADS * BYTES);
  check(weir_queue_close(queue), "weir_queue_close");
  check(weir_close(shared), "weir_close");
  check(weir_unlink(fs, "/threads"), "weir_unlink");
  check(weir_disconnect(fs), "weir_disconnect");
  puts("threads: ok");
  return 0;
}
