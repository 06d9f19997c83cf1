#include "runtime/device/cuda/status.h"

#include <fmt/format.h>
#include <string_view>

namespace espalier::rt::cuda {
namespace {

std::string_view nameOf(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

} // namespace

CallError::CallError(const char *call, const std::string &text, const std::source_location &where)
    : std::runtime_error(fmt::format("{} at {}:{}: {}", call, nameOf(where.file_name()), where.line(), text)) {}

} // namespace espalier::rt::cuda
