#include "runtime/device/cuda/calls.h"

#include "runtime/kernels/call_reader.h"
#include "runtime/program.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <set>
#include <stdexcept>

namespace espalier::rt::cuda {
namespace {

/// The largest alignment in bytes that any algorithm needs.
constexpr uint64_t mostAlignment = 16;

using Types = std::span<const pb::DataType>;

/// Per region, the bitwise or of all its addresses in all stages. Every address is a multiple of the lowest set bit.
using RegionBits = std::vector<uint64_t>;

RegionBits regionBits(const pb::Plan &plan) {
  RegionBits bits(plan.regions_size());
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Call &call : stage.calls())
      for (const pb::Binding &binding : call.bindings()) {
        const pb::Place &place = stage.places(binding.place());
        uint64_t &region = bits[binding.region()];
        region |= place.stride() | binding.offset();
        for (uint64_t offset : place.offsets())
          region |= offset;
      }
  return bits;
}

/// Returns the alignment in bytes that the operand's address has on every rank, in every call and ring slot.
uint32_t alignmentOf(const pb::Buffer &buffer, const RegionBits &regions) {
  const pb::Affine &slice = buffer.reads_at();
  uint64_t bits = regions[buffer.region()] | buffer.offset() | (buffer.part() ? buffer.bytes() : 0) | mostAlignment;
  for (int64_t term : {slice.constant(), slice.pp(), slice.dp(), slice.cp(), slice.ep(), slice.tp()})
    bits |= static_cast<uint64_t>(term);
  return static_cast<uint32_t>(bits & -bits);
}

MatmulShape readMatmul(const pb::LibraryCall &call, Types types, const RegionBits &regions) {
  MatmulShape shape;
  shape.epilogue = call.epilogue();
  shape.keepsOperand = call.epilogue() != pb::LibraryCall::BIAS_GELU || call.buffers_size() > 4;
  int buffers = 3 + shape.hasRow() + (shape.hasGelu() || shape.adds() ? 1 : 0);
  CallReader reader(call, types);
  shape.m = reader.size("m");
  shape.n = reader.size("n");
  shape.k = reader.size("k");
  shape.batch = reader.size("batch");
  shape.a = reader.storage("a");
  shape.b = reader.storage("b");
  shape.c = reader.storage("c");
  shape.transposeA = call.transpose_a();
  shape.transposeB = call.transpose_b();
  bool isEpilogue = shape.epilogue != pb::LibraryCall::NONE, isStored = call.store() == pb::OVERWRITE;
  bool isBiasGradient = shape.epilogue == pb::LibraryCall::BIAS_GRADIENT;
  if (isEpilogue && (shape.k == 0 || shape.batch != 1 || !(isStored || isBiasGradient)))
    reader.refuse("has an epilogue, which needs k above 0, one matrix and no accumulation");
  for (int i = 3; i < buffers; ++i) {
    bool isRow = i == 3 && shape.hasRow();
    if (static_cast<Storage>(types[static_cast<size_t>(i)]) != shape.c)
      reader.refuse(fmt::format("buffer {} needs the type of buffer 2", i));
    shape.alignments[isRow ? 3 : 4] = alignmentOf(call.buffers(i), regions);
  }
  for (int i = 0; i < 3; ++i)
    shape.alignments[i] = alignmentOf(call.buffers(i), regions);
  return shape;
}

StridedCopy readCopy(const pb::LibraryCall &call, Types types) {
  CallReader reader(call, types);
  return {reader.size("outer"), reader.size("from_stride"), reader.size("bytes"), reader.size("bytes")};
}

Rearrangement readRearrange(const pb::LibraryCall &call, Types types) {
  CallReader reader(call, types);
  return {reader.size("a"), reader.size("b"), reader.size("bytes"), reader.zigzag()};
}

Clearing readZero(const pb::LibraryCall &call, Types types) { return {CallReader(call, types).size("bytes")}; }

/// Returns the plan's algorithm for a product, if the plan was made with the loaded library. The algorithms were
/// measured with aligned operands; for other operands cuBLASLt chooses.
MatmulAlgorithm algorithmOf(const pb::Plan &plan, const pb::LibraryCall &call, const MatmulShape &shape,
                            const Matmuls &matmuls) {
  if (call.algorithm().empty())
    return {};
  const std::string &library = plan.libraries(static_cast<int>(call.library()));
  if (library != matmuls.library())
    throw PlanError(fmt::format("the plan has algorithms of {}, here is {}; compile it again, with a cluster file that "
                                "`espalier calibrate --target cuda --plan` made here or without matmul_algorithms",
                                library, matmuls.library()));
  bool isAligned = std::ranges::all_of(shape.alignments, [](uint32_t bytes) { return bytes == mostAlignment; });
  return isAligned ? call.algorithm() : MatmulAlgorithm();
}

LibraryCall prepare(const pb::Plan &plan, const pb::LibraryCall &call, const RegionBits &regions, Matmuls &matmuls) {
  std::vector<pb::DataType> types = typesOf(plan, call);
  switch (call.function()) {
  case pb::LibraryCall::MATMUL: {
    MatmulShape shape = readMatmul(call, types, regions);
    return &matmuls.prepare(shape, algorithmOf(plan, call, shape, matmuls));
  }
  case pb::LibraryCall::COPY:
    return readCopy(call, types);
  case pb::LibraryCall::REARRANGE:
    return readRearrange(call, types);
  case pb::LibraryCall::ZERO:
    return readZero(call, types);
  default:
    throw PlanError(fmt::format("library call {} is not supported on CUDA, where kernels replace it; compile the plan "
                                "again",
                                pb::LibraryCall::Function_Name(call.function())));
  }
}

} // namespace

