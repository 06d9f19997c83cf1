// Lists the flags of Megatron-LM's training scripts (core r0.6 to main of August 2026, with those of Megatron-DeepSpeed
// and MindSpeed): what the import does with each flag, the type of its values, and the reason.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// How the import treats a flag.
enum class FlagUse {
  Written, ///< the import writes it to the run file
  AtRun,   ///< an option of `espalier run` takes its value
  Ignored, ///< it has no effect on the mathematics of the training
  Refused  ///< it changes the training, and no key of a run file does
};

/// A flag of the table.
struct FlagRow {
  std::string name; ///< "--lr", or "--rl-*" for all flags with this beginning that have no row of their own
  FlagUse use = FlagUse::Ignored;
  /// Written: the key that takes the number as it is, or empty if a part of the import converts the flag. AtRun: the
  /// option, "--steps N" or "--order a|b". Else the reason.
  std::string text;
  char type = 0;       ///< of its values: 'i' whole number, 'f' number, 's' text; 0: the flag has no value
  std::string neutral; ///< the value for which a refused flag has no effect; empty: it always has one

  /// Returns whether a value turns a refused flag off, compared as a number or as text.
  bool isOff(const std::string &value) const;
};

/// Returns all flags, in the order of the table.
const std::vector<FlagRow> &flagTable();

/// Returns the row of a flag; null for an unknown flag.
const FlagRow *findFlag(const std::string &name);

/// Returns the name in the table of a flag that had another name in some versions. Returns other names as they are.
std::string currentFlag(const std::string &name);

} // namespace espalier
