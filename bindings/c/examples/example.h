/* What the examples have in common. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include "weir.h"

/* Ends the program if a call has failed. */
static inline long long check(long long result, const char *what) {
  if (result < 0) {
    fprintf(stderr, "%s: error %lld: %s\n", what, -result, weir_errmsg());
    exit(1);
  }
  return result;
}

/* The cluster that the first argument names; without one the usual cluster. */
static inline weir_fs_t connect_to(int argc, char **argv) {
  weir_fs_t fs;
  check(weir_connect(argc > 1 ? argv[1] : NULL, NULL, &fs), "weir_connect");
  return fs;
}

#endif
