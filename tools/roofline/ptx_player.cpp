#include "tools/roofline/ptx_player.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <stdexcept>

namespace espalier {
namespace {

/// Number of simulated blocks, and of simulated warps per block.
constexpr int64_t mostBlocks = 33, mostWarps = 4;
constexpr int64_t mostSteps = 4'000'000, lanes = 32;

/// A register value: its bits, where known, and the pointer that it derives from.
struct Known {
  uint64_t bits = 0;
  bool isKnown = false;
  int32_t buffer = -1;
};

uint64_t masked(uint64_t bits, int width) { return width >= 64 ? bits : bits & ((uint64_t(1) << width) - 1); }

int64_t extended(uint64_t bits, int width) {
  if (width >= 64)
    return static_cast<int64_t>(bits);
  uint64_t sign = uint64_t(1) << (width - 1);
  return static_cast<int64_t>((masked(bits, width) ^ sign) - sign);
}

/// Simulates one lane of a kernel.
class Lane {
public:
  Lane(const PtxKernel &kernel, const PtxLaunch &launch, PtxCounts &counts)
      : kernel(kernel), launch(launch), counts(counts) {}

  void play(int64_t blockX, int64_t blockY, int64_t thread, double weight);

private:
  Known read(const PtxOperand &operand) const;
  void execute(const PtxInstruction &op);
  std::optional<uint64_t> compute(const PtxInstruction &op, const std::array<Known, 4> &x) const;
  void count(const PtxInstruction &op, double weight);
  bool branches(const PtxInstruction &op, uint32_t at);

  const PtxKernel &kernel;
  const PtxLaunch &launch;
  PtxCounts &counts;
  std::vector<Known> values;
  std::vector<bool> wasHere; ///< branches that depend on memory
  int64_t blockX = 0, blockY = 0, thread = 0;
};

Known Lane::read(const PtxOperand &operand) const {
  switch (operand.kind) {
  case PtxOperand::Kind::Register:
    return values[operand.number];
  case PtxOperand::Kind::Number:
    return {static_cast<uint64_t>(operand.value), true};
  case PtxOperand::Kind::ThreadIndex:
    return {static_cast<uint64_t>(thread), true};
  case PtxOperand::Kind::BlockX:
    return {static_cast<uint64_t>(blockX), true};
  case PtxOperand::Kind::BlockY:
    return {static_cast<uint64_t>(blockY), true};
  case PtxOperand::Kind::Parameter:
    if (operand.number < launch.buffers)
      return {0, true, static_cast<int32_t>(operand.number)};
    if (size_t index = operand.number - launch.buffers; index < launch.numbers.size())
      return {static_cast<uint64_t>(launch.numbers[index]), true};
    break;
  default:
    break;
  }
  return {};
}

/// Returns whether an ordering satisfies the comparison of a setp.
bool compares(std::string_view opcode, std::strong_ordering order) {
  std::string_view how = opcode.substr(5, 2);
  if (how == "eq")
    return order == 0;
  if (how == "ne")
    return order != 0;
  bool isLess = how == "lt" || how == "lo", isAtMost = how == "le" || how == "ls";
  bool isMore = how == "gt" || how == "hi";
  return isLess ? order < 0 : isAtMost ? order <= 0 : isMore ? order > 0 : order >= 0;
}

std::optional<uint64_t> Lane::compute(const PtxInstruction &op, const std::array<Known, 4> &x) const {
  uint64_t a = masked(x[0].bits, op.bits), b = masked(x[1].bits, op.bits), c = x[2].bits;
  int64_t sa = op.isSigned ? extended(a, op.bits) : static_cast<int64_t>(a);
  int64_t sb = op.isSigned ? extended(b, op.bits) : static_cast<int64_t>(b);
  uint64_t shift = x[1].bits & 0xffffffff, width = static_cast<uint64_t>(op.bits);
  auto bits = [](int64_t value) { return static_cast<uint64_t>(value); };
  std::strong_ordering order = op.isSigned ? sa <=> sb : a <=> b;
  std::string_view base = op.base;
  if (base == "mov" || base == "cvta")
    return x[0].bits;
  if (base == "cvt") { // cvt.TO.FROM: registers hold values of type FROM
    size_t from = op.opcode.rfind('.');
    int fromBits = op.opcode.ends_with("64") ? 64 : op.opcode.ends_with("32") ? 32 : op.opcode.ends_with("16") ? 16 : 8;
    return op.opcode[from + 1] == 's' ? bits(extended(x[0].bits, fromBits)) : masked(x[0].bits, fromBits);
  }
  if (base == "add")
    return a + b;
  if (base == "sub")
    return a - b;
  if (base == "mul" || base == "mad") {
    bool isHigh = op.opcode.find(".hi") != std::string_view::npos;
    uint64_t product =
        isHigh ? static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> width) : bits(sa) * bits(sb);
    return base == "mad" ? product + c : product;
  }
  if (base == "div")
    return b == 0 ? 0 : op.isSigned ? bits(sa / sb) : a / b;
  if (base == "rem")
    return b == 0 ? 0 : op.isSigned ? bits(sa % sb) : a % b;
  if (base == "shl")
    return shift >= width ? 0 : a << shift;
  if (base == "shr")
    return op.isSigned ? bits(sa >> std::min<uint64_t>(shift, width - 1)) : shift >= width ? 0 : a >> shift;
  if (base == "and")
    return a & b;
  if (base == "or")
    return a | b;
  if (base == "xor")
    return a ^ b;
  if (base == "not")
    return ~a;
  if (base == "neg")
    return ~a + 1;
  if (base == "abs")
    return bits(std::abs(extended(a, op.bits)));
  if (base == "min")
    return order < 0 ? bits(sa) : bits(sb);
  if (base == "max")
    return order > 0 ? bits(sa) : bits(sb);
  if (base == "bfe")
    return masked(a >> (b & 63), static_cast<int>(c & 63));
  if (base == "popc")
    return static_cast<uint64_t>(std::popcount(a));
  if (base == "selp")
    return (c & 1) != 0 ? a : b;
  if (base == "setp")
    return compares(op.opcode, order) ? 1 : 0;
  return std::nullopt;
}

void Lane::execute(const PtxInstruction &op) {
  if (op.results.empty())
    return;
  std::array<Known, 4> sources;
  Known result;
  bool areKnown = true;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (op.sources[i].kind == PtxOperand::Kind::None)
      continue;
    sources[i] = read(op.sources[i]);
    areKnown &= sources[i].isKnown;
    if (sources[i].buffer >= 0)
      result.buffer = sources[i].buffer;
  }
  bool isLoad = op.unit == PtxUnit::Memory;
  if (isLoad)
    result.buffer = -1;
  if (op.opcode.starts_with("ld.param")) {
    result = sources[0];
  } else if (areKnown && !isLoad && (!op.isFloat || op.base == "mov")) {
    if (std::optional<uint64_t> bits = compute(op, sources)) {
      result.bits = *bits;
      result.isKnown = true;
    }
    int width = op.isWide ? 2 * op.bits : op.base == "setp" ? 1 : op.base == "cvt" ? 64 : op.bits;
    result.bits = masked(result.bits, width);
  } else if (op.base == "and" || op.base == "or") { // one known operand may determine the result
    bool isAnd = op.base == "and";
    for (const Known &source : {sources[0], sources[1]})
      if (op.bits == 1 && source.isKnown && (source.bits != 0) != isAnd)
        result = {isAnd ? 0u : 1u, true};
  }
  for (uint32_t number : op.results)
    values[number] = result;
}

