// Formats the message of a failure.
#include "runtime/status.h"

#include <fmt/format.h>

namespace espalier::rt {

std::string Failure::sentence() const {
  std::string text = fmt::format("rank {}", rank);
  if (stage >= 0)
    text += fmt::format(" (stage {})", stage);
  if (step >= 0)
    text += fmt::format(" in step {}", step + 1);
  if (!action.empty())
    text += ", " + action;
  if (!subprogram.empty())
    text += ", " + subprogram;
  if (!op.empty())
    text += ", " + op;
  return text + ": " + message + "; all ranks stopped";
}

} // namespace espalier::rt
