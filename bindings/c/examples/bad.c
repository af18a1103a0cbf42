/* Bad input: an error each, never a crash. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "example.h"

int main(int argc, char **argv) {
  weir_fs_t fs;
  assert(weir_connect("/nowhere/client.toml", NULL, &fs) == -ENOENT);
  assert(strstr(weir_errmsg(), "/nowhere/client.toml") != NULL);
  assert(weir_connect("no such name!", NULL, &fs) == -EINVAL);
  fs = connect_to(argc, argv);
  assert(weir_connect(argc > 1 ? argv[1] : NULL, NULL, NULL) == -EINVAL);
  if (argc > 2) {
    weir_fs_t foreign;
    assert(weir_connect(argv[2], NULL, &foreign) == -EACCES);
  }
  weir_file_t file;
  weir_stat_t stat;
  char byte = 0;
  assert(weir_open(fs, NULL, O_RDONLY, 0, &file) == -EINVAL);
  assert(weir_open(fs, "/bad", O_RDWR | O_CREAT, 0600, NULL) == -EINVAL);
  assert(weir_open(fs, "/bad", O_RDWR | O_DIRECTORY, 0600, &file) == -EINVAL);
  assert(weir_open(0, "/bad", O_RDWR, 0, &file) == -EBADF);
  assert(weir_stat(fs, "/", NULL) == -EINVAL && weir_stat(fs, NULL, &stat) == -EINVAL);
  check(weir_open(fs, "/bad", O_RDWR | O_CREAT, 0600, &file), "weir_open");
  assert(weir_pread(fs, &byte, 1, 0) == -EBADF);
  assert(weir_pread(file, NULL, 1, 0) == -EINVAL);
  assert(weir_pread(file, NULL, 0, 0) == 0);
  assert(weir_pread(file, &byte, SIZE_MAX, 0) == -EINVAL);
  assert(weir_pwrite(file, &byte, 1, (uint64_t)1 << 62) == -EFBIG);
  assert(weir_pwrite(file, &byte, 1, UINT64_MAX) == -EFBIG);
  assert(weir_ftruncate(file, UINT64_MAX) == -EFBIG);
  assert(weir_fallocate(file, 0, UINT64_MAX, 10) == -EFBIG);
  assert(weir_seek(file, 0, SEEK_SET) == -EINVAL);
  check(weir_close(file), "weir_close");
  assert(weir_close(file) == -EBADF && weir_fsync(file) == -EBADF);
  assert(weir_pread(file, &byte, 1, 0) == -EBADF);
  check(weir_open(fs, "/bad", O_RDONLY, 0, &file), "weir_open");
  assert(weir_pwrite(file, &byte, 1, 0) == -EBADF);
  assert(weir_locations(fs, "/bad", 0, 1, NULL, 10) == -EINVAL);
  weir_queue_t queue;
  assert(weir_queue_open(0, &queue) == -EINVAL && weir_queue_open(1u << 30, &queue) == -EINVAL);
  assert(weir_reap(1234, NULL, 1, 0) == -EINVAL);
  check(weir_unlink(fs, "/bad"), "weir_unlink");
  check(weir_disconnect(fs), "weir_disconnect");
  assert(weir_disconnect(fs) == -EBADF);
  /* The file still has its session. */
  check(weir_close(file), "weir_close");
  puts("bad: ok");
  return 0;
}