std::string describe(const LibraryCall &call) {
  if (auto *product = std::get_if<const Matmuls::Product *>(&call))
    return "product of " + Matmuls::shapeOf(**product).describe();
  if (auto *copy = std::get_if<StridedCopy>(&call))
    return fmt::format("copy of {} x {} bytes", copy->blocks, copy->bytes);
  if (auto *shape = std::get_if<Rearrangement>(&call))
    return fmt::format("rearrangement of {} x {} x {} bytes", shape->outer, shape->inner, shape->bytes);
  if (auto *clearing = std::get_if<Clearing>(&call))
    return fmt::format("zero of {} bytes", clearing->bytes);
  return "nothing";
}

double flopsOf(const LibraryCall &call) {
  auto *product = std::get_if<const Matmuls::Product *>(&call);
  return product ? Matmuls::shapeOf(**product).flops() : 0;
}

LibraryCalls::LibraryCalls(const pb::Plan &plan, Matmuls &matmuls) {
  RegionBits regions = regionBits(plan);
  std::string refusal;           // the first error
  std::set<std::string> unfused; // all unfused epilogues, so that one message lists them
  for (const pb::Subprogram &subprogram : plan.subprograms()) {
    std::vector<LibraryCall> &prepared = calls.emplace_back(subprogram.instructions_size());
    for (int i = 0; i < subprogram.instructions_size(); ++i) {
      if (!subprogram.instructions(i).has_call())
        continue;
      auto placed = [&](const std::exception &error) {
        return fmt::format("{}, instruction {}: {}", subprogram.name(), i, error.what());
      };
      try {
        prepared[i] = prepare(plan, subprogram.instructions(i).call(), regions, matmuls);
      } catch (const std::invalid_argument &error) {
        throw PlanError(placed(error));
      } catch (const NoAlgorithm &error) {
        if (error.epilogue == pb::LibraryCall::NONE)
          throw PlanError(placed(error));
        refusal = refusal.empty() ? placed(error) : refusal;
        unfused.insert(nameOf(error.epilogue));
      } catch (const PlanError &error) {
        throw PlanError(placed(error));
      }
    }
  }
  if (!unfused.empty())
    throw PlanError(fmt::format("{}; compile the plan again with --set context.unfused_epilogues=[{}]", refusal,
                                fmt::join(unfused, ",")));
}

} // namespace espalier::rt::cuda
