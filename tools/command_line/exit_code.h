// The exit codes of all verbs of `espalier`.
#pragma once

namespace espalier {

/// Failed: a run or check failed. UserError: the input is invalid. DoesNotFit: no plan fits into memory.
enum ExitCode { Success = 0, Failed = 1, UserError = 2, DoesNotFit = 3 };

} // namespace espalier
