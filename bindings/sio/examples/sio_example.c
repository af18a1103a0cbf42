/* A program of the SIO interface: writes, reads and copies a file by every kind of call.
 *
 *     cc -I include sio_example.c -lsio -o sio_example
 *     ./sio_example plain:/tmp            (or weir:CLUSTER, or weir:/path/to/client.toml)
 */
#include "sio_fs.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RECORD = 838, RECORDS = 500, GAP = 2000, SIZE = RECORD * RECORDS };

/* What the library was compiled with, on machines of 64 bits. */
_Static_assert(sizeof(void *) != 8 || sizeof(sio_file_io_list_t) == 32, "sio_file_io_list_t");
_Static_assert(sizeof(void *) != 8 || sizeof(sio_mem_io_list_t) == 32, "sio_mem_io_list_t");
_Static_assert(sizeof(void *) != 8 || sizeof(sio_async_status_t) == 16, "sio_async_status_t");
_Static_assert(sizeof(void *) != 8 || sizeof(sio_control_t) == 24, "sio_control_t");
_Static_assert(sizeof(void *) != 8 || sizeof(sio_hint_t) == 40, "sio_hint_t");
_Static_assert(sizeof(void *) != 8 || sizeof(sio_label_t) == 16, "sio_label_t");
_Static_assert(sizeof(void *) != 8 || sizeof(sio_layout_t) == 32, "sio_layout_t");
_Static_assert(sizeof(void *) != 8 || sizeof(sio_file_ranges_t) == 16, "sio_file_ranges_t");
_Static_assert(sizeof(void *) != 8 || sizeof(sio_fast_copy_t) == 40, "sio_fast_copy_t");

static void expect(sio_return_t want, sio_return_t got, const char *what)
{
    if (want != got) {
        fprintf(stderr, "%s: %s, not %s (%s)\n", what, sio_error_string(got),
                sio_error_string(want), sio_last_error());
        exit(1);
    }
}

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s: not so\n", what);
        exit(1);
    }
}

#define DO(call) expect(SIO_SUCCESS, call, #call)
#define FAILS(code, call) expect(code, call, #call)

/* The strided records of one of two writers. */
static sio_file_io_list_t records(int who)
{
    sio_file_io_list_t list = { (sio_offset_t)who * RECORD, RECORD, GAP, RECORDS };
    return list;
}

static int create(const char *name)
{
    char text[] = "records of 838 bytes";
    sio_label_t label = { sizeof text, text };
    sio_layout_t layout = { SIO_LAYOUT_DEPTH, 0, 65536, 0, NULL };
    sio_caching_mode_t mode = SIO_CACHING_WEAK;
    sio_control_t ops[] = {
        { SIO_CONTROL_MANDATORY, SIO_CTL_SetLabel, &label, 0 },
        { SIO_CONTROL_MANDATORY, SIO_CTL_SetCachingMode, &mode, 0 },
        { 0, SIO_CTL_SetLayout, &layout, 0 },
    };
    int fd = -1;
    DO(sio_open(&fd, name, SIO_MODE_READ | SIO_MODE_WRITE | SIO_MODE_CREATE, ops, 3));
    check(ops[2].result == SIO_SUCCESS || ops[2].result == SIO_ERR_OP_UNSUPPORTED, "layout");
    FAILS(SIO_ERR_ALREADY_EXISTS, sio_open(&fd, name, SIO_MODE_WRITE | SIO_MODE_CREATE, NULL, 0));
    return fd;
}

static void write_and_read(int fd, char *data, char *back)
{
    sio_file_io_list_t list = records(0);
    sio_mem_io_list_t from = { data, SIZE, 0, 1 }, to = { back, RECORD, RECORD, RECORDS };
    sio_transfer_len_t total = 0;
    DO(sio_sg_write(fd, &list, 1, &from, 1, &total));
    check(total == SIZE, "all is written");
    DO(sio_sg_read(fd, &list, 1, &to, 1, &total));
    check(total == SIZE && memcmp(data, back, SIZE) == 0, "what was written is read");
    FAILS(SIO_ERR_UNEQUAL_LISTS, sio_sg_read(fd, &list, 1, &to, 0, &total));
}

static void asynchronously(int fd, char *data, char *back)
{
    enum { PARTS = 10, PART = RECORDS / PARTS };
    sio_async_handle_t handles[PARTS];
    sio_async_status_t status;
    sio_count_t at, left;
    sio_control_t ops[] = { { SIO_CONTROL_MANDATORY, SIO_CTL_Propagate, NULL, 0 },
                            { SIO_CONTROL_MANDATORY, SIO_CTL_Refresh, NULL, 0 } };
    DO(sio_control(fd, ops, 2));
    memset(back, 0, SIZE);
    for (int i = 0; i < PARTS; i++) {
        sio_file_io_list_t list = { (sio_offset_t)i * PART * GAP, RECORD, GAP, PART };
        sio_mem_io_list_t to = { back + i * PART * RECORD, PART * RECORD, 0, 1 };
        DO(sio_async_sg_read(fd, &list, 1, &to, 1, &handles[i]));
    }
    for (left = PARTS; left > 0; left--) {
        DO(sio_async_status_any(handles, PARTS, &at, &status, SIO_ASYNC_BLOCKING));
        check(status.status == SIO_SUCCESS && status.count == PART * RECORD, "a part is read");
        handles[at] = SIO_ASYNC_DUMMY_HANDLE;
    }
    check(memcmp(data, back, SIZE) == 0, "all parts are read");
    FAILS(SIO_ERR_INVALID_HANDLE, sio_async_cancel_all(handles, PARTS));
}

