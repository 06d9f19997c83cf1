// An exit is certain and silence is only a suspicion, so all ranks are checked for exits first.
#include "runtime/launch/watch.h"

#include <cstring>
#include <fmt/format.h>
#include <sys/wait.h>

namespace espalier::rt {
namespace {

/// Returns the error in how a process ended, or an empty string.
std::string faultOf(const Sight &sight) {
  int status = *sight.status;
  if (WIFSIGNALED(status))
    return fmt::format("its process was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    return fmt::format("its process ended with status {}", WEXITSTATUS(status));
  return sight.hasLeft ? "" : "its process ended before its work was done";
}

Failure failureOf(size_t rank, std::string message) {
  Failure failure;
  failure.rank = static_cast<int>(rank);
  failure.message = std::move(message);
  return failure;
}

} // namespace

std::optional<Failure> Watch::judge(std::span<const Sight> ranks, bool isPoll) {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].status)
      if (std::string fault = faultOf(ranks[rank]); !fault.empty())
        return failureOf(rank, std::move(fault));
  std::optional<Failure> silent;
  for (size_t rank = 0; isPoll && rank < ranks.size(); ++rank)
    if (isSilent(seen[rank], ranks[rank]) && !silent)
      silent = failureOf(rank, fmt::format("its process has given no sign of life for {:.1f} seconds: it was stopped",
                                           patience.silentPolls * patience.pollMilliseconds / 1000.0));
  return silent;
}

bool Watch::isSilent(Silence &silence, const Sight &sight) const {
  bool hasChanged = sight.beats != silence.beats;
  bool isOver = sight.hasLeft || sight.status; // a process may write its last output and end for as long as it takes
  silence = {sight.beats, hasChanged || isOver ? 0 : silence.polls + 1};
  return silence.polls >= patience.silentPolls;
}

} // namespace espalier::rt
