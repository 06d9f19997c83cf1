// A library for LD_PRELOAD: a call of the file that ESPALIER_HANG names does not return. The file has the name of the
// call and a number: that of a thread, the negative one of a process, or 0 for anyone.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static void hang(const char *call) {
  const char *place = getenv("ESPALIER_HANG");
  FILE *file = place && access(place, R_OK) == 0 ? fopen(place, "r") : NULL;
  char named[64] = "";
  int number = 0;
  if (!file)
    return;
  int count = fscanf(file, "%63s %d", named, &number);
  fclose(file);
  if (count != 2 || strcmp(named, call) != 0 || (number != 0 && number != gettid() && number != -getpid()))
    return;
  for (;;)
    pause();
}

int fsync(int file) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  hang("fsync");
  return next(file);
}

/// The call by which ranks of one host wait for each other.
long syscall(long number, ...) {
  long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  long words[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; ++i)
    words[i] = va_arg(list, long);
  va_end(list);
  hang("syscall");
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

/// Samples are read from mapped files. Those whose name ends with "hangs" do.
void *mmap(void *at, size_t length, int protection, int flags, int file, off_t offset) {
  void *(*next)(void *, size_t, int, int, int, off_t) =
      (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
  char link[32], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = file >= 0 ? readlink(link, path, sizeof path - 1) : 0;
  if (size > 5 && memcmp(path + size - 5, "hangs", 5) == 0)
    hang("mmap");
  return next(at, length, protection, flags, file, offset);
}