void Lane::count(const PtxInstruction &op, double weight) {
  double slots = weight * static_cast<double>(op.slots);
  counts.slots += slots;
  if (op.unit == PtxUnit::Special)
    counts.special += weight;
  (op.unit == PtxUnit::Matrix ? counts.matrixFlops : counts.flops) += weight * static_cast<double>(op.flops);
  if (op.globalBytes == 0)
    return;
  int32_t buffer = read(op.sources[0]).buffer;
  if (buffer >= 0)
    (op.isStore ? counts.written : counts.read)[static_cast<size_t>(buffer)] +=
        weight * static_cast<double>(op.globalBytes);
}

bool Lane::branches(const PtxInstruction &op, uint32_t at) {
  if (op.guard < 0)
    return true;
  const Known &guard = values[static_cast<size_t>(op.guard)];
  if (guard.isKnown)
    return (guard.bits != 0) != op.guardNegated;
  bool goesBack = op.target <= at;
  bool leaves = !goesBack && wasHere[at];
  wasHere[at] = true;
  return leaves;
}

void Lane::play(int64_t x, int64_t y, int64_t index, double weight) {
  blockX = x;
  blockY = y;
  thread = index;
  values.assign(kernel.registers, {});
  wasHere.assign(kernel.instructions.size(), false);
  int64_t steps = 0;
  for (uint32_t at = 0; at < kernel.instructions.size();) {
    const PtxInstruction &op = kernel.instructions[at];
    if (++steps > mostSteps)
      throw std::invalid_argument("a thread of a kernel comes to no end");
    count(op, weight);
    if (op.base == "ret" || op.base == "exit")
      return;
    if (op.base == "bra" && branches(op, at)) {
      at = op.target;
      continue;
    }
    if (op.base != "bra")
      execute(op);
    ++at;
  }
}

/// Returns block i of n by golden-section steps, so that every pattern of neighbours is sampled evenly.
int64_t spread(int64_t i, int64_t n) {
  double turns = static_cast<double>(i) * 0.6180339887498949;
  return std::min(static_cast<int64_t>((turns - std::floor(turns)) * static_cast<double>(n)), n - 1);
}

} // namespace

PtxCounts countLaunch(const PtxKernel &kernel, const PtxLaunch &launch) {
  PtxCounts counts;
  counts.read.resize(launch.buffers);
  counts.written.resize(launch.buffers);
  int64_t blocks = launch.blocksX * launch.blocksY, warps = (launch.threads + lanes - 1) / lanes;
  int64_t played = std::min(blocks, mostBlocks), playedWarps = std::min(warps, mostWarps);
  double perLane = static_cast<double>(blocks) / static_cast<double>(played) * static_cast<double>(launch.threads) /
                   static_cast<double>(playedWarps);
  Lane lane(kernel, launch, counts);
  for (int64_t i = 0; i < played; ++i) {
    int64_t block = played == blocks ? i : spread(i, blocks);
    for (int64_t warp = 0; warp < playedWarps; ++warp)
      lane.play(block % launch.blocksX, block / launch.blocksX, warp * warps / playedWarps * lanes, perLane);
  }
  return counts;
}

} // namespace espalier
