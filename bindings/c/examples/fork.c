/* A child of fork uses the same handles, by a session of its own. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "example.h"

extern char **environ;

enum { THREADS = 2 };

static weir_fs_t fs;
static weir_file_t file;
static volatile int stop;

/* Keeps the library busy while the process forks. */
static void *reads(void *unused) {
  char byte;
  while (!stop) check(weir_pread(file, &byte, 1, 0), "weir_pread");
  return unused;
}

/* The program's own handlers may use the library, before it and after. */
static char seen[3];
static void reads_at_fork(int when) {
  assert(check(weir_pread(file, &seen[when], 1, 100), "weir_pread at fork") == 1);
}
static void before_fork(void) { reads_at_fork(0); }
static void in_parent(void) { reads_at_fork(1); }
static void in_child(void) { reads_at_fork(2); }

static void wait_for(pid_t child) {
  int status;
  assert(waitpid(child, &status, 0) == child);
  assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Starts this program again, which begins with nothing of the parent's. */
static void spawn(char **argv) {
  pid_t spawned;
  char *arguments[] = {argv[0], argv[1], "spawned", NULL};
  assert(posix_spawn(&spawned, argv[0], NULL, NULL, arguments, environ) == 0);
  wait_for(spawned);
}

/* The session and the file of the parent are as they were before. */
static void check_parent(uint64_t session) {
  uint64_t after;
  check(weir_session(fs, &after), "weir_session");
  assert(after == session);
  char bytes[5];
  assert(check(weir_pread(file, bytes, 5, 0), "weir_pread") == 5);
  for (int i = 1; i < 5; i++) assert(bytes[i] == i);
}

/* Forks with threads that use the library; each child has a session of its own. */
static void fork_all(uint64_t session, weir_queue_t queue) {
  pthread_t threads[2];
  for (int i = 0; i < THREADS; i++) assert(pthread_create(&threads[i], NULL, reads, NULL) == 0);

  assert(pthread_atfork(before_fork, in_parent, in_child) == 0);
  pid_t children[4];
  for (int i = 0; i < 4; i++) {
    children[i] = fork();
    assert(children[i] >= 0);
    if (children[i] == 0) {
      assert(seen[0] == 'p' && seen[2] == 'p');
      uint64_t own;
      check(weir_session(fs, &own), "weir_session");
      assert(own != session);
      char text[6], byte = (char)(i + 1);
      assert(check(weir_pread(file, text, 6, 100), "weir_pread") == 6);
      assert(memcmp(text, "parent", 6) == 0);
      check(weir_pwrite(file, &byte, 1, i + 1), "weir_pwrite");
      check(weir_fsync(file), "weir_fsync");
      /* A queue has threads, which fork does not copy. */
      assert(weir_queue_fd(queue) == -EBADF);
      assert(strstr(weir_errmsg(), "forked") != NULL);
      /* A grandchild has a session of its own as well. */
      pid_t grandchild = fork();
      if (grandchild == 0) {
        uint64_t third;
        check(weir_session(fs, &third), "weir_session");
        _exit(third == own || third == session);
      }
      wait_for(grandchild);
      check(weir_close(file), "weir_close");
      check(weir_disconnect(fs), "weir_disconnect");
      _exit(0);
    }
  }
  for (int i = 0; i < 4; i++) wait_for(children[i]);
  assert(seen[1] == 'p');
  stop = 1;
  for (int i = 0; i < THREADS; i++) assert(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[2], "spawned") == 0) {
    fs = connect_to(argc, argv);
    check(weir_open(fs, "/fork", O_RDONLY, 0, &file), "weir_open");
    char byte;
    assert(check(weir_pread(file, &byte, 1, 4), "weir_pread") == 1 && byte == 4);
    check(weir_close(file), "weir_close");
    check(weir_disconnect(fs), "weir_disconnect");
    return 0;
  }
  fs = connect_to(argc, argv);
  check(weir_open(fs, "/fork", O_RDWR | O_CREAT | O_TRUNC, 0600, &file), "weir_open");
  /* Not sent yet when the children come. */
  check(weir_pwrite(file, "parent", 6, 100), "weir_pwrite");
  weir_queue_t queue;
  check(weir_queue_open(4, &queue), "weir_queue_open");
  uint64_t session;
  check(weir_session(fs, &session), "weir_session");
  if (argc > 2 && strcmp(argv[2], "spawn only") == 0) {
    check(weir_pwrite(file, "\1\2\3\4", 4, 1), "weir_pwrite");
    check(weir_fsync(file), "weir_fsync");
  } else {
    fork_all(session, queue);
  }
  check_parent(session);
  spawn(argv);
  check_parent(session);

  check(weir_queue_close(queue), "weir_queue_close");
  check(weir_close(file), "weir_close");
  check(weir_unlink(fs, "/fork"), "weir_unlink");
  check(weir_disconnect(fs), "weir_disconnect");
  puts("fork: ok");
  return 0;
}
