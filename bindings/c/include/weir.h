/* libweir: the parallel file system Weir for programs in C.
 *
 * Made by cbindgen from bindings/c/src; `man 3 libweir` and docs/c.md say how to use it.
 *
 * Every function returns a value of 0 or more, or the negative number of an error (-ENOENT); weir_errmsg()
 * has the text. All functions may be called from several threads. A child of fork() uses the same handles
 * of file systems and files, and connects anew by itself. */

#ifndef WEIR_H
#define WEIR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Room for a name and its end.
#define WEIR_NAME_BYTES 256

// Nothing is known: what is read in order is fetched ahead.
#define WEIR_HINT_NORMAL 0

// The handle will be read in no order: nothing is fetched ahead.
#define WEIR_HINT_RANDOM 1

// Each byte will be read once: nothing is fetched ahead or kept.
#define WEIR_HINT_READ_ONCE 2

// The range will be read soon: it is asked for now, as far as is fetched ahead of a reader.
#define WEIR_HINT_WILL_NEED 3

// The range will not be read again: what was fetched of it is given up.
#define WEIR_HINT_DONE_WITH 4

// The handle will be read from its end to its beginning: what is before a read is fetched ahead.
#define WEIR_HINT_REVERSE 5

// The handle will be read in no order, a part of a record of `len` bytes at a time: the whole record
// comes with its first part. Records follow each other from the beginning of the file.
#define WEIR_HINT_RECORDS 6

// Stripe units are dealt to the targets in turn.
#define WEIR_LAYOUT_STRIPED 0

// Fragments of any size, each on one target.
#define WEIR_LAYOUT_FRAGMENTS 1

// Chunks, each on a target of its own choice.
#define WEIR_LAYOUT_CHUNKED 2

// The target serves.
#define WEIR_TARGET_ONLINE 0

// Its server is away.
#define WEIR_TARGET_OFFLINE 1

// Its disk has failed, and what can still be read is served.
#define WEIR_TARGET_OUT_OF_SERVICE 2

// It is being brought up to date.
#define WEIR_TARGET_SYNCING 3

// Online, and not heard of for a while.
#define WEIR_TARGET_SUSPECT 4

// Calls that a queue may have under way or unreaped.
#define WEIR_QUEUE_MOST 4096

// A call has ended.
#define WEIR_DONE_CALL 0

// A lease is wanted back, or was lost (`result` is `-EIO`).
#define WEIR_DONE_RECALL 1

// A cluster that is connected to. 0 is none.
typedef uint64_t weir_fs_t;

// An open directory. 0 is none.
typedef uint64_t weir_dir_t;

// Attributes of a file.
typedef struct {
  // The inode number.
  uint64_t ino;
  // Kind and permission bits, as `st_mode`.
  uint32_t mode;
  // Names that point here.
  uint32_t nlink;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // Bytes.
  uint64_t size;
  // Last access, nanoseconds since 1970.
  int64_t atime_ns;
  // Last change of the contents.
  int64_t mtime_ns;
  // Last change of anything.
  int64_t ctime_ns;
  // Grows at each change of the file or directory.
  uint64_t change;
  // Preferred size of calls, bytes: one whole stripe where it is known.
  uint32_t preferred_io_bytes;
  // Device number of device files.
  uint32_t rdev;
} weir_stat_t;

// One entry of a directory.
typedef struct {
  // The name, which ends with a zero byte.
  char name[WEIR_NAME_BYTES];
  // 1: `stat` is known. It is not of a file that was removed meanwhile; then it has `ino` and the
  // kind alone.
  uint32_t has_stat;
  // Attributes, of a link itself.
  weir_stat_t stat;
} weir_dirent_t;

// An open file. 0 is none.
typedef uint64_t weir_file_t;

