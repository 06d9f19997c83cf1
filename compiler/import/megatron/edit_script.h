// Replaces the parallel flags of a Megatron-LM launch script by those of a plan.
#pragma once

#include "compiler/import/shell/evaluate_shell.h"

#include <string>
#include <vector>

namespace espalier {

/// An edited script. `unplaced` lists flags that the launch still lacks or has with another value, because a shell
/// computes them.
struct EditedScript {
  std::string text;
  std::vector<std::string> unplaced;
};

/// Returns `script` with the flags of a plan: `exported` holds a flag per line with its value. Other flags of the plan,
/// such as those of a recompute that it does not have, are removed. Flags of the model and of the training stay. A
/// value is replaced where it stands, in the command or in the assignment of a variable. New flags are inserted in
/// front of the first flag of the launch.
EditedScript editScript(const std::string &file, const std::string &script, const ShellInputs &inputs,
                        const std::string &exported);

} // namespace espalier
