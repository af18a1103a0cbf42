/* Lists of regions: one request to each server. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "example.h"

enum { UNIT = 8192, RECORDS = 100, RECORD = 838 };

static uint64_t requests(weir_fs_t fs) {
  uint64_t value;
  check(weir_counter(fs, "data_requests", &value), "weir_counter");
  return value;
}

int main(int argc, char **argv) {
  weir_fs_t fs = connect_to(argc, argv);
  weir_layout_t layout = {.kind = WEIR_LAYOUT_STRIPED, .stripe_unit_bytes = UNIT, .count = 4};
  weir_file_t file;
  check(weir_create(fs, "/list", O_RDWR | O_TRUNC, 0600, &layout, &file), "weir_create");
  static char all[RECORDS * 10 * RECORD];
  for (size_t i = 0; i < sizeof all; i++) all[i] = (char)(i * 31 >> 3);
  check(weir_pwrite(file, all, sizeof all, 0), "weir_pwrite");
  check(weir_fsync(file), "weir_fsync");

  /* Every tenth record, to two parts of memory. */
  static char back[RECORDS * RECORD];
  weir_region_t every_tenth = {.offset = 0, .size = RECORD, .stride = 10 * RECORD, .count = RECORDS};
  weir_memory_t memory[] = {{back, 1000}, {back + 1000, sizeof back - 1000}};
  uint64_t before = requests(fs);
  assert(check(weir_read_list(file, &every_tenth, 1, memory, 2), "read_list") == sizeof back);
  assert(requests(fs) - before == 4);
  for (int i = 0; i < RECORDS; i++)
    assert(memcmp(back + i * RECORD, all + i * 10 * RECORD, RECORD) == 0);

  /* Pieces of any size; those to write ascend. */
  weir_region_t pieces[] = {{.offset = 10, .size = 50}, {.offset = 3 * UNIT, .size = 100}};
  char some[150];
  memset(some, 'x', 50);
  memset(some + 50, 'y', 100);
  weir_memory_t whole = {some, sizeof some};
  before = requests(fs);
  assert(check(weir_write_list(file, pieces, 2, &whole, 1), "write_list") == sizeof some);
  assert(requests(fs) - before == 2);
  char at[100];
  check(weir_pread(file, at, 100, 3 * UNIT), "weir_pread");
  assert(memcmp(at, some + 50, 100) == 0);

  /* What lies beyond the end counts for nothing. */
  weir_region_t beyond = {.offset = sizeof all - 10, .size = 100};
  weir_memory_t room = {back, 100};
  assert(check(weir_read_list(file, &beyond, 1, &room, 1), "read_list") == 10);

  weir_region_t back_again[] = {pieces[1], pieces[0]};
  assert(check(weir_read_list(file, back_again, 2, &whole, 1), "read_list") == sizeof some);
  assert(some[0] == 'y' && some[99] == 'y' && some[100] == 'x');
  assert(weir_write_list(file, back_again, 2, &whole, 1) == -EINVAL);

  /* The same without waiting for each: the memory belongs to the call, the lists do not. */
  weir_queue_t queue;
  check(weir_queue_open(4, &queue), "weir_queue_open");
  memset(back, 0, sizeof back);
  before = requests(fs);
  check(weir_submit_read_list(queue, file, &every_tenth, 1, memory, 2, 7), "weir_submit_read_list");
  weir_completion_t done;
  assert(check(weir_reap(queue, &done, 1, -1), "weir_reap") == 1);
  assert(done.tag == 7 && done.result == (int64_t)sizeof back && requests(fs) - before == 4);
  assert(memcmp(back + 50 * RECORD, all + 500 * RECORD, RECORD) == 0);
  check(weir_submit_write_list(queue, file, pieces, 2, &whole, 1, 8), "weir_submit_write_list");
  assert(check(weir_reap(queue, &done, 1, -1), "weir_reap") == 1);
  assert(done.tag == 8 && done.result == (int64_t)sizeof some);
  assert(weir_submit_write_list(queue, file, back_again, 2, &whole, 1, 9) == 0);
  assert(check(weir_reap(queue, &done, 1, -1), "weir_reap") == 1);
  assert(done.result == -EINVAL && done.message[0]);
  assert(weir_submit_read_list(queue, file, NULL, 1, memory, 2, 10) == -EINVAL);
  check(weir_queue_close(queue), "weir_queue_close");

  /* Lists that do not fit, and ranges too far. */
  assert(weir_read_list(file, pieces, 2, memory, 2) == -EINVAL);
  weir_region_t far = {.offset = (uint64_t)1 << 62, .size = 100};
  assert(weir_read_list(file, &far, 1, &room, 1) == -EFBIG);
  assert(weir_read_list(file, NULL, 1, &room, 1) == -EINVAL);

  check(weir_close(file), "weir_close");
  check(weir_unlink(fs, "/list"), "weir_unlink");
  check(weir_disconnect(fs), "weir_disconnect");
  puts("list: ok");
  return 0;
}
