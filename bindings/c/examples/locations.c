/* Where the bytes of a file are, what the disks give; layouts, and a lease on one. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include "example.h"

enum { UNIT = 65536, MIB = 1 << 20 };

static char data[4 * MIB];

/* Somebody else, who writes to the file. */
static void *writes(void *where) {
  weir_fs_t fs;
  weir_file_t file;
  check(weir_connect(where, NULL, &fs), "weir_connect");
  check(weir_open(fs, "/located", O_WRONLY, 0, &file), "weir_open");
  check(weir_pwrite(file, "x", 1, 0), "weir_pwrite");
  check(weir_close(file), "weir_close");
  check(weir_disconnect(fs), "weir_disconnect");
  return NULL;
}

int main(int argc, char **argv) {
  weir_fs_t fs = connect_to(argc, argv);
  weir_layout_t layout = {.stripe_unit_bytes = UNIT, .count = 4, .has_base = 1, .copies = 2};
  weir_file_t file;
  check(weir_create(fs, "/located", O_RDWR | O_TRUNC, 0600, &layout, &file), "weir_create");
  check(weir_pwrite(file, data, sizeof data, 0), "weir_pwrite");
  check(weir_fsync(file), "weir_fsync");
  check(weir_pread(file, data, sizeof data, 0), "weir_pread");
  weir_layout_t found = {0};
  check(weir_layout_get(fs, "/located", &found), "weir_layout_get");
  assert(found.stripe_unit_bytes == UNIT && found.count == 4 && found.copies == 2);

  weir_location_t places[16];
  int n = (int)check(weir_locations(fs, "/located", UNIT / 2, 2 * UNIT, places, 16), "locations");
  assert(n == 6);
  for (int i = 0; i < n; i++) {
    printf("%llu+%llu copy %u: target %u on %s (%s), %llu bytes/s\n",
           (unsigned long long)places[i].offset, (unsigned long long)places[i].len,
           places[i].copy, places[i].target, places[i].host, places[i].address,
           (unsigned long long)places[i].bytes_per_s);
    assert(places[i].state == WEIR_TARGET_ONLINE && places[i].host[0] != 0);
    assert(places[i].copy == (uint32_t)i % 2 && places[i].copies == 2);
  }
  assert(places[0].offset == UNIT / 2 && places[0].len == UNIT / 2);
  assert(places[2].offset == UNIT && places[2].len == UNIT);
  /* A list that is full is gone on with. */
  assert(weir_locations(fs, "/located", 0, sizeof data, places, 5) == 4);
  assert(weir_locations(fs, "/located", 0, sizeof data, places, 1) == -EINVAL);

  /* What the disks give now is known soon, once somebody reads there. */
  for (;;) {
    check(weir_pread(file, data, sizeof data, 0), "weir_pread");
    n = (int)check(weir_locations(fs, "/located", 0, UNIT, places, 16), "weir_locations");
    assert(n == 2);
    if (places[0].bytes_per_s > 0) break;
  }

  /* A lease: whoever wants to write waits until it is given back. */
  weir_queue_t queue;
  weir_lease_t lease;
  check(weir_queue_open(8, &queue), "weir_queue_open");
  check(weir_layout_lease(file, queue, &lease), "weir_layout_lease");
  check(weir_lease_check(lease), "weir_lease_check");
  weir_completion_t done;
  assert(weir_reap(queue, &done, 1, 0) == 0);
  pthread_t other;
  assert(pthread_create(&other, NULL, writes, argc > 1 ? argv[1] : NULL) == 0);
  assert(weir_reap(queue, &done, 1, 60000) == 1);
  assert(done.kind == WEIR_DONE_RECALL && done.tag == lease && done.result == 0);
  check(weir_lease_return(lease), "weir_lease_return");
  assert(pthread_join(other, NULL) == 0);
  assert(weir_lease_return(lease) == -EBADF);

  /* The layout of new files of a directory. */
  check(weir_mkdir(fs, "/wide", 0755), "weir_mkdir");
  weir_layout_t chunks = {.kind = WEIR_LAYOUT_CHUNKED, .segment_bytes = MIB};
  check(weir_layout_set(fs, "/wide", &chunks), "weir_layout_set");
  check(weir_layout_get(fs, "/wide", &found), "weir_layout_get");
  assert(found.kind == WEIR_LAYOUT_CHUNKED && found.segment_bytes == MIB);
  chunks.kind = 77;
  assert(weir_layout_set(fs, "/wide", &chunks) == -EINVAL);

  check(weir_rmdir(fs, "/wide"), "weir_rmdir");
  check(weir_queue_close(queue), "weir_queue_close");
  check(weir_close(file), "weir_close");
  check(weir_unlink(fs, "/located"), "weir_unlink");
  check(weir_disconnect(fs), "weir_disconnect");
  puts("locations: ok");
  return 0;
}
