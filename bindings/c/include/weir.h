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

// Bytes of a name, including the final zero byte.
#define WEIR_NAME_BYTES 256

// No hint: sequential reads are fetched ahead.
#define WEIR_HINT_NORMAL 0

// Reads are in random order: nothing is fetched ahead.
#define WEIR_HINT_RANDOM 1

// Each byte is read once: nothing is fetched ahead or cached.
#define WEIR_HINT_READ_ONCE 2

// The range is read soon: it is requested at once, up to the read-ahead of a reader.
#define WEIR_HINT_WILL_NEED 3

// The range is not read again: its cached bytes are dropped.
#define WEIR_HINT_DONE_WITH 4

// The handle is read from end to beginning: bytes before a read are fetched ahead.
#define WEIR_HINT_REVERSE 5

// Reads are in random order, a part of a record of `len` bytes at a time: the first read of a
// record fetches all of it. Records follow each other from the beginning of the file.
#define WEIR_HINT_RECORDS 6

// Stripe units are distributed to the targets round robin.
#define WEIR_LAYOUT_STRIPED 0

// Fragments of any size, each on one target.
#define WEIR_LAYOUT_FRAGMENTS 1

// Chunks, each on a target of its own.
#define WEIR_LAYOUT_CHUNKED 2

// The target serves everything.
#define WEIR_TARGET_ONLINE 0

// The target's server is away.
#define WEIR_TARGET_OFFLINE 1

// The target's disk has failed. What can still be read is served.
#define WEIR_TARGET_OUT_OF_SERVICE 2

// The target is receiving what it has missed.
#define WEIR_TARGET_SYNCING 3

// The target is online, but was not heard of for a while.
#define WEIR_TARGET_SUSPECT 4

// Maximum depth of a queue: calls that are under way or not reaped.
#define WEIR_QUEUE_MOST 4096

// Kind of a completion: a call has ended.
#define WEIR_DONE_CALL 0

// Kind of a completion: a lease is recalled, or was lost (`result` is `-EIO`).
#define WEIR_DONE_RECALL 1

// A connection to a cluster. 0 is never valid.
typedef uint64_t weir_fs_t;

// An open directory. 0 is never valid.
typedef uint64_t weir_dir_t;

// Attributes of a file.
typedef struct {
  // The inode number.
  uint64_t ino;
  // Kind and permission bits, as `st_mode`.
  uint32_t mode;
  // Number of hard links.
  uint32_t nlink;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // Size, bytes.
  uint64_t size;
  // Last access, nanoseconds since 1970.
  int64_t atime_ns;
  // Last change of the contents.
  int64_t mtime_ns;
  // Last change of contents or attributes.
  int64_t ctime_ns;
  // Grows at each change of the file or directory.
  uint64_t change;
  // Preferred size of calls, bytes: one whole stripe if the layout is known.
  uint32_t preferred_io_bytes;
  // Device number of device files.
  uint32_t rdev;
} weir_stat_t;

// One entry of a directory.
typedef struct {
  // The name, which ends with a zero byte.
  char name[WEIR_NAME_BYTES];
  // 1: `stat` is known. 0: the file was removed meanwhile; then `stat` has only `ino` and the
  // kind.
  uint32_t has_stat;
  // Attributes. For a symbolic link: of the link itself.
  weir_stat_t stat;
} weir_dirent_t;

// An open file. 0 is never valid.
typedef uint64_t weir_file_t;

// A layout. Set all bytes to zero first: a zero means "choose for me".
typedef struct {
  // WEIR_LAYOUT_STRIPED, WEIR_LAYOUT_FRAGMENTS or WEIR_LAYOUT_CHUNKED.
  uint32_t kind;
  // Striped: the stripe unit in bytes, a multiple of 4096; 0: 64 KiB.
  uint32_t stripe_unit_bytes;
  // Number of targets; 0: all.
  uint32_t count;
  // 1: the first target is number `base` in the order of targets. 0: chosen to balance the load.
  uint32_t has_base;
  // Striped and fragments: index of the first target.
  uint32_t base;
  // Copies, at most 8; 0: 1.
  uint32_t copies;
  // How copies are written: 0 default, 1 server-sync, 2 server-async, 3 client-sync, 4
  // client-async, 5 hybrid.
  uint32_t duplication;
  // Placement of copies: 0 default, 1 chained, 2 groups, 3 random, 4 graduated.
  uint32_t placement;
  // Chunked: bytes of a chunk. Fragments: bytes of each fragment without an entry. 0: 64 MiB.
  uint64_t segment_bytes;
  // Fragments: the size of each, in order.
  uint64_t *fragment_bytes;
  // Number of entries of `fragment_bytes`.
  size_t fragments;
} weir_layout_t;

