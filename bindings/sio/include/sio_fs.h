/* The SIO low-level interface (Corbett et al., CMU-CS-96-193) over Weir and over plain files.
 *
 * The report gives names and meanings; every number here, and what is marked "Weir's", is the
 * reading that docs/sio.md of Weir explains. Link with -lsio.
 *
 * All calls may be made from many threads. None keeps a pointer after it returns, but the memory of
 * an asynchronous or collective operation, which is lent until its handle has been completed by
 * sio_async_status_any. A child of fork() cannot use what its parent has attached: it attaches
 * after execve() only. */
#ifndef SIO_FS_H
#define SIO_FS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t sio_return_t;
typedef uint32_t sio_mode_t;
typedef uint64_t sio_offset_t;
typedef uint64_t sio_size_t;
typedef uint32_t sio_count_t;
typedef uint64_t sio_transfer_len_t;
typedef uint32_t sio_control_op_t;
typedef uint32_t sio_control_flags_t;
typedef uint32_t sio_caching_mode_t;
typedef uint32_t sio_hint_class_t;
typedef uint32_t sio_hint_flags_t;
typedef uint32_t sio_layout_flags_t;
typedef uint32_t sio_layout_algorithm_t;
typedef uint32_t sio_async_flags_t;
typedef uint32_t sio_extension_id_t;
typedef void *sio_async_handle_t;

/* element_cnt elements of size bytes, stride bytes from the start of one to the start of the next.
 * Entries without bytes mean nothing. */
typedef struct {
    sio_offset_t offset;
    sio_size_t size, stride;
    sio_count_t element_cnt;
} sio_file_io_list_t;

typedef struct {
    void *addr;
    sio_size_t size, stride;
    sio_count_t element_cnt;
} sio_mem_io_list_t;

typedef struct {
    sio_transfer_len_t count;
    sio_return_t status;
} sio_async_status_t;

typedef struct {
    sio_control_flags_t flags;
    sio_control_op_t op_code;
    void *op_data;
    sio_return_t result;
} sio_control_t;

/* list_len 0: the whole file. arg: of SIO_HINT_RECORDS a sio_size_t, the bytes of a record. */
typedef struct {
    sio_hint_flags_t flags;
    sio_file_io_list_t *io_list;
    sio_count_t list_len;
    void *arg;
    sio_size_t arg_len;
} sio_hint_t;

/* Before SIO_CTL_GetLabel size says how much room data has, afterwards how long the label is. */
typedef struct {
    sio_size_t size;
    void *data;
} sio_label_t;

/* flags say which of the others count. */
typedef struct {
    sio_layout_flags_t flags;
    sio_count_t stripe_width;
    sio_size_t stripe_depth;
    sio_layout_algorithm_t algorithm;
    void *algorithm_data;
} sio_layout_t;

/* Weir's: data of SIO_CTL_Propagate and SIO_CTL_Refresh; NULL instead: the whole file. */
typedef struct {
    const sio_file_io_list_t *list;
    sio_count_t list_len;
} sio_file_ranges_t;

/* Weir's: data of SIO_CTL_FastCopy on the descriptor to copy to; copied is set. */
typedef struct {
    int source;
    sio_offset_t source_offset, offset;
    sio_size_t size;
    sio_transfer_len_t copied;
} sio_fast_copy_t;

/* Weir's: a collective that was defined. */
typedef void *sio_coll_handle_t;

/* Modes */
#define SIO_MODE_READ 1
#define SIO_MODE_WRITE 2
#define SIO_MODE_CREATE 4

/* Controls, with the type that op_data points to */
#define SIO_CONTROL_MANDATORY 1

