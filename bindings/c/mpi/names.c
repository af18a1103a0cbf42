/* In the manner of mdtest: each rank makes files in a directory of all, looks at those of the next
 * rank, and removes those of the one after it. Everything is checked.
 *
 *   names DIRECTORY FILES
 *
 * Prints one line of JSON: operations per second of all ranks together. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int rank, ranks;

static void stop(const char *what, const char *name) {
  fprintf(stderr, "names: rank %d: %s %s: %s\n", rank, what, name, strerror(errno));
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static long in_directory(const char *path) {
  DIR *dir = opendir(path);
  if (!dir)
    stop("open", path);
  long names = 0;
  for (struct dirent *entry; (entry = readdir(dir));)
    names += entry->d_name[0] != '.';
  closedir(dir);
  return names;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  long files = argc == 3 ? atol(argv[2]) : 0;
  if (files < 1)
    stop("usage:", "names DIRECTORY FILES");
  char name[4096];
  double times[4];
  times[0] = MPI_Wtime();
  for (int phase = 0; phase < 3; phase++) {
    MPI_Barrier(MPI_COMM_WORLD);
    int of = (rank + phase) % ranks;
    for (long n = 0; n < files; n++) {
      snprintf(name, sizeof name, "%s/f.%d.%ld", argv[1], of, n);
      struct stat is;
      int fd;
      if (phase == 0) {
        if ((fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644)) < 0)
          stop("make", name);
        /* As many bytes as its number says. */
        if (ftruncate(fd, n) || close(fd))
          stop("write", name);
      } else if (phase == 1) {
        errno = 0;
        if (stat(name, &is) || is.st_size != n)
          stop("look at", name);
      } else if (unlink(name)) {
        stop("remove", name);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    times[phase + 1] = MPI_Wtime();
    errno = 0;
    if (in_directory(argv[1]) != (phase < 2 ? files * ranks : 0))
      stop("list", argv[1]);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) {
    double all = (double)files * ranks;
    printf("{\"ranks\": %d, \"files\": %.0f, \"make_per_s\": %.0f, \"stat_per_s\": %.0f, "
           "\"remove_per_s\": %.0f}\n",
           ranks, all, all / (times[1] - times[0]), all / (times[2] - times[1]),
           all / (times[3] - times[2]));
  }
  MPI_Finalize();
  return 0;
}