// Options of a connection. Set all bytes to zero first: a zero means the default.
typedef struct {
  // Timeout of the first connection, milliseconds; 0: 5000; at most one day.
  uint64_t connect_timeout_ms;
  // Timeout of each request, milliseconds; 0: 30000; at most one day.
  uint64_t request_timeout_ms;
  // Read-ahead of each sequential reader, bytes; 0: 4 MiB; UINT64_MAX: none.
  uint64_t read_ahead_bytes;
  // Maximum of written and unconfirmed bytes of a file; 0: 8 MiB; UINT64_MAX: none, so that each
  // write waits for its confirmation.
  uint64_t write_behind_bytes;
  // 1: act as user `uid` and group `gid`. 0: act as the user and groups of this process.
  uint32_t has_caller;
  // The user.
  uint32_t uid;
  // The group.
  uint32_t gid;
  // When changes of other clients are seen: 0 at once, 1 relaxed, 2 at once because nothing is
  // cached.
  uint32_t consistency;
} weir_options_t;

// A process of a job. 0 is never valid.
typedef uint64_t weir_job_t;

// A range of a file.
typedef struct {
  // First byte.
  uint64_t offset;
  // Length, bytes.
  uint64_t len;
} weir_range_t;

// A queue of asynchronous calls. 0 is never valid.
typedef uint64_t weir_queue_t;

// A layout lease. 0 is never valid.
typedef uint64_t weir_lease_t;

// Regions of a file: `count` elements of `size` bytes, `stride` bytes from the start of one to the
// start of the next. A `count` of 0 or 1 is one element; then `stride` is ignored.
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
  // Address of the first byte.
  void *base;
  // Length, bytes.
  size_t len;
} weir_memory_t;

// A copy of consecutive bytes of a file on one target. In a list, copies of the same bytes are
// adjacent, the first copy first.
typedef struct {
  // First byte, in the file.
  uint64_t offset;
  // Length, bytes.
  uint64_t len;
  // Bytes per second that the target serves to all readers while it is busy; 0: unknown, because
  // nobody has read there lately.
  uint64_t bytes_per_s;
  // Outstanding requests of all clients at the target.
  uint32_t in_flight;
  // Number of the copy, from 0.
  uint32_t copy;
  // Total number of copies.
  uint32_t copies;
  // The target.
  uint32_t target;
  // Its data server; 0: the target is no longer in the cluster.
  uint32_t server;
  // One of WEIR_TARGET_*.
  uint32_t state;
  // 1: the target has been much slower than others for some time.
  uint32_t slow;
  // 1: the copy is being made, and is not read yet.
  uint32_t is_filling;
  // The name of the machine; empty: unknown.
  char host[256];
  // `address:port` of the data server; empty: unknown.
  char address[64];
} weir_location_t;

// Space of a file system.
typedef struct {
  // Total space, bytes.
  uint64_t total_bytes;
  // Free space, bytes.
  uint64_t free_bytes;
  // Maximum number of files.
  uint64_t total_files;
  // Number of further files that can be created.
  uint64_t free_files;
} weir_space_t;