#define SIO_CTL_GetSize 1            /* sio_offset_t */
#define SIO_CTL_SetSize 2            /* sio_offset_t */
#define SIO_CTL_GetAllocation 3      /* sio_size_t */
#define SIO_CTL_GetPreallocation 4   /* sio_size_t */
#define SIO_CTL_SetPreallocation 5   /* sio_size_t */
#define SIO_CTL_GetCachingMode 6     /* sio_caching_mode_t */
#define SIO_CTL_SetCachingMode 7     /* sio_caching_mode_t */
#define SIO_CTL_Propagate 8          /* sio_file_ranges_t, or NULL */
#define SIO_CTL_Refresh 9            /* sio_file_ranges_t, or NULL */
#define SIO_CTL_Sync 10              /* nothing: NULL */
#define SIO_CTL_GetLayout 11         /* sio_layout_t */
#define SIO_CTL_SetLayout 12         /* sio_layout_t */
#define SIO_CTL_GetLabel 13          /* sio_label_t */
#define SIO_CTL_SetLabel 14          /* sio_label_t */
#define SIO_CTL_GetConsistencyUnit 15 /* sio_size_t */
#define SIO_CTL_FastCopy 16          /* sio_fast_copy_t; extension SIO_EXT_FAST_COPY */

#define SIO_CACHING_NONE 1
#define SIO_CACHING_STRONG 2
#define SIO_CACHING_WEAK 3

#define SIO_LAYOUT_WIDTH 1
#define SIO_LAYOUT_DEPTH 2
#define SIO_LAYOUT_ALGORITHM 4
#define SIO_LAYOUT_ALGORITHM_SIMPLE_STRIPING 1

/* Hints */
#define SIO_HINT_CLASS_ORDERED 1
#define SIO_HINT_CLASS_UNORDERED 2

#define SIO_HINT_READ 1
#define SIO_HINT_WRITE 2
#define SIO_HINT_CANCEL_ALL 4
#define SIO_HINT_CANCEL_NEXT 8
#define SIO_HINT_SEQUENTIAL 16
#define SIO_HINT_REVERSE 32
#define SIO_HINT_RANDOM_PARTIAL 64
#define SIO_HINT_RANDOM_COMPLETE 128
#define SIO_HINT_NO_FURTHER_USE 256
#define SIO_HINT_WILL_USE 512
/* Weir's: in small pieces, each byte once */
#define SIO_HINT_READ_ONCE 1024
/* Weir's: in no order, a part of a record at a time; arg points to the bytes of a record */
#define SIO_HINT_RECORDS 2048

/* Asynchronous operations */
#define SIO_ASYNC_BLOCKING 1
#define SIO_ASYNC_NONBLOCKING 2
#define SIO_ASYNC_DUMMY_HANDLE ((sio_async_handle_t)0)

/* Weir's: directions of a collective */
#define SIO_COLL_READ 1
#define SIO_COLL_WRITE 2

/* Extensions */
#define SIO_EXT_FAST_COPY 1
#define SIO_EXT_COLLECTIVE 2

/* Limits */
#define SIO_MAX_ASYNC_OUTSTANDING 256
#define SIO_MAX_COUNT 65536
#define SIO_MAX_LABEL_LEN 1024
#define SIO_MAX_NAME_LEN 1023
#define SIO_MAX_OFFSET 4611686018427387904
#define SIO_MAX_OPEN 256
#define SIO_MAX_SIZE 4611686018427387904
#define SIO_MAX_TRANSFER_LEN 1073741824

/* What calls return */
#define SIO_SUCCESS 0
#define SIO_ERR_ALREADY_EXISTS 1
#define SIO_ERR_CONTROL_FAILED 2
#define SIO_ERR_CONTROL_NOT_ATTEMPTED 3
#define SIO_ERR_CONTROL_NOT_ON_TEST 4
#define SIO_ERR_CONTROL_WOULD_HAVE_SUCCEEDED 5
#define SIO_ERR_CONTROLS_CLASH 6
#define SIO_ERR_FILE_NOT_FOUND 7
#define SIO_ERR_FILE_OPEN 8
#define SIO_ERR_INCORRECT_MODE 9
#define SIO_ERR_INVALID_CLASS 10
#define SIO_ERR_INVALID_DESCRIPTOR 11
#define SIO_ERR_INVALID_EXTENSION 12
#define SIO_ERR_INVALID_FILE_LIST 13
#define SIO_ERR_INVALID_FILENAME 14
#define SIO_ERR_INVALID_HANDLE 15
#define SIO_ERR_INVALID_MEMORY_LIST 16
#define SIO_ERR_INVALID_PARTICIPANT 17
#define SIO_ERR_IO_CANCELED 18
#define SIO_ERR_IO_FAILED 19
#define SIO_ERR_IO_IN_PROGRESS 20
#define SIO_ERR_MAX_ASYNC_OUTSTANDING_EXCEEDED 21
#define SIO_ERR_MAX_OPEN_EXCEEDED 22
#define SIO_ERR_MIXED_COLL_AND_ASYNC 23
#define SIO_ERR_NO_SPACE 24
#define SIO_ERR_ONLY_AT_CREATE 25
#define SIO_ERR_ONLY_AT_OPEN 26
#define SIO_ERR_OP_UNSUPPORTED 27
#define SIO_ERR_UNEQUAL_LISTS 28
#define SIO_ERR_INVALID_ARGUMENT 101 /* Weir's */
#define SIO_ERR_NOT_ATTACHED 102     /* Weir's */

