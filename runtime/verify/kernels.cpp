// Rule E: an instruction gives its kernel what that declares. Library functions declare it here, in one table;
// generated kernels in the plan.
#include "runtime/comm/comm.h"
#include "runtime/verify_rules.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace espalier::rt {
namespace {

/// What a library function takes: elements of each operand, 0 for bytes that the sizes name otherwise.
struct Signature {
  uint32_t written = 0; ///< operands, as bits
  std::vector<int64_t> elements;
  bool isBytes = false; ///< elements are bytes
};

int64_t product(std::initializer_list<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    if (__builtin_mul_overflow(result, size, &result))
      return -1;
  return result;
}

int64_t strided(int64_t blocks, int64_t stride, int64_t bytes) {
  return blocks > 0 ? product({blocks - 1, stride}) + bytes : 0;
}

/// Nothing where there are fewer sizes than the function has.
std::optional<Signature> signatureOf(const pb::LibraryCall &call) {
  auto size = [&](int i) { return i < call.sizes_size() ? call.sizes(i) : 0; };
  auto has = [&](int sizes) { return call.sizes_size() >= sizes; };
  using Call = pb::LibraryCall;
  switch (call.function()) {
  case Call::MATMUL: {
    int64_t m = size(0), n = size(1), k = size(2), batch = size(3);
    if (!has(4))
      return std::nullopt;
    return Signature{1u << 2, {product({batch, m, k}), product({batch, k, n}), product({batch, m, n})}};
  }
  case Call::ATTENTION_FORWARD:
  case Call::ATTENTION_BACKWARD: {
    if (!has(5))
      return std::nullopt;
    int64_t queries = product({size(0), size(1), size(2), size(3), size(4)});
    int64_t keys = product({size(0), call.sizes_size() > 5 ? size(5) : size(1), size(2), size(4)});
    int64_t rows = product({size(0), size(1), size(2), size(3)});
    if (call.function() == Call::ATTENTION_FORWARD)
      return Signature{1u << 3 | 1u << 4, {queries, keys, keys, queries, rows}};
    return Signature{7u << 6, {queries, keys, keys, queries, rows, queries, queries, keys, keys}};
  }
  case Call::EMBED:
    if (!has(3))
      return std::nullopt;
    return Signature{1u << 2, {product({size(1), size(2)}), size(0), product({size(0), size(2)})}};
  case Call::EMBED_GRADIENT:
    if (!has(3))
      return std::nullopt;
    return Signature{1u << 2, {size(0), product({size(0), size(2)}), product({size(1), size(2)})}};
  case Call::ROPE: {
    if (!has(4))
      return std::nullopt;
    int64_t elements = product({size(0), size(1), size(2)});
    return Signature{1u << 2, {elements, size(0), elements}};
  }
  case Call::SQUARED_NORM:
    return has(1) ? std::optional(Signature{1u << 1, {size(0), 1}}) : std::nullopt;
  case Call::COPY:
    if (!has(4))
      return std::nullopt;
    return Signature{1u << 1, {strided(size(0), size(1), size(3)), strided(size(0), size(2), size(3))}, true};
  case Call::ZERO:
    return has(1) ? std::optional(Signature{1u << 0, {size(0)}, true}) : std::nullopt;
  case Call::REDUCE_PARTS:
    return has(2) ? std::optional(Signature{1u << 1, {product({size(0), size(1)}), size(1)}}) : std::nullopt;
  default:
    return std::nullopt;
  }
}

void checkCall(const pb::LibraryCall &call, const std::string &name, PlanErrors &errors) {
  std::optional<Signature> signature = signatureOf(call);
  size_t buffers = call.buffers_size();
  if (!signature || buffers != signature->elements.size() || static_cast<size_t>(call.types_size()) != buffers)
    return errors.add(fmt::format("{}: {} buffers, {} types and {} sizes are not what {} takes", name, buffers,
                                  call.types_size(), call.sizes_size(),
                                  pb::LibraryCall::Function_Name(call.function())));
  for (size_t i = 0; i < buffers; ++i) {
    const pb::BufferRef &buffer = call.buffers(static_cast<int>(i));
    int64_t width = signature->isBytes ? 1 : elementBytes(call.types(static_cast<int>(i)));
    int64_t bytes = product({signature->elements[i], width});
    if (static_cast<int64_t>(buffer.bytes()) != bytes)
      errors.add(fmt::format("{}: buffer {} has {} bytes, its sizes give {}", name, i, buffer.bytes(), bytes));
    if (buffer.written() != (signature->written >> i & 1))
      errors.add(fmt::format("{}: buffer {} is {}written, the kernel says otherwise", name, i,
                             buffer.written() ? "" : "not "));
  }
  // The first micro-batch of a sum begins it, so only what lives through the micro-batches can be added to.
  bool mayAdd = (call.function() == pb::LibraryCall::MATMUL || call.function() == pb::LibraryCall::EMBED_GRADIENT ||
                 call.function() == pb::LibraryCall::REDUCE_PARTS) &&
                call.buffers().rbegin()->region() == pb::GRADIENTS;
  if ((call.accumulate() || call.always_adds()) && !mayAdd)
    errors.add(fmt::format("{}: {} adds to nothing", name, pb::LibraryCall::Function_Name(call.function())));
}

/// Version 1 does not say what a generated kernel takes, but its launches must agree.
void checkLaunch(const pb::Launch &launch, const pb::Launch &first, const std::string &name, PlanErrors &errors) {
  auto isWritten = [](const pb::BufferRef &buffer) { return buffer.written(); };
  if (launch.scalars_size() != first.scalars_size() ||
      !std::ranges::equal(launch.buffers(), first.buffers(), {}, isWritten, isWritten))
    errors.add(fmt::format("{}: its operands are not those of another launch of the same kernel", name));
}

} // namespace

void verifyKernels(const pb::Plan &plan, PlanErrors &errors) {
  std::vector<const pb::Launch *> launches(plan.kernels_size()); // the first of each kernel
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (int i = 0; i < subprogram.instructions_size(); ++i) {
      const pb::Instruction &instruction = subprogram.instructions(i);
      if (instruction.has_call())
        checkCall(instruction.call(), instructionName(plan, subprogram, i), errors);
      if (!instruction.has_launch())
        continue;
      const pb::Launch *&first = launches[instruction.launch().kernel()];
      first = first ? first : &instruction.launch();
      checkLaunch(instruction.launch(), *first, instructionName(plan, subprogram, i), errors);
    }
}

} // namespace espalier::rt