// A layout. Zero all of it first: a zero means "choose for me".
typedef struct {
  // WEIR_LAYOUT_STRIPED, WEIR_LAYOUT_FRAGMENTS or WEIR_LAYOUT_CHUNKED.
  uint32_t kind;
  // Striped: bytes on one target before the next, a multiple of 4096; 0: 64 KiB.
  uint32_t stripe_unit_bytes;
  // Number of targets; 0: all.
  uint32_t count;
  // 1: the first target is number `base` in the order of targets. 0: chosen for balance.
  uint32_t has_base;
  // Striped and fragments: index of the first target.
  uint32_t base;
  // Copies, at most 8; 0: 1.
  uint32_t copies;
  // How copies are written: 0: by the default; 1 server-sync, 2 server-async, 3 client-sync,
  // 4 client-async, 5 hybrid.
  uint32_t duplication;
  // Where copies go: 0 as usual, 1 chained, 2 groups, 3 random, 4 graduated.
  uint32_t placement;
  // Chunked: bytes of a chunk; fragments: of each that has no entry; 0: 64 MiB.
  uint64_t segment_bytes;
  // Fragments: the size of each, in order.
  uint64_t *fragment_bytes;
  // How many entries that has.
  size_t fragments;
} weir_layout_t;

// How to connect. Zero all of it first: a zero means the default.
typedef struct {
  // Milliseconds within which the first connection has to stand; 0: 5000; a day at the most.
  uint64_t connect_timeout_ms;
  // Milliseconds within which each request of a call ends; 0: 30000; a day at the most.
  uint64_t request_timeout_ms;
  // Bytes fetched ahead of each sequential reader; 0: 4 MiB; UINT64_MAX: none.
  uint64_t read_ahead_bytes;
  // Bytes of a file written and not yet confirmed; 0: 8 MiB; UINT64_MAX: none, so that each
  // write waits for its confirmation.
  uint64_t write_behind_bytes;
  // 1: act as user `uid` and group `gid`; 0: as the user and the groups of this process.
  uint32_t has_caller;
  // The user.
  uint32_t uid;
  // The group.
  uint32_t gid;
  // How far changes of other clients are seen: 0 at once, 1 relaxed, 2 without any cache.
  uint32_t consistency;
} weir_options_t;

// A process of a job. 0 is none.
typedef uint64_t weir_job_t;

// Bytes of a file.
typedef struct {
  // First byte.
  uint64_t offset;
  // Bytes.
  uint64_t len;
} weir_range_t;

// A queue of asynchronous calls. 0 is none.
typedef uint64_t weir_queue_t;

// A layout lease. 0 is none.
typedef uint64_t weir_lease_t;

// Bytes of a file: `count` elements of `size` bytes, each `stride` bytes behind the one before.
// A `count` of 0 or 1 is one element, and then `stride` means nothing.
typedef struct {
  // First byte of the first element.
  uint64_t offset;
  // Bytes of each element.
  uint64_t size;
  // Bytes from the start of one element to the start of the next.
  uint64_t stride;
  // Number of elements.
  uint64_t count;
} weir_region_t;

// A part of memory, as `struct iovec` of `<sys/uio.h>`.
typedef struct {
  // Its first byte.
  void *base;
  // Bytes.
  size_t len;
} weir_memory_t;

// A copy of some bytes of a file that follow each other on one target. Copies of the same bytes
// follow each other in a list, the first copy first.
typedef struct {
  // First byte, in the file.
  uint64_t offset;
  // Bytes.
  uint64_t len;
  // Bytes a second that the target serves now while it has something to do, all readers
  // together; 0: not known, as nobody has read there of late.
  uint64_t bytes_per_s;
  // Requests that the target has not answered, whoever sent them.
  uint32_t in_flight;
  // Which copy, from 0 on.
  uint32_t copy;
  // How many copies there are.
  uint32_t copies;
  // The target.
  uint32_t target;
  // Its data server; 0: the target is not part of the cluster any more.
  uint32_t server;
  // One of WEIR_TARGET_*.
  uint32_t state;
  // 1: it has been much slower than others for some time.
  uint32_t slow;
  // 1: the copy is being made, and is not read yet.
  uint32_t is_filling;
  // The name of the machine; empty: not known.
  char host[256];
  // `address:port` of the data server; empty: not known.
  char address[64];
} weir_location_t;

// Space of a file system.
typedef struct {
  // Bytes in all.
  uint64_t total_bytes;
  // Bytes that are free.
  uint64_t free_bytes;
  // Files that could exist.
  uint64_t total_files;
  // Files that could still be made.
  uint64_t free_files;
} weir_space_t;