/* Weir's: chooses the file system of this process. "plain:DIRECTORY" is a directory of plain files,
 * "weir:NAME" a cluster by its name, "weir:/PATH" a cluster by a credential file. Without this call
 * the environment variable SIO_FILES says it at the first use. */
sio_return_t sio_attach(const char *files);
/* Weir's: ends that. Nothing may be open. */
sio_return_t sio_detach(void);
/* Weir's: why the last call of this thread that failed has failed; never NULL. It holds until the
 * next call of this thread. */
const char *sio_last_error(void);

sio_return_t sio_open(int *fd, const char *name, sio_mode_t mode, sio_control_t *ops,
                      sio_count_t nops);
sio_return_t sio_close(int fd);
sio_return_t sio_unlink(const char *name);
sio_return_t sio_rename(const char *old_name, const char *new_name);
sio_return_t sio_test(const char *name, sio_mode_t mode, sio_control_t *ops, sio_count_t nops);
sio_return_t sio_control(int fd, sio_control_t *ops, sio_count_t nops);

sio_return_t sio_sg_read(int fd, const sio_file_io_list_t *file_list, sio_count_t file_list_len,
                         const sio_mem_io_list_t *mem_list, sio_count_t mem_list_len,
                         sio_transfer_len_t *total);
sio_return_t sio_sg_write(int fd, const sio_file_io_list_t *file_list, sio_count_t file_list_len,
                          const sio_mem_io_list_t *mem_list, sio_count_t mem_list_len,
                          sio_transfer_len_t *total);

sio_return_t sio_async_sg_read(int fd, const sio_file_io_list_t *file_list,
                               sio_count_t file_list_len, const sio_mem_io_list_t *mem_list,
                               sio_count_t mem_list_len, sio_async_handle_t *handle);
sio_return_t sio_async_sg_write(int fd, const sio_file_io_list_t *file_list,
                                sio_count_t file_list_len, const sio_mem_io_list_t *mem_list,
                                sio_count_t mem_list_len, sio_async_handle_t *handle);
sio_return_t sio_async_status_any(sio_async_handle_t *handles, sio_count_t handles_len,
                                  sio_count_t *index, sio_async_status_t *status,
                                  sio_async_flags_t flags);
sio_return_t sio_async_cancel_all(sio_async_handle_t *handles, sio_count_t handles_len);

sio_return_t sio_hint(int fd, sio_hint_class_t hint_class, const sio_hint_t *hints,
                      sio_count_t hints_len);
sio_return_t sio_hint_by_name(const char *name, sio_hint_class_t hint_class,
                              const sio_hint_t *hints, sio_count_t hints_len);

const char *sio_error_string(sio_return_t code);
sio_return_t sio_query_extension(sio_extension_id_t id);

/* Extension SIO_EXT_COLLECTIVE; the names are Weir's. */
sio_return_t sio_coll_define(int fd, uint32_t direction, sio_count_t participants,
                             sio_coll_handle_t *collective);
sio_return_t sio_coll_join(sio_coll_handle_t collective, sio_count_t participant,
                           const sio_file_io_list_t *file_list, sio_count_t file_list_len,
                           const sio_mem_io_list_t *mem_list, sio_count_t mem_list_len,
                           sio_async_handle_t *handle);
sio_return_t sio_coll_free(sio_coll_handle_t collective);

#ifdef __cplusplus
}
#endif

#endif
