/* libweir_mpi.so: the hints `striping_unit` and `striping_factor` of MPI_File_open decide how a new
 * file on a mount of Weir is laid out, whatever library for MPI-IO does the rest. It is between the
 * program and its MPI (PMPI): build it with the mpicc of that MPI, and link it or preload it.
 *
 *   mpicc -shared -fPIC -O2 -o libweir_mpi.so weir_mpi.c
 *   mpirun -x LD_PRELOAD=$PWD/libweir_mpi.so ./program       (Open MPI; MPICH: -genv LD_PRELOAD ...)
 *
 * Rank 0 makes the file, gives it the layout while it is empty (attribute `user.weir.layout`), and
 * the others are told whether it exists now. Hints never make an open fail: on other file systems,
 * and if a layout is refused, the file is opened as without them. WEIR_MPI_VERBOSE=1 says why. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ATTRIBUTE "user.weir.layout"

/* The value of a hint, a number from 1 on; 0: there is none. */
static unsigned long number(MPI_Info info, const char *key) {
  char text[64], *end;
  int found = 0;
  if (info == MPI_INFO_NULL ||
      PMPI_Info_get(info, (char *)key, (int)sizeof text - 1, text, &found) != MPI_SUCCESS ||
      !found)
    return 0;
  errno = 0;
  unsigned long value = strtoul(text, &end, 10);
  return errno || end == text || *end || text[0] == '-' ? 0 : value;
}

/* ROMIO and others take the kind of the file system in front of the name, as in "ufs:/mnt/a". Which
 * file another name with a colon means depends on the library: NULL. */
static const char *path_of(const char *name) {
  if (!strncmp(name, "ufs:", 4) || !strncmp(name, "nfs:", 4))
    name += 4;
  return strchr(name, ':') ? NULL : name;
}

static void tell(const char *path, const char *what) {
  const char *asked = getenv("WEIR_MPI_VERBOSE");
  if (asked && *asked && strcmp(asked, "0"))
    fprintf(stderr, "weir_mpi: %s: %s: %s\n", path, what, strerror(errno));
}

/* Makes and lays out a file. Whether it was made here, and did not exist before. */
static int lay_out(const char *path, int amode, const char *layout) {
  int mode = amode & MPI_MODE_RDONLY ? O_RDONLY : amode & MPI_MODE_WRONLY ? O_WRONLY : O_RDWR;
  int made = 1, fd = open(path, mode | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST && !(amode & MPI_MODE_EXCL)) {
    made = 0;
    fd = open(path, mode | O_CLOEXEC);
  }
  if (fd < 0) {
    tell(path, "open");
    return 0;
  }
  char before[128];
  struct stat is;
  /* Other file systems do not know the attribute, and would keep it. */
  if (fgetxattr(fd, ATTRIBUTE, before, sizeof before) < 0)
    tell(path, "not on Weir");
  else if (!fstat(fd, &is) && is.st_size)
    errno = EEXIST, tell(path, "has data, and stays as it is");
  else if (fsetxattr(fd, ATTRIBUTE, layout, strlen(layout), 0))
    tell(path, layout);
  close(fd);
  return made;
}

int MPI_File_open(MPI_Comm comm, const char *filename, int amode, MPI_Info info, MPI_File *fh) {
  /* All ranks give the same mode. */
  if (amode & MPI_MODE_CREATE) {
    int rank = 0, made = 0;
    PMPI_Comm_rank(comm, &rank);
    if (rank == 0) {
      unsigned long unit = number(info, "striping_unit"), count = number(info, "striping_factor");
      char layout[96] = "", *at = layout;
      if (unit)
        at += sprintf(at, "unit=%lu", unit);
      if (count)
        sprintf(at, "%scount=%lu", unit ? "," : "", count);
      const char *path = path_of(filename);
      if (path && (unit || count))
        made = lay_out(path, amode, layout);
    }
    PMPI_Bcast(&made, 1, MPI_INT, 0, comm);
    if (made)
      amode &= ~MPI_MODE_EXCL;
  }
  return PMPI_File_open(comm, (char *)filename, amode, info, fh);
}