// What became of an asynchronous call.
typedef struct {
  // What the caller gave the call.
  uint64_t tag;
  // What the call returned: bytes, or a negative error.
  int64_t result;
  // WEIR_DONE_CALL, or WEIR_DONE_RECALL: `tag` is the handle of a lease that is wanted back.
  uint32_t kind;
  // The text of an error, with server and target; empty if there is none.
  char message[256];
} weir_completion_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens a directory to be listed. A child of `fork` has to open its own.
//
// # Safety
// The pointers are NULL or valid.
int weir_opendir(weir_fs_t fs, const char *path, weir_dir_t *dir);

// The next entry but `.` and `..`: 1, or 0 at the end.
//
// # Safety
// `entry` is NULL or valid.
int weir_readdir(weir_dir_t dir, weir_dirent_t *entry);

// Closes a directory.
int weir_closedir(weir_dir_t dir);

// The text of the last error of this thread: what happened, to which file, server or target, and
// what to do. It stays until the next error of this thread. Never NULL.
const char *weir_errmsg(void);

// Opens a regular file. `flags`: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC,
// O_APPEND, O_NOFOLLOW; O_CLOEXEC and O_LARGEFILE are allowed and mean nothing; others are `-EINVAL`.
// `mode` is for new files, and no umask is taken from it.
//
// # Safety
// The pointers are NULL or valid.
int weir_open(weir_fs_t fs,
              const char *path,
              int flags,
              uint32_t mode,
              weir_file_t *file);

// As `weir_open` with O_CREAT; a new file gets this layout. `layout` may be NULL: that of its
// directory.
//
// # Safety
// The pointers are NULL or valid.
int weir_create(weir_fs_t fs,
                const char *path,
                int flags,
                uint32_t mode,
                const weir_layout_t *layout,
                weir_file_t *file);

// Waits for the calls by the file that are under way or queued, sends what is gathered, waits for
// it, and closes. The handle is closed whatever is returned; an error says that data was lost, or
// may be (`-ETIMEDOUT`: calls have not ended).
int weir_close(weir_file_t file);

// Makes data and metadata durable on all copies.
int weir_fsync(weir_file_t file);

// Sends what is gathered and waits until the servers have it: others see it, and it is not yet
// durable.
int weir_flush(weir_file_t file);

// Cuts or extends an open file.
int weir_ftruncate(weir_file_t file, uint64_t size);

// Attributes of an open file, writes of this process included.
//
// # Safety
// `stat` is NULL or valid.
int weir_fstat(weir_file_t file, weir_stat_t *stat);

// `fallocate(2)`: `mode` is 0 or FALLOC_FL_KEEP_SIZE (reserve), FALLOC_FL_PUNCH_HOLE with
// FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE with or without FALLOC_FL_KEEP_SIZE.
int weir_fallocate(weir_file_t file, int mode, uint64_t offset, uint64_t len);

// The first data (`whence` SEEK_DATA) or hole (SEEK_HOLE) at or after an offset; `-ENXIO` if
// there is none.
int64_t weir_seek(weir_file_t file, uint64_t offset, int whence);

// Connects to a cluster. `where` is the path of a credential file or of a state directory if
// it contains a `/`, and the name of a cluster of this machine otherwise. NULL: the cluster that the
// program `weir` uses, by WEIR_CREDENTIAL, WEIR_DIR, WEIR_CLUSTER, the configuration file, or the
// cluster `default`. `options` may be NULL. A child of `fork` uses the same handle; its first
// call connects anew.
//
// # Safety
// The pointers are NULL or valid.
int weir_connect(const char *where,
                 const weir_options_t *options,
                 weir_fs_t *fs);

// Ends a connection. Files, directories and jobs that are still open keep its session until they are
// closed.
int weir_disconnect(weir_fs_t fs);

// The number of the session of this process, which `weir status` shows. Two processes never have the
// same one.
//
// # Safety
// `session` is NULL or valid.
int weir_session(weir_fs_t fs,
                 uint64_t *session);

