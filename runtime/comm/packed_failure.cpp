#include "runtime/comm/packed_failure.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace espalier::rt {
namespace {

static_assert(std::is_trivially_copyable_v<PackedFailure>, "its bytes are a message");

template <size_t Size> void write(std::array<char, Size> &to, const std::string &from) {
  size_t length = std::min(from.size(), Size - 1);
  std::memcpy(to.data(), from.data(), length);
  to[length] = 0;
}

template <size_t Size> std::string read(const std::array<char, Size> &from) {
  return {from.begin(), std::ranges::find(from, 0)};
}

} // namespace

void pack(const Failure &failure, PackedFailure &to) noexcept {
  to.rank = failure.rank;
  to.stage = failure.stage;
  to.step = failure.step;
  to.endSignal = failure.endSignal;
  to.isEcho = failure.isEcho;
  to.isFinal = failure.isFinal;
  write(to.action, failure.action);
  write(to.subprogram, failure.subprogram);
  write(to.op, failure.op);
  write(to.message, failure.message);
}

Failure unpack(const PackedFailure &packed) {
  Failure failure;
  failure.rank = packed.rank;
  failure.stage = packed.stage;
  failure.step = packed.step;
  failure.endSignal = packed.endSignal;
  failure.isEcho = packed.isEcho;
  failure.isFinal = packed.isFinal;
  failure.action = read(packed.action);
  failure.subprogram = read(packed.subprogram);
  failure.op = read(packed.op);
  failure.message = read(packed.message);
  return failure;
}

} // namespace espalier::rt
