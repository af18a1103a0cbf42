/* Many calls at once, with a descriptor to poll. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include "example.h"

enum { PIECES = 64, BYTES = 65536 };

static char written[PIECES][BYTES], back[PIECES][BYTES];

/* Takes out so many completions, each when the descriptor says that there are some. */
static void reap_all(weir_queue_t queue, int count) {
  struct pollfd fd = {.fd = (int)check(weir_queue_fd(queue), "weir_queue_fd"), .events = POLLIN};
  weir_completion_t done[8];
  while (count > 0) {
    assert(poll(&fd, 1, 60000) == 1);
    int n = (int)check(weir_reap(queue, done, 8, 0), "weir_reap");
    assert(n > 0);
    for (int i = 0; i < n; i++) {
      if (done[i].result != BYTES && done[i].result != 0) {
        fprintf(stderr, "call %llu: %lld: %s\n", (unsigned long long)done[i].tag,
                (long long)done[i].result, done[i].message);
        exit(1);
      }
    }
    count -= n;
  }
  assert(poll(&fd, 1, 0) == 0);
}

int main(int argc, char **argv) {
  weir_fs_t fs = connect_to(argc, argv);
  weir_file_t file;
  check(weir_open(fs, "/async", O_RDWR | O_CREAT | O_TRUNC, 0600, &file), "weir_open");
  weir_queue_t queue;
  check(weir_queue_open(PIECES, &queue), "weir_queue_open");
  for (int i = 0; i < PIECES; i++) {
    memset(written[i], 'a' + i % 26, BYTES);
    check(weir_submit_pwrite(queue, file, written[i], BYTES, (uint64_t)i * BYTES, i), "submit");
  }
  assert(weir_submit_fsync(queue, file, 0) == -EAGAIN);
  reap_all(queue, PIECES);
  check(weir_submit_fsync(queue, file, 99), "weir_submit_fsync");
  reap_all(queue, 1);
  for (int i = 0; i < PIECES; i++)
    check(weir_submit_pread(queue, file, back[i], BYTES, (uint64_t)i * BYTES, i), "submit");
  reap_all(queue, PIECES);
  assert(memcmp(written, back, sizeof written) == 0);

  /* An error comes with its number and its text. */
  weir_completion_t done;
  check(weir_submit_pread(queue, file, back[0], BYTES, (uint64_t)1 << 62, 7), "submit");
  assert(weir_reap(queue, &done, 1, -1) == 1);
  assert(done.tag == 7 && done.result == -EFBIG && done.message[0] != 0);
  assert(weir_reap(queue, &done, 1, 10) == 0);

  check(weir_queue_close(queue), "weir_queue_close");
  assert(weir_queue_fd(queue) == -EBADF);
  check(weir_close(file), "weir_close");
  check(weir_unlink(fs, "/async"), "weir_unlink");
  check(weir_disconnect(fs), "weir_disconnect");
  puts("async: ok");
  return 0;
}
