// A place in a file that a user wrote. Errors and imported ops carry it.
#pragma once

#include <string>

namespace espalier {

/// A location in a YAML file. Line and column count from 1; line 0 means no location.
struct SourceLocation {
  std::string file;
  int line = 0, column = 0;
};

} // namespace espalier
