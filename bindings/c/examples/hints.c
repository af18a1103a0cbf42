/* Hints, and what they do: counted, not timed. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include "example.h"

enum { MIB = 1 << 20, RECORD = 838 };

static char data[8 * MIB];

static uint64_t count(weir_fs_t fs, const char *name) {
  uint64_t value;
  check(weir_counter(fs, name, &value), "weir_counter");
  return value;
}

/* Reads small records that follow each other, and then jumps, as a program that looks things up;
   bytes that came for each that was asked for. */
static double waste(weir_fs_t fs, weir_file_t file) {
  uint64_t before = count(fs, "read_wire_bytes"), asked = 0;
  for (uint64_t at = 0; at + MIB <= sizeof data; at += MIB)
    for (int i = 0; i < 3; i++)
      asked += check(weir_pread(file, data, RECORD, at + (uint64_t)i * RECORD), "weir_pread");
  return (double)(count(fs, "read_wire_bytes") - before) / asked;
}

/* Reads the file from its end in pieces; requests to the servers. */
static uint64_t backward(weir_fs_t fs, weir_file_t file) {
  enum { PIECE = 64 << 10 };
  uint64_t before = count(fs, "data_requests");
  for (uint64_t at = sizeof data; at >= PIECE; at -= PIECE)
    assert(check(weir_pread(file, data, PIECE, at - PIECE), "weir_pread") == PIECE);
  return count(fs, "data_requests") - before;
}

/* Reads three fields of a record at each of 8 places; requests to the servers. */
static uint64_t fields(weir_fs_t fs, weir_file_t file) {
  uint64_t before = count(fs, "data_requests");
  for (uint64_t place = 1; place <= 8; place++)
    for (uint64_t field = 3; field-- > 0;) {
      uint64_t at = place * 1000 * RECORD + field * 100;
      assert(check(weir_pread(file, data, 20, at), "weir_pread") == 20);
    }
  return count(fs, "data_requests") - before;
}

int main(int argc, char **argv) {
  weir_fs_t fs = connect_to(argc, argv);
  weir_file_t file;
  check(weir_open(fs, "/hints", O_RDWR | O_CREAT | O_TRUNC, 0600, &file), "weir_open");
  check(weir_pwrite(file, data, sizeof data, 0), "weir_pwrite");
  check(weir_fsync(file), "weir_fsync");

  check(weir_hint(file, WEIR_HINT_READ_ONCE, 0, 0), "weir_hint");
  double once = waste(fs, file);
  check(weir_hint(file, WEIR_HINT_NORMAL, 0, 0), "weir_hint");
  double usual = waste(fs, file);
  printf("bytes that came for each that was read: %.2f usually, %.2f read once\n", usual, once);
  assert(once == 1.0 && usual > 10);

  /* Who reads backwards is served from larger pieces, too. */
  check(weir_hint(file, WEIR_HINT_DONE_WITH, 0, sizeof data), "weir_hint");
  uint64_t plain = backward(fs, file);
  check(weir_hint(file, WEIR_HINT_DONE_WITH, 0, sizeof data), "weir_hint");
  check(weir_hint(file, WEIR_HINT_REVERSE, 0, 0), "weir_hint");
  uint64_t reverse = backward(fs, file);
  printf("requests for 8 MiB from the end: %" PRIu64 " usually, %" PRIu64 " in reverse\n", plain,
         reverse);
  assert(reverse * 2 <= plain);

  /* A record comes whole with its first field. */
  check(weir_hint(file, WEIR_HINT_DONE_WITH, 0, sizeof data), "weir_hint");
  check(weir_hint(file, WEIR_HINT_RANDOM, 0, 0), "weir_hint");
  uint64_t alone = fields(fs, file);
  check(weir_hint(file, WEIR_HINT_RECORDS, 0, RECORD), "weir_hint");
  uint64_t whole = fields(fs, file);
  printf("requests for three fields of 8 records: %" PRIu64 " at random, %" PRIu64 " by records\n", alone,
         whole);
  assert(alone == 24 && whole * 2 <= alone);
  assert(weir_hint(file, WEIR_HINT_RECORDS, 0, 0) == -EINVAL);

  /* What will be needed is there when it is read. */
  check(weir_hint(file, WEIR_HINT_NORMAL, 0, 0), "weir_hint");
  check(weir_hint(file, WEIR_HINT_DONE_WITH, 0, sizeof data), "weir_hint");
  uint64_t fetched = count(fs, "ahead_fetched"), used = count(fs, "ahead_used");
  check(weir_hint(file, WEIR_HINT_WILL_NEED, 5 * MIB, MIB), "weir_hint");
  assert(count(fs, "ahead_fetched") == fetched + 1);
  assert(check(weir_pread(file, data, MIB, 5 * MIB), "weir_pread") == MIB);
  assert(count(fs, "ahead_used") == used + 1);

  /* What is done with is given up. */
  check(weir_hint(file, WEIR_HINT_RANDOM, 0, 0), "weir_hint");
  check(weir_hint(file, WEIR_HINT_WILL_NEED, 2 * MIB, MIB), "weir_hint");
  check(weir_hint(file, WEIR_HINT_DONE_WITH, 2 * MIB, MIB), "weir_hint");
  used = count(fs, "ahead_used");
  check(weir_pread(file, data, MIB, 2 * MIB), "weir_pread");
  assert(count(fs, "ahead_used") == used);

  assert(weir_hint(file, 77, 0, 0) == -EINVAL);
  assert(weir_hint(file, WEIR_HINT_WILL_NEED, UINT64_MAX, 2) == -EFBIG);
  check(weir_close(file), "weir_close");
  assert(weir_hint(file, WEIR_HINT_NORMAL, 0, 0) == -EBADF);
  check(weir_unlink(fs, "/hints"), "weir_unlink");
  check(weir_disconnect(fs), "weir_disconnect");
  puts("hints: ok");
  return 0;
}
