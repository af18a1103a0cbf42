/* Writes a file and reads it again; names, attributes, directories. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "example.h"

int main(int argc, char **argv) {
  weir_fs_t fs = connect_to(argc, argv);
  check(weir_mkdir(fs, "/hello", 0755), "weir_mkdir");

  weir_file_t file;
  check(weir_open(fs, "/hello/world", O_RDWR | O_CREAT | O_EXCL, 0644, &file), "weir_open");
  static const char text[] = "hello from C";
  assert(check(weir_pwrite(file, text, sizeof text, 1000), "weir_pwrite") == sizeof text);
  check(weir_fsync(file), "weir_fsync");
  char back[sizeof text];
  assert(check(weir_pread(file, back, sizeof back, 1000), "weir_pread") == sizeof text);
  assert(memcmp(text, back, sizeof text) == 0);
  uint64_t at;
  check(weir_append(file, "!", 1, &at), "weir_append");
  assert(at == 1000 + sizeof text);
  check(weir_ftruncate(file, 500), "weir_ftruncate");
  weir_stat_t stat;
  check(weir_fstat(file, &stat), "weir_fstat");
  assert(stat.size == 500 && S_ISREG(stat.mode) && (stat.mode & 0777) == 0644);
  check(weir_close(file), "weir_close");
  assert(weir_close(file) == -EBADF);

  check(weir_setxattr(fs, "/hello/world", "user.from", "C", 1, 0), "weir_setxattr");
  char value[16];
  assert(check(weir_getxattr(fs, "/hello/world", "user.from", value, sizeof value), "get") == 1);
  assert(check(weir_listxattr(fs, "/hello/world", NULL, 0), "weir_listxattr") == 10);
  assert(weir_getxattr(fs, "/hello/world", "user.none", value, sizeof value) == -ENODATA);
  check(weir_removexattr(fs, "/hello/world", "user.from"), "weir_removexattr");

  check(weir_rename(fs, "/hello/world", "/hello/there", 0), "weir_rename");
  check(weir_symlink(fs, "there", "/hello/link"), "weir_symlink");
  check(weir_stat(fs, "/hello/link", &stat), "weir_stat");
  assert(stat.size == 500);
  check(weir_lstat(fs, "/hello/link", &stat), "weir_lstat");
  assert(S_ISLNK(stat.mode));

  weir_dir_t dir;
  weir_dirent_t entry;
  int files = 0, more;
  check(weir_opendir(fs, "/hello", &dir), "weir_opendir");
  while ((more = weir_readdir(dir, &entry)) > 0) {
    printf("%s %o %llu\n", entry.name, entry.stat.mode, (unsigned long long)entry.stat.size);
    assert(entry.has_stat);
    files++;
  }
  check(more, "weir_readdir");
  check(weir_closedir(dir), "weir_closedir");
  assert(files == 2);

  assert(weir_stat(fs, "/hello/world", &stat) == -ENOENT);
  assert(strstr(weir_errmsg(), "/hello/world") != NULL);
  assert(weir_rmdir(fs, "/hello") == -ENOTEMPTY);
  check(weir_unlink(fs, "/hello/there"), "weir_unlink");
  check(weir_unlink(fs, "/hello/link"), "weir_unlink");
  check(weir_rmdir(fs, "/hello"), "weir_rmdir");
  weir_space_t space;
  check(weir_statfs(fs, "/", &space), "weir_statfs");
  assert(space.total_bytes > 0);
  check(weir_disconnect(fs), "weir_disconnect");
  puts("hello: ok");
  return 0;
}