// The value of a counter of this process's session (`data_requests`, `meta_requests`,
// `read_wire_bytes`, ...); `-ENODATA` if there is none of that name.
//
// # Safety
// The pointers are NULL or valid.
int weir_counter(weir_fs_t fs, const char *name, uint64_t *value);

// Says how an open file will be read. `hint`: one of WEIR_HINT_*; `offset` and `len` count for
// WEIR_HINT_WILL_NEED and WEIR_HINT_DONE_WITH alone, and `len` for WEIR_HINT_RECORDS. A hint holds
// for this handle, in this process.
int weir_hint(weir_file_t file, uint32_t hint, uint64_t offset, uint64_t len);

// Reads at an offset until the buffer is full or the file ends; the bytes read.
//
// # Safety
// `buffer` is NULL or has `len` bytes that nobody else uses.
int64_t weir_pread(weir_file_t file, void *buffer, size_t len, uint64_t offset);

// Writes all of a buffer at an offset (at the end, if the file was opened with O_APPEND); the
// bytes written. With write-behind an error may come with a later write, `weir_fsync` or
// `weir_close`.
//
// # Safety
// `data` is NULL or has `len` bytes.
int64_t weir_pwrite(weir_file_t file, const void *data, size_t len, uint64_t offset);

// Writes all of a buffer at the true end of the file, whoever else appends, and says where that
// was. `offset` may be NULL.
//
// # Safety
// `data` is NULL or has `len` bytes; `offset` is NULL or valid.
int weir_append(weir_file_t file, const void *data, size_t len, uint64_t *offset);

// This process takes part in a job. `name` names it among the jobs of this user; NULL: job, rank and
// number come from the environment of mpirun, srun, torchrun or `weir run`, and `rank` and `ranks` are
// not looked at. `dir` is a directory of the cluster in which the processes wait for each other;
// NULL: they do not. Nothing may be left there of a job of the same name.
//
// # Safety
// The pointers are NULL or valid.
int weir_job_begin(weir_fs_t fs,
                   const char *name,
                   const char *dir,
                   uint32_t rank,
                   uint32_t ranks,
                   weir_job_t *job);

// In the phase that begins, this process reads these ranges of a file; with a `count` of 0 all of it.
// Servers then see to it that the processes of the job are done at about the same time.
//
// # Safety
// `ranges` is NULL or has `count` elements.
int weir_phase_begin(weir_job_t job,
                     weir_file_t file,
                     const weir_range_t *ranges,
                     size_t count);

// The phase ends: this process reads no more in it, and waits until all the others have come as
// far. `-ETIMEDOUT` after `timeout_ms`; the text names who is missing, and the next call goes on
// waiting for the same.
int weir_phase_end(weir_job_t job, uint64_t timeout_ms);

// Waits until all processes of a job have called this as often. See `weir_phase_end`.
int weir_job_barrier(weir_job_t job, uint64_t timeout_ms);

// This process leaves the job. Rank 0 waits until all have, and removes what they have left in the
// directory.
int weir_job_end(weir_job_t job, uint64_t timeout_ms);

// Sets the layout of new files of a directory, lays an empty file out anew, or says how many
// copies a file with data is to have. NULL: that of the directory above.
//
// # Safety
// The pointers are NULL or valid.
int weir_layout_set(weir_fs_t fs, const char *path, const weir_layout_t *layout);

// The layout of a file, or of new files of a directory. If `layout->fragment_bytes` is not NULL,
// up to `layout->fragments` sizes of fragments go there; `layout->fragments` becomes the number that
// there are.
//
// # Safety
// The pointers are NULL or valid, the list of fragments too.
int weir_layout_get(weir_fs_t fs,
                    const char *path,
                    weir_layout_t *layout);

// Takes a layout lease on an open file: what `weir_locations` says of the file stays true as long as
// it is held. When somebody wants to change or move the file a completion of kind WEIR_DONE_RECALL
// comes to `queue`, whose `tag` is the lease; the program has three seconds to end what it does and to
// call `weir_lease_return`. Reads by this process wait meanwhile.
//
// # Safety
// `lease` is NULL or valid.
int weir_layout_lease(weir_file_t file,
                      weir_queue_t queue,
                      weir_lease_t *lease);

