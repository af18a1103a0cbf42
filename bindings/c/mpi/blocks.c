/* In the manner of IOR: all ranks write one file in blocks that take turns, read it back as another
 * rank wrote it, and compare every byte.
 *
 *   blocks FILE BYTES ROUNDS each|together [HINT=VALUE...]
 *
 * Round r of rank k is block r * ranks + k. `together`: collective calls, so that MPI-IO may buffer
 * for all. Prints one line of JSON. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void stop(const char *what) {
  fprintf(stderr, "blocks: rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void check(int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING];
  int length;
  if (code == MPI_SUCCESS)
    return;
  MPI_Error_string(code, text, &length);
  fprintf(stderr, "blocks: rank %d: %s: %s\n", rank, what, text);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void fill(unsigned char *bytes, long length, long block) {
  for (long i = 0; i < length; i++)
    bytes[i] = (unsigned char)((block * 131 + i) * 2654435761u >> 11);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 5)
    stop("usage: blocks FILE BYTES ROUNDS each|together [HINT=VALUE...]");
  long length = atol(argv[2]), rounds = atol(argv[3]);
  int together = !strcmp(argv[4], "together");
  if (length < 1 || length > 1 << 26 || rounds < 1)
    stop("BYTES: 1 to 64 MiB; ROUNDS: 1 or more");
  MPI_Info hints;
  MPI_Info_create(&hints);
  for (int i = 5; i < argc; i++) {
    char *value = strchr(argv[i], '=');
    if (!value)
      stop("a hint is HINT=VALUE");
    *value = 0;
    MPI_Info_set(hints, argv[i], value + 1);
  }
  unsigned char *bytes = malloc(length), *should = malloc(length);
  MPI_File file;
  MPI_Status status;
  int mode = MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, count;
  check(MPI_File_open(MPI_COMM_WORLD, argv[1], mode, hints, &file), argv[1]);
  MPI_Barrier(MPI_COMM_WORLD);
  double begun = MPI_Wtime();
  for (long round = 0; round < rounds; round++) {
    long block = round * ranks + rank;
    MPI_Offset at = (MPI_Offset)block * length;
    fill(bytes, length, block);
    check(together ? MPI_File_write_at_all(file, at, bytes, (int)length, MPI_BYTE, &status)
                   : MPI_File_write_at(file, at, bytes, (int)length, MPI_BYTE, &status),
          "write");
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != length)
      stop("not all of it was written");
  }
  check(MPI_File_sync(file), "sync");
  MPI_Barrier(MPI_COMM_WORLD);
  double written = MPI_Wtime();
  for (long round = 0; round < rounds; round++) {
    /* What the next rank wrote: nothing comes from this rank's cache. */
    long block = round * ranks + (rank + 1) % ranks;
    MPI_Offset at = (MPI_Offset)block * length;
    check(together ? MPI_File_read_at_all(file, at, bytes, (int)length, MPI_BYTE, &status)
                   : MPI_File_read_at(file, at, bytes, (int)length, MPI_BYTE, &status),
          "read");
    MPI_Get_count(&status, MPI_BYTE, &count);
    fill(should, length, block);
    if (count != length || memcmp(bytes, should, length))
      stop("what was read is not what was written");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  double read = MPI_Wtime();
  check(MPI_File_close(&file), "close");
  if (rank == 0) {
    double mib = (double)length * rounds * ranks / (1 << 20);
    printf("{\"ranks\": %d, \"mib\": %.1f, \"write_mib_s\": %.1f, \"read_mib_s\": %.1f}\n", ranks,
           mib, mib / (written - begun), mib / (read - written));
  }
  MPI_Info_free(&hints);
  free(bytes), free(should);
  MPI_Finalize();
  return 0;
}
