// Rule G through instructions: only linear operations read partial sums, sums over sharded dimensions are partial, and
// a kernel that uses a sum over its columns has all columns.
#include "runtime/verify/dims.h"
#include "runtime/verify/library_functions.h"

#include <algorithm>
#include <map>

namespace espalier::rt::verify {
namespace {

/// A buffer of an instruction, with the properties that rule G uses.
struct Use {
  const pb::Buffer *buffer;
  pb::Operand::Access access;
  uint32_t linear; ///< as Operand.linear
  bool reduces;    ///< as Operand.reduces
  uint32_t madeOf; ///< as OperandRule.madeOf

  bool isRead() const { return access == pb::Operand::READ || access == pb::Operand::UPDATE; }
};

class Terms {
public:
  Terms(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors)
      : plan(plan), mesh(mesh), shapes(plan, mesh), errors(errors) {}

  void check(const pb::Instruction &instruction, const std::string &name);

private:
  std::vector<Use> usesOf(const pb::Instruction &instruction) const;
  void readTerms(const std::vector<Use> &uses, bool isProduct);
  void checkResult(const Use &use, const std::vector<Use> &uses, bool isProduct);
  void checkEpilogue(const pb::LibraryCall &call);
  void checkColumns(const pb::Launch &launch);
  uint32_t axesOf(const pb::Buffer &buffer) const;
  const pb::Value &valueOf(const pb::Buffer &buffer) const { return plan.values(static_cast<int>(buffer.value())); }
  uint32_t partialOf(const pb::Buffer &buffer) const { return mesh.divided(valueOf(buffer).partial()) & ~uint32_t(PP); }
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(name + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  const Mesh &mesh;
  Shapes shapes;
  PlanErrors &errors;
  std::string name; ///< the current instruction
};

/// Returns the axes that shard a value.
uint32_t Terms::axesOf(const pb::Buffer &buffer) const {
  uint32_t axes = valueOf(buffer).split() | buffer.part();
  for (const Dim &dim : shapes.of(buffer).value_or(Dims()))
    axes |= dim.split;
  return mesh.divided(axes) & ~uint32_t(PP);
}

std::vector<Use> Terms::usesOf(const pb::Instruction &instruction) const {
  std::vector<Use> uses;
  if (instruction.has_launch()) {
    const pb::Kernel &kernel = plan.kernels(static_cast<int>(instruction.launch().kernel()));
    for (int i = 0; i < kernel.operands_size(); ++i) {
      const pb::Operand &operand = kernel.operands(i);
      uses.push_back({&instruction.launch().buffers(i), operand.access(), operand.linear(), operand.reduces(), 0});
    }
  } else if (instruction.has_call()) {
    std::vector<OperandRule> rules = operandsOf(instruction.call()).value_or(std::vector<OperandRule>());
    for (size_t i = 0; i < rules.size(); ++i)
      uses.push_back({&instruction.call().buffers(static_cast<int>(i)), rules[i].access, rules[i].linear,
                      rules[i].reduces, rules[i].madeOf});
  }
  return uses;
}

void Terms::check(const pb::Instruction &instruction, const std::string &its) {
  name = its;
  if (instruction.has_launch())
    checkColumns(instruction.launch());
  bool isCall = instruction.has_call();
  std::vector<Use> uses = usesOf(instruction);
  auto isKnown = [&](const Use &use) { return shapes.of(*use.buffer).has_value(); };
  if (!std::ranges::all_of(uses, isKnown))
    return; // values of buckets and of hand-written plans have no dims, so their sharding is unknown
  readTerms(uses, /*isProduct=*/isCall);
  for (const Use &use : uses)
    if (!use.isRead())
      checkResult(use, uses, isCall);
  if (isCall && instruction.call().function() == pb::LibraryCall::MATMUL)
    checkEpilogue(instruction.call());
}

/// Checks that the epilogue of a partial product adds only a value that is partial over the same axes.
void Terms::checkEpilogue(const pb::LibraryCall &call) {
  using Call = pb::LibraryCall;
  const pb::Buffer &result = call.buffers(2);
  if (call.epilogue() == Call::ADD && partialOf(call.buffers(3)) != partialOf(result))
    add("adds '{}' to terms of '{}', and ranks hold other terms of it", valueOf(call.buffers(3)).name(),
        valueOf(result).name());
  if (call.epilogue() != Call::NONE && call.epilogue() != Call::ADD && call.epilogue() != Call::BIAS_GRADIENT &&
      partialOf(result))
    add("adds a bias to terms of '{}'", valueOf(result).name());
}

/// Returns the innermost dims of an operand that together have as many elements as a row has columns.
Dims columnsOf(Dims dims, int64_t columns) {
  size_t first = dims.size();
  for (int64_t count = 1; count < columns && first > 0;)
    count *= dims[--first].size;
  dims.erase(dims.begin(), dims.begin() + static_cast<int64_t>(first));
  return dims;
}

/// Checks that the columns of a kernel that reduces over whole rows are not sharded. A softmax over a sharded
/// vocabulary would normalize over one shard only.
void Terms::checkColumns(const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  constexpr uint32_t columns = 1; // the factor of Operand.reach that is scalar 0
  for (int i = 0; kernel.whole_columns() && i < kernel.operands_size(); ++i) {
    const auto &reach = kernel.operands(i).reach();
    std::optional<Dims> dims = shapes.of(launch.buffers(i));
    if (!dims || shapes.isLess(launch.buffers(i)) || reach.empty() || reach.at(reach.size() - 1) != columns)
      continue;
    Dims row = columnsOf(*dims, launch.scalars(0).constant());
    if (std::ranges::any_of(row, [](const Dim &dim) { return dim.split != 0; }))
      return add("uses sums over the columns {}, which are split", textOf(row));
  }
}

/// Checks that only linear operations read partial sums: all summands of a sum, or one factor of a product.
void Terms::readTerms(const std::vector<Use> &uses, bool isProduct) {
  std::map<uint32_t, uint32_t> terms; // axes by number of Operand.linear
  for (const Use &use : uses) {
    if (use.access != pb::Operand::READ)
      continue;
    uint32_t partial = partialOf(*use.buffer);
    const std::string &value = valueOf(*use.buffer).name();
    if (partial && (use.linear == 0 || valueOf(*use.buffer).reduction() != pb::SUM))
      add("takes terms of '{}' over {} for the sum", value, partial);
    auto [known, isNew] = terms.emplace(use.linear, partial);
    if (!isNew && use.linear > 0 && known->second != partial)
      add("adds up '{}', of which ranks hold terms over {}, and others over {}", value, partial, known->second);
  }
  terms.erase(0);
  auto factors = std::ranges::count_if(terms, [](const auto &entry) { return entry.second != 0; });
  if (isProduct && factors > 1)
    add("multiplies terms by terms");
}

/// Checks that a result is partial over the axes of its operands' terms, and over the axes that split the dimensions it
/// sums over.
void Terms::checkResult(const Use &use, const std::vector<Use> &uses, bool isProduct) {
  const pb::Value &value = valueOf(*use.buffer);
  uint32_t partial = partialOf(*use.buffer), read = 0, passed = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    const Use &source = uses[i];
    if (!source.isRead() || (use.madeOf != 0 && !(use.madeOf >> i & 1)))
      continue;
    read |= axesOf(*source.buffer);
    bool isPassed =
        source.access == pb::Operand::READ && source.linear > 0 && (isProduct || source.linear == use.linear);
    passed |= isPassed ? partialOf(*source.buffer) : 0;
  }
  uint32_t wanted = passed | (use.reduces ? read & ~axesOf(*use.buffer) : 0);
  // Kernels weight a statistic if several ranks count the same tokens, so a statistic may be partial over more axes.
  bool isStatistic = use.access == pb::Operand::ADD && value.additions() == 0;
  // A maximum that all ranks have is a term of itself.
  bool isMaximum = value.reduction() == pb::MAX;
  if (isStatistic || isMaximum ? (wanted & ~partial) != 0 : wanted != partial)
    add("makes terms of '{}' over {}, and it is partial over {}", value.name(), wanted, partial);
  if (passed && value.reduction() != pb::SUM)
    add("adds up terms of '{}', of which the greatest is wanted", value.name());
}

} // namespace

void verifyTerms(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  Terms terms(plan, mesh, errors);
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (int i = 0; i < subprogram.instructions_size(); ++i)
      terms.check(subprogram.instructions(i), instructionName(plan, subprogram, i));
}

} // namespace espalier::rt::verify