// The completion of an asynchronous call.
typedef struct {
  // The tag that the caller gave the call.
  uint64_t tag;
  // The result of the call: bytes, or a negative error.
  int64_t result;
  // WEIR_DONE_CALL, or WEIR_DONE_RECALL: then `tag` is the handle of a recalled lease.
  uint32_t kind;
  // The text of an error, with server and target; otherwise empty.
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

// Returns the next entry, without `.` and `..`: 1, or 0 at the end.
//
// # Safety
// `entry` is NULL or valid.
int weir_readdir(weir_dir_t dir, weir_dirent_t *entry);

// Closes a directory.
int weir_closedir(weir_dir_t dir);

// The text of the last error of this thread: what happened, to which file, server or target, and
// what to do. Valid until the next error of this thread. Never NULL.
const char *weir_errmsg(void);

// Opens a regular file. `flags`: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC,
// O_APPEND, O_NOFOLLOW. O_CLOEXEC and O_LARGEFILE are ignored; others are `-EINVAL`. `mode` is for
// new files; the umask is not applied.
//
// # Safety
// The pointers are NULL or valid.
int weir_open(weir_fs_t fs, const char *path, int flags, uint32_t mode, weir_file_t *file);

// As `weir_open` with O_CREAT; a new file gets this layout. `layout` may be NULL, for the layout
// of the directory.
//
// # Safety
// The pointers are NULL or valid.
int weir_create(weir_fs_t fs,
                const char *path,
                int flags,
                uint32_t mode,
                const weir_layout_t *layout,
                weir_file_t *file);

// Waits for all calls on the file, sends buffered writes and waits for them, and closes. The
// handle is closed in any case. An error says that data was lost, or may be (`-ETIMEDOUT`: calls
// have not ended).
int weir_close(weir_file_t file);

// Makes data and metadata durable on all copies.
int weir_fsync(weir_file_t file);

// Sends buffered writes and waits until the servers have them. Other clients then see them; they
// are not yet durable.
int weir_flush(weir_file_t file);

// Truncates or extends an open file.
int weir_ftruncate(weir_file_t file, uint64_t size);

// Attributes of an open file, including the writes of this process.
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

// Connects to a cluster. `where` is the path of a credential file or state directory if it
// contains a `/`, and otherwise the name of a cluster on this machine. NULL: the cluster that the
// program `weir` would use, by WEIR_CREDENTIAL, WEIR_DIR, WEIR_CLUSTER, the configuration file, or
// the cluster `default`. `options` may be NULL. A child of `fork` uses the same handle; its first
// call connects again.
//
// # Safety
// The pointers are NULL or valid.
int weir_connect(const char *where, const weir_options_t *options, weir_fs_t *fs);

// Ends a connection. Open files, directories and jobs keep its session until they are closed.
int weir_disconnect(weir_fs_t fs);

// The id of this process's session, which `weir status` shows. Two processes never have the same
// one.
//
// # Safety
// `session` is NULL or valid.
int weir_session(weir_fs_t fs, uint64_t *session);

// The value of a counter of this process's session (`data_requests`, `meta_requests`,
// `read_wire_bytes`, ...); `-ENODATA` if there is none of that name.
//
// # Safety
// The pointers are NULL or valid.
int weir_counter(weir_fs_t fs, const char *name, uint64_t *value);

// Gives a hint on how an open file will be read. `hint`: one of WEIR_HINT_*. `offset` and `len`
// matter for WEIR_HINT_WILL_NEED and WEIR_HINT_DONE_WITH only, `len` also for WEIR_HINT_RECORDS.
// The hint applies to this handle, in this process.
int weir_hint(weir_file_t file, uint32_t hint, uint64_t offset, uint64_t len);

// Reads at an offset until the buffer is full or the file ends; returns the bytes read.
//
// # Safety
// `buffer` is NULL or has `len` bytes that nobody else uses.
int64_t weir_pread(weir_file_t file, void *buffer, size_t len, uint64_t offset);

// Writes all of a buffer at an offset, or at the end if the file was opened with O_APPEND; returns
// the bytes written. With write-behind, an error may be returned by a later write, `weir_fsync` or
// `weir_close`.
//
// # Safety
// `data` is NULL or has `len` bytes.
int64_t weir_pwrite(weir_file_t file, const void *data, size_t len, uint64_t offset);

// Writes all of a buffer at the end of the file, atomically with other appends, and stores that
// offset. `offset` may be NULL.
//
// # Safety
// `data` is NULL or has `len` bytes; `offset` is NULL or valid.
int weir_append(weir_file_t file, const void *data, size_t len, uint64_t *offset);

// Joins a job. `name` identifies the job among those of this user. NULL: job, rank and number of
// ranks come from the environment of mpirun, srun, torchrun or `weir run`, and `rank` and `ranks`
// are ignored. `dir` is a directory of the cluster in which the processes wait for each other;
// NULL: they do not wait. The directory must not contain leftovers of a job of the same name.
//
// # Safety
// The pointers are NULL or valid.
int weir_job_begin(weir_fs_t fs,
                   const char *name,
                   const char *dir,
                   uint32_t rank,
                   uint32_t ranks,
                   weir_job_t *job);

// Begins a phase in which this process reads these ranges of a file; with a `count` of 0, all of
// it. The servers try to make all processes of the job finish at about the same time.
//
// # Safety
// `ranges` is NULL or has `count` elements.
int weir_phase_begin(weir_job_t job, weir_file_t file, const weir_range_t *ranges, size_t count);

// Ends a phase: waits until all processes of the job have ended it. Returns `-ETIMEDOUT` after
// `timeout_ms`; the error text names the missing ranks, and the next call continues the same wait.
int weir_phase_end(weir_job_t job, uint64_t timeout_ms);

// Waits until all processes of a job have made this call equally often. See `weir_phase_end`.
int weir_job_barrier(weir_job_t job, uint64_t timeout_ms);

// Leaves the job. Rank 0 waits until all have left, and removes their names from the directory.
int weir_job_end(weir_job_t job, uint64_t timeout_ms);

// Sets the layout of new files of a directory, changes the layout of an empty file, or sets the
// number of copies of a file with data. NULL: the layout of the parent directory.
//
// # Safety
// The pointers are NULL or valid.
int weir_layout_set(weir_fs_t fs, const char *path, const weir_layout_t *layout);

// The layout of a file, or of new files of a directory. If `layout->fragment_bytes` is not NULL,
// up to `layout->fragments` sizes of fragments are stored there; `layout->fragments` becomes the
// actual number.
//
// # Safety
// The pointers are NULL or valid, the list of fragments too.
int weir_layout_get(weir_fs_t fs, const char *path, weir_layout_t *layout);

// Takes a layout lease on an open file: the result of `weir_locations` stays valid while the lease
// is held. When somebody wants to change or move the file, `queue` gets a completion of kind
// WEIR_DONE_RECALL whose `tag` is the lease. The program then has three seconds to finish its work
// and call `weir_lease_return`. Reads by this process wait meanwhile.
//
// # Safety
// `lease` is NULL or valid.
int weir_layout_lease(weir_file_t file, weir_queue_t queue, weir_lease_t *lease);

// Returns a layout lease. `-ESTALE` if it was lost before.
int weir_lease_return(weir_lease_t lease);

// Returns 0 while a layout lease is held, and `-ESTALE` afterwards.
int weir_lease_check(weir_lease_t lease);

// Reads regions of a file into parts of memory: the bytes of the regions, in order, fill the parts
// of memory, in order. Both lists must have the same number of bytes (`-EINVAL`). Each 4 MiB (or
// 256 regions) are one request to each server that holds any of them. Returns the number of bytes
// before the end of the file; the others are zeros.
//
// # Safety
// The lists are NULL or have that many elements. The parts of memory are valid, and nobody else
// uses them.
int64_t weir_read_list(weir_file_t file,
                       const weir_region_t *regions,
                       size_t region_count,
                       const weir_memory_t *memory,
                       size_t memory_count);

// Writes regions of a file from parts of memory: see `weir_read_list`. The regions must ascend
// without overlap (`-EINVAL`). Returns the bytes written, after the servers have confirmed them.
//
// # Safety
// The lists are NULL or have that many elements. The parts of memory are valid.
int64_t weir_write_list(weir_file_t file,
                        const weir_region_t *regions,
                        size_t region_count,
                        const weir_memory_t *memory,
                        size_t memory_count);

// As `weir_read_list`, but returns at once. The memory belongs to the call until its completion is
// reaped; the lists do not. `-EAGAIN`: the queue is full.
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

// As `weir_write_list`, but returns at once: see `weir_submit_read_list`.
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

// Lists the locations of a range of a file, in order, and returns the number of entries. Bytes
// beyond the end of the file have no location. If the list is full, continue with another call at
// the end of the last entry. The list has all copies of a range or none.
//
// # Safety
// `path` is NULL or a text; `locations` is NULL or has room for `capacity` entries.
int64_t weir_locations(weir_fs_t fs,
                       const char *path,
                       uint64_t offset,
                       uint64_t len,
                       weir_location_t *locations,
                       size_t capacity);

// Attributes of the file at a path. Symbolic links are followed.
//
// # Safety
// The pointers are NULL or valid.
int weir_stat(weir_fs_t fs, const char *path, weir_stat_t *stat);

// As `weir_stat`, without following a link at the end of the path.
//
// # Safety
// The pointers are NULL or valid.
int weir_lstat(weir_fs_t fs, const char *path, weir_stat_t *stat);

// Truncates or extends a file.
//
// # Safety
// `path` is NULL or a text.
int weir_truncate(weir_fs_t fs, const char *path, uint64_t size);

// Makes a directory. The umask is not applied to `mode`.
//
// # Safety
// `path` is NULL or a text.
int weir_mkdir(weir_fs_t fs, const char *path, uint32_t mode);

// Removes an empty directory.
//
// # Safety
// `path` is NULL or a text.
int weir_rmdir(weir_fs_t fs, const char *path);

// Removes a name of anything but a directory.
//
// # Safety
// `path` is NULL or a text.
int weir_unlink(weir_fs_t fs, const char *path);

// Renames a file or directory, replacing an existing one. `flags`: 0, RENAME_NOREPLACE or
// RENAME_EXCHANGE.
//
// # Safety
// The paths are NULL or texts.
int weir_rename(weir_fs_t fs, const char *from, const char *to, uint32_t flags);

// Makes a hard link.
//
// # Safety
// The paths are NULL or texts.
int weir_link(weir_fs_t fs, const char *path, const char *name);

// Makes a symbolic link.
//
// # Safety
// Both are NULL or texts.
int weir_symlink(weir_fs_t fs, const char *target, const char *path);

// Stores the target of a symbolic link, without a final zero byte, and returns its length.
// `-ERANGE` if it does not fit.
//
// # Safety
// The pointers are NULL or valid.
int64_t weir_readlink(weir_fs_t fs, const char *path, char *buffer, size_t len);

// Sets permission bits.
//
// # Safety
// `path` is NULL or a text.
int weir_chmod(weir_fs_t fs, const char *path, uint32_t mode);

// Sets owner and group. UINT32_MAX leaves one of them unchanged.
//
// # Safety
// `path` is NULL or a text.
int weir_chown(weir_fs_t fs, const char *path, uint32_t uid, uint32_t gid);

// Sets the times of access and modification, nanoseconds since 1970.
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

// Makes a queue for at most `depth` calls at a time (1 to WEIR_QUEUE_MOST). A child of `fork` has
// to make its own.
//
// # Safety
// `queue` is NULL or valid.
int weir_queue_open(uint32_t depth, weir_queue_t *queue);

// A descriptor that is readable while there are completions. Use it with `poll` only; neither read
// nor close it.
int weir_queue_fd(weir_queue_t queue);

// Waits for all calls of a queue, and closes it. Completions that were not reaped are dropped.
int weir_queue_close(weir_queue_t queue);

// As `weir_pread`, but returns at once. The buffer belongs to the call until its completion is
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

// As `weir_pwrite`, but returns at once. See `weir_submit_pread`.
//
// # Safety
// `data` is NULL or has `len` bytes that stay unchanged until the call has ended.
int weir_submit_pwrite(weir_queue_t queue,
                       weir_file_t file,
                       const void *data,
                       size_t len,
                       uint64_t offset,
                       uint64_t tag);

// As `weir_fsync`, but returns at once. Covers writes that ended before it was submitted, not
// those that are still queued.
int weir_submit_fsync(weir_queue_t queue, weir_file_t file, uint64_t tag);

// Takes at most `capacity` completions and returns their number. Waits until there is at least
// one, for at most `timeout_ms`: 0 does not wait, a negative value waits without limit.
//
// # Safety
// `completions` is NULL or has room for `capacity` entries.
int weir_reap(weir_queue_t queue, weir_completion_t *completions, size_t capacity, int timeout_ms);

// Stores the value of an attribute and returns its length. With a `len` of 0, only returns the
// length. `-ERANGE` if it does not fit, `-ENODATA` if there is no such attribute.
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

// Stores the names of all attributes, each followed by a zero byte, and returns their total
// length. With a `len` of 0, only returns the length.
//
// # Safety
// The pointers are NULL or valid.
int64_t weir_listxattr(weir_fs_t fs, const char *path, char *names, size_t len);

// Removes an attribute.
//
// # Safety
// The pointers are NULL or valid.
int weir_removexattr(weir_fs_t fs, const char *path, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WEIR_H */