// Gives a layout lease back. `-ESTALE` if it was gone before.
int weir_lease_return(weir_lease_t lease);

// 0 as long as a layout lease is held, `-ESTALE` when it is not any more.
int weir_lease_check(weir_lease_t lease);

// Reads regions of a file into parts of memory: the bytes of the first list, one after another, go
// to those of the second. Both lists have to have the same number of bytes (`-EINVAL`). Each 4 MiB
// (or 256 regions) are one request to each server that holds any of them. Returns how many of the
// bytes lie before the end of the file; the others are zeros.
//
// # Safety
// The lists are NULL or have so many elements; the parts of memory are there, and nobody
// else uses them.
int64_t weir_read_list(weir_file_t file,
                       const weir_region_t *regions,
                       size_t region_count,
                       const weir_memory_t *memory,
                       size_t memory_count);

// Writes regions of a file from parts of memory: see `weir_read_list`. The regions ascend and do not
// overlap (`-EINVAL`). Returns the bytes written, when the servers have confirmed them.
//
// # Safety
// The lists are NULL or have so many elements; the parts of memory are there.
int64_t weir_write_list(weir_file_t file,
                        const weir_region_t *regions,
                        size_t region_count,
                        const weir_memory_t *memory,
                        size_t memory_count);

// `weir_read_list` that returns at once. The memory belongs to the call until its completion is reaped;
// the lists themselves do not. `-EAGAIN`: the queue is full.
//
// # Safety
// As of `weir_read_list`, until the call has ended.
int weir_submit_read_list(weir_queue_t queue,
                          weir_file_t file,
                          const weir_region_t *regions,
                          size_t region_count,
                          const weir_memory_t *memory,
                          size_t memory_count,
                          uint64_t tag);

// `weir_write_list` that returns at once: see `weir_submit_read_list`.
//
// # Safety
// As of `weir_write_list`, until the call has ended.
int weir_submit_write_list(weir_queue_t queue,
                           weir_file_t file,
                           const weir_region_t *regions,
                           size_t region_count,
                           const weir_memory_t *memory,
                           size_t memory_count,
                           uint64_t tag);

// The locations of a range of a file, in order: how many entries went to the list. Bytes beyond the
// end of the file are in no location. If the list is full, another call goes on at the end of
// the last entry. All copies of a range are in the list, or none.
//
// # Safety
// `path` is NULL or a text; `locations` is NULL or has room for `capacity` entries.
int64_t weir_locations(weir_fs_t fs,
                       const char *path,
                       uint64_t offset,
                       uint64_t len,
                       weir_location_t *locations,
                       size_t capacity);

// Attributes of what a path leads to, links followed.
//
// # Safety
// The pointers are NULL or valid.
int weir_stat(weir_fs_t fs, const char *path, weir_stat_t *stat);

// As `weir_stat`, of a link itself.
//
// # Safety
// The pointers are NULL or valid.
int weir_lstat(weir_fs_t fs, const char *path, weir_stat_t *stat);

// Cuts or extends a file.
//
// # Safety
// `path` is NULL or a text.
int weir_truncate(weir_fs_t fs, const char *path, uint64_t size);

// Makes a directory. No umask is taken from `mode`.
//
// # Safety
// `path` is NULL or a text.
int weir_mkdir(weir_fs_t fs, const char *path, uint32_t mode);

// Removes an empty directory.
//
// # Safety
// `path` is NULL or a text.
int weir_rmdir(weir_fs_t fs, const char *path);

// Removes a name that is not a directory's.
//
// # Safety
// `path` is NULL or a text.
int weir_unlink(weir_fs_t fs, const char *path);

// Moves a name, in place of one that is there. `flags`: 0, RENAME_NOREPLACE or RENAME_EXCHANGE.
//
// # Safety
// The paths are NULL or texts.
int weir_rename(weir_fs_t fs, const char *from, const char *to, uint32_t flags);

// Gives a file another name.
//
// # Safety
// The paths are NULL or texts.
int weir_link(weir_fs_t fs, const char *path, const char *name);

