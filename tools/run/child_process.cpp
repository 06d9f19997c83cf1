#include "tools/run/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace espalier {

void separateChild(int deathSignal, const sigset_t &mask) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, deathSignal);
  if (int nothing = open("/dev/null", O_RDONLY); nothing >= 0)
    dup2(nothing, STDIN_FILENO); // background process groups may not read from a terminal
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

std::vector<char *> argumentsOf(std::vector<std::string> &words) {
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

} // namespace espalier
