// Writes the values of flags to a run file.
#pragma once

#include "compiler/import/megatron/given_flags.h"
#include "compiler/import/run/run_file_writer.h"

#include <fmt/format.h>

namespace espalier {

/// A base of the parts of the import that write one section each. A key's comment names its flag if the flag is given.
class FlagWriter {
public:
  FlagWriter(GivenFlags &given, RunFileWriter &yaml) : given(given), yaml(yaml) {}

protected:
  void put(const std::string &key, const std::string &value, const std::string &flag = "") {
    yaml.put(key, value, given.isGiven(flag) ? flag : "");
  }
  /// Write the value of a flag if the flag is given.
  void putNumber(const std::string &key, const std::string &flag) {
    if (std::optional<std::string> text = given.number(flag, key))
      put(key, *text, flag);
  }
  std::optional<int64_t> putCount(const std::string &key, const std::string &flag) {
    std::optional<int64_t> number = given.count(flag, key);
    if (number)
      put(key, fmt::format("{}", *number), flag);
    return number;
  }

  GivenFlags &given;
  RunFileWriter &yaml;
};

} // namespace espalier
