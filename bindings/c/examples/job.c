/* Processes that read a file together, in phases. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "example.h"

enum { RANKS = 3, SHARE = 1 << 20, MINUTE = 60000 };

static char buffer[SHARE];

/* One process: reads its share in each of two phases. */
static void work(weir_fs_t fs, weir_file_t file, uint32_t rank) {
  weir_job_t job;
  check(weir_job_begin(fs, "sum", "/job", rank, RANKS, &job), "weir_job_begin");
  for (int phase = 0; phase < 2; phase++) {
    weir_range_t share = {.offset = (uint64_t)rank * SHARE, .len = SHARE};
    check(weir_phase_begin(job, file, &share, 1), "weir_phase_begin");
    assert(check(weir_pread(file, buffer, SHARE, share.offset), "weir_pread") == SHARE);
    assert(buffer[0] == (char)rank);
    check(weir_phase_end(job, MINUTE), "weir_phase_end");
  }
  check(weir_job_end(job, MINUTE), "weir_job_end");
}

int main(int argc, char **argv) {
  weir_fs_t fs = connect_to(argc, argv);
  check(weir_mkdir(fs, "/job", 0700), "weir_mkdir");
  weir_file_t file;
  check(weir_open(fs, "/job-input", O_RDWR | O_CREAT, 0600, &file), "weir_open");
  for (int rank = 0; rank < RANKS; rank++) {
    memset(buffer, rank, SHARE);
    check(weir_pwrite(file, buffer, SHARE, (uint64_t)rank * SHARE), "weir_pwrite");
  }
  check(weir_fsync(file), "weir_fsync");
  pid_t children[RANKS];
  for (int rank = 1; rank < RANKS; rank++) {
    children[rank] = fork();
    if (children[rank] == 0) {
      work(fs, file, (uint32_t)rank);
      /* Who ends with a file open keeps others waiting for its lease. */
      check(weir_close(file), "weir_close");
      check(weir_disconnect(fs), "weir_disconnect");
      _exit(0);
    }
  }
  work(fs, file, 0);
  for (int rank = 1; rank < RANKS; rank++) {
    int status;
    assert(waitpid(children[rank], &status, 0) == children[rank] && status == 0);
  }
  /* Nothing is left in the directory. */
  check(weir_rmdir(fs, "/job"), "weir_rmdir");

  /* Who waits for somebody who does not come is told who that is. */
  check(weir_mkdir(fs, "/alone", 0700), "weir_mkdir");
  weir_job_t job;
  assert(weir_job_begin(fs, "alone", "/alone", 2, 2, &job) == -EINVAL);
  check(weir_job_begin(fs, "alone", "/alone", 0, 2, &job), "weir_job_begin");
  assert(weir_job_barrier(job, 20) == -ETIMEDOUT);
  /* It may go on waiting. */
  assert(weir_job_barrier(job, 20) == -ETIMEDOUT);
  assert(strstr(weir_errmsg(), "missing: 1") != NULL);
  assert(weir_job_end(job, 20) == -ETIMEDOUT);

  check(weir_close(file), "weir_close");
  check(weir_unlink(fs, "/job-input"), "weir_unlink");
  check(weir_disconnect(fs), "weir_disconnect");
  puts("job: ok");
  return 0;
}
