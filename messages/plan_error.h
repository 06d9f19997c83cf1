// The error of a plan, a checkpoint or an option that cannot be used.
#pragma once

#include <stdexcept>

namespace espalier::rt {

/// A plan that cannot be loaded or run here. The text is a user error.
class PlanError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

} // namespace espalier::rt