static void together(int fd, char *data, char *back)
{
    sio_coll_handle_t all;
    sio_async_handle_t handles[2];
    sio_async_status_t status;
    sio_count_t at;
    DO(sio_query_extension(SIO_EXT_COLLECTIVE));
    DO(sio_coll_define(fd, SIO_COLL_WRITE, 2, &all));
    for (int who = 0; who < 2; who++) {
        sio_file_io_list_t list = records(who);
        sio_mem_io_list_t from = { data, SIZE, 0, 1 };
        DO(sio_coll_join(all, who, &list, 1, &from, 1, &handles[who]));
    }
    for (int i = 0; i < 2; i++) {
        DO(sio_async_status_any(handles, 2, &at, &status, SIO_ASYNC_BLOCKING));
        check(status.status == SIO_SUCCESS && status.count == SIZE, "a participant wrote");
        handles[at] = SIO_ASYNC_DUMMY_HANDLE;
    }
    DO(sio_coll_free(all));
    sio_file_io_list_t list = records(1);
    sio_mem_io_list_t to = { back, SIZE, 0, 1 };
    sio_transfer_len_t total;
    memset(back, 0, SIZE);
    DO(sio_sg_read(fd, &list, 1, &to, 1, &total));
    check(total == SIZE && memcmp(data, back, SIZE) == 0, "both have written");
}

static void copy(int fd, const char *name)
{
    sio_offset_t size = 0, copied_size = 0;
    sio_control_t ask[] = { { SIO_CONTROL_MANDATORY, SIO_CTL_GetSize, &size, 0 } };
    sio_fast_copy_t whole = { fd, 0, 0, 1 << 30, 0 };
    sio_control_t ops[] = { { SIO_CONTROL_MANDATORY, SIO_CTL_FastCopy, &whole, 0 },
                            { SIO_CONTROL_MANDATORY, SIO_CTL_GetSize, &copied_size, 0 } };
    int to = -1;
    DO(sio_control(fd, ask, 1));
    DO(sio_open(&to, name, SIO_MODE_WRITE | SIO_MODE_CREATE, ops, 2));
    check(whole.copied == size && copied_size == size, "all is copied");
    FAILS(SIO_ERR_FILE_OPEN, sio_unlink(name));
    DO(sio_close(to));
}

static void hint(int fd)
{
    sio_file_io_list_t list = records(0);
    sio_hint_t hints[] = { { SIO_HINT_READ | SIO_HINT_SEQUENTIAL, NULL, 0, NULL, 0 },
                           { SIO_HINT_READ | SIO_HINT_WILL_USE, &list, 1, NULL, 0 } };
    DO(sio_hint(fd, SIO_HINT_CLASS_ORDERED, hints, 2));
    FAILS(SIO_ERR_INVALID_CLASS, sio_hint(fd, 0, hints, 2));
    DO(sio_hint_by_name("example.sio", SIO_HINT_CLASS_UNORDERED, hints, 1));
}

/* A child must not use what its parent has. */
static void fork_one(int fd)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int refused = sio_close(fd) == SIO_ERR_NOT_ATTACHED &&
                      sio_attach("plain:/") == SIO_ERR_NOT_ATTACHED;
        _exit(refused ? 0 : 1);
    }
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child");
}

int main(int argc, char **argv)
{
    char *data = malloc(SIZE), *back = malloc(SIZE);
    if (argc != 2 || !data || !back) {
        fprintf(stderr, "usage: sio_example plain:DIRECTORY or weir:CLUSTER\n");
        return 2;
    }
    for (int i = 0; i < SIZE; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    DO(sio_attach(argv[1]));
    int fd = create("example.sio");
    write_and_read(fd, data, back);
    asynchronously(fd, data, back);
    together(fd, data, back);
    hint(fd);
    copy(fd, "copy.sio");
    fork_one(fd);
    FAILS(SIO_ERR_FILE_OPEN, sio_detach());
    DO(sio_close(fd));
    DO(sio_rename("copy.sio", "renamed.sio"));
    DO(sio_test("renamed.sio", SIO_MODE_READ, NULL, 0));
    DO(sio_unlink("example.sio"));
    DO(sio_unlink("renamed.sio"));
    DO(sio_detach());
    free(data);
    free(back);
    printf("all is well\n");
    return 0;
}