// Makes a symbolic link.
//
// # Safety
// The texts are NULL or texts.
int weir_symlink(weir_fs_t fs, const char *target, const char *path);

// What a symbolic link says; its length, and no zero byte behind it. `-ERANGE` if it does
// not fit.
//
// # Safety
// The pointers are NULL or valid.
int64_t weir_readlink(weir_fs_t fs, const char *path, char *buffer, size_t len);

// Sets permission bits.
//
// # Safety
// `path` is NULL or a text.
int weir_chmod(weir_fs_t fs, const char *path, uint32_t mode);

// Sets owner and group; UINT32_MAX leaves one as it is.
//
// # Safety
// `path` is NULL or a text.
int weir_chown(weir_fs_t fs, const char *path, uint32_t uid, uint32_t gid);

// Sets the times of access and of change, nanoseconds since 1970.
//
// # Safety
// `path` is NULL or a text.
int weir_utime(weir_fs_t fs, const char *path, int64_t atime_ns, int64_t mtime_ns);

// Space of the file system, or what the quotas of directories leave at a path.
//
// # Safety
// The pointers are NULL or valid.
int weir_statfs(weir_fs_t fs, const char *path, weir_space_t *space);

// Makes all names and attributes that this process has changed durable.
int weir_sync_names(weir_fs_t fs);

// Makes a queue for so many calls at a time (1 to WEIR_QUEUE_MOST). A child of `fork` has to make its
// own.
//
// # Safety
// `queue` is NULL or valid.
int weir_queue_open(uint32_t depth,
                    weir_queue_t *queue);

// A descriptor that is readable while there are completions: for `poll` alone, neither to be read
// nor closed.
int weir_queue_fd(weir_queue_t queue);

// Waits for all calls of a queue, and closes it. What was not reaped is gone.
int weir_queue_close(weir_queue_t queue);

// `weir_pread` that returns at once. The buffer belongs to the call until its completion is
// reaped. `-EAGAIN`: the queue is full.
//
// # Safety
// `buffer` is NULL or has `len` bytes that nobody else uses until the call has ended.
int weir_submit_pread(weir_queue_t queue,
                      weir_file_t file,
                      void *buffer,
                      size_t len,
                      uint64_t offset,
                      uint64_t tag);

// `weir_pwrite` that returns at once. See `weir_submit_pread`.
//
// # Safety
// `data` is NULL or has `len` bytes that stay as they are until the call has ended.
int weir_submit_pwrite(weir_queue_t queue,
                       weir_file_t file,
                       const void *data,
                       size_t len,
                       uint64_t offset,
                       uint64_t tag);

// `weir_fsync` that returns at once: of writes that have ended before it was submitted, and not of
// those that are still queued.
int weir_submit_fsync(weir_queue_t queue, weir_file_t file, uint64_t tag);

// Takes completions out, `capacity` at the most; how many. Waits until there is one, for
// `timeout_ms` at the most: 0 does not wait, a negative one waits as long as it takes.
//
// # Safety
// `completions` is NULL or has room for `capacity` entries.
int weir_reap(weir_queue_t queue, weir_completion_t *completions, size_t capacity, int timeout_ms);

// The value of an attribute; its length. With a `len` of 0 the length alone. `-ERANGE` if it does
// not fit, `-ENODATA` if there is none.
//
// # Safety
// The pointers are NULL or valid.
int64_t weir_getxattr(weir_fs_t fs, const char *path, const char *name, void *value, size_t len);

// Sets an attribute. `flags`: 0, XATTR_CREATE or XATTR_REPLACE.
//
// # Safety
// The pointers are NULL or valid.
int weir_setxattr(weir_fs_t fs,
                  const char *path,
                  const char *name,
                  const void *value,
                  size_t len,
                  int flags);

// The names of all attributes, each with a zero byte at its end; their length together. With a `len`
// of 0 the length alone.
//
// # Safety
// The pointers are NULL or valid.
int64_t weir_listxattr(weir_fs_t fs,
                       const char *path,
                       char *names,
                       size_t len);

// Removes an attribute.
//
// # Safety
// The pointers are NULL or valid.
int weir_removexattr(weir_fs_t fs, const char *path, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WEIR_H */
