// Rule K for kernels that replace library calls: the sizes and origins in their scalars follow from their row of
// functions.def and the named dimensions of their operands.
#include "runtime/verify/dims.h"
#include "runtime/verify/signatures.h"

#include <algorithm>
#include <map>

namespace espalier::rt::verify {
namespace {

class Space {
public:
  Space(const pb::Plan &plan, const Mesh &mesh, const pb::Launch &launch)
      : plan(plan), mesh(mesh), shapes(plan, mesh), launch(launch),
        kernel(plan.kernels(static_cast<int>(launch.kernel()))) {}

  /// Returns the first fault of the launch, or an empty string.
  std::string fault();

private:
  std::string faultOfScalars() const;
  std::string faultOfSignature(const KernelSignature &row);
  std::string faultOfMatrices(const KernelSignature &row) const;
  std::string faultOfSizes(const KernelSignature &row, const std::vector<const OperandSignature *> &operands) const;
  int64_t scalar(int index) const { return launch.scalars(index).constant(); }

  const pb::Plan &plan;
  const Mesh &mesh;
  Shapes shapes;
  const pb::Launch &launch;
  const pb::Kernel &kernel;
  Dims space; ///< dims of the table or of the queries
};

std::string Space::fault() {
  const KernelSignature *row = findKernel(kernel.shape());
  return row ? faultOfSignature(*row) : ""; // rule E checks the declared accesses of generated kernels
}

std::string Space::faultOfScalars() const {
  for (int i = 0; i < std::min(kernel.uses_size(), launch.scalars_size()); ++i) {
    const pb::Affine &found = launch.scalars(i);
    pb::Kernel::Scalar use = kernel.uses(i);
    bool isOfSpace = use >= pb::Kernel::FIRST_SAMPLE && use <= pb::Kernel::FIRST_QUERY;
    bool isOfQueries = use >= pb::Kernel::FIRST_HEAD && use <= pb::Kernel::FIRST_QUERY;
    if ((isOfSpace && space.empty()) || (isOfQueries && space.size() < 4))
      return fmt::format("scalar {} belongs to rows and columns that no buffer has", i);
    if (pb::Affine right = scalarOf(use, shapes, space, found); !isSame(found, right))
      return fmt::format("scalar {} is {}, it must be {}", i, textOf(found), textOf(right));
    if (use == pb::Kernel::STREAM && (found.constant() < 0 || found.constant() > 255))
      return fmt::format("scalar {} names op {} of a layer, of 256", i, found.constant());
  }
  return "";
}

std::string Space::faultOfSignature(const KernelSignature &row) {
  std::vector<const OperandSignature *> operands = operandsOf(row, static_cast<size_t>(launch.buffers_size()));
  if (operands.size() != static_cast<size_t>(launch.buffers_size()))
    return fmt::format("has {} buffers, a kernel of shape {} takes {}", launch.buffers_size(), row.name,
                       operands.size());
  auto isLess = [&](const pb::Buffer &buffer) { return shapes.isLess(buffer); };
  bool isKnown = std::ranges::none_of(launch.buffers(), isLess); // else only rule E's byte counts are known
  if (kernel.space() > 0) {
    std::optional<Dims> dims = shapes.of(launch.buffers(static_cast<int>(kernel.space()) - 1));
    if (!dims && isKnown)
      return fmt::format("buffer {} says what the scalars are, and its value has no dims", kernel.space() - 1);
    space = dims.value_or(Dims());
  }
  bool isProduct = row.function == findFunction("matmul");
  std::string found = !isKnown ? "" : isProduct ? faultOfMatrices(row) : faultOfSizes(row, operands);
  bool hasScalars = found.empty() && (isKnown || kernel.space() == 0);
  return hasScalars ? faultOfScalars() : found;
}

/// Checks a kernel that replaces a MATMUL like the call. The names that operands share tell the dims of matrices apart.
std::string Space::faultOfMatrices(const KernelSignature &row) const {
  if (static_cast<size_t>(launch.scalars_size()) < row.scalars.size())
    return fmt::format("has {} scalars, a kernel of shape {} takes {}", launch.scalars_size(), row.name,
                       row.scalars.size());
  pb::LibraryCall call;
  call.set_function(pb::LibraryCall::MATMUL);
  *call.mutable_buffers() = launch.buffers();
  for (const char *size : {"m", "n", "k"})
    call.add_sizes(scalar(static_cast<int>(*row.findScalar(size))));
  call.add_sizes(launch.extent());
  return faultOfProduct(plan, mesh, call);
}

/// Checks that scalars that are sizes agree with the dims of the operands.
std::string Space::faultOfSizes(const KernelSignature &row,
                                const std::vector<const OperandSignature *> &operands) const {
  std::map<const OperandSignature *, int> times;
  for (const OperandSignature *operand : operands)
    ++times[operand];
  int repeats = times[&row.operands.back()];
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::vector<DimBinding::Bound> bound;
    std::map<const OperandSignature *, int> seen;
    for (size_t i = 0; i < operands.size(); ++i) {
      const pb::Buffer &buffer = launch.buffers(static_cast<int>(i));
      std::optional<Dims> dims = shapes.of(buffer);
      bool isOfRepeat = !operands[i]->isRepeated || seen[operands[i]]++ == repeat;
      if (dims && isOfRepeat && !row.isScratch(*operands[i]))
        bound.push_back(
            {static_cast<int>(i), operands[i], *dims, widthOf(plan.values(static_cast<int>(buffer.value())).type())});
    }
    DimBinding binding(*row.function, shapes, std::move(bound));
    if (std::string found = binding.bind(); !found.empty())
      return found;
    for (size_t i = 0; i < row.scalars.size(); ++i) {
      const std::string &name = row.scalars[i].name;
      if (!row.scalars[i].isSize() || static_cast<int>(i) >= launch.scalars_size())
        continue;
      std::optional<int64_t> wanted = name == "sums" ? repeats : binding.sizeOf(name, /*inBytes=*/false);
      if (wanted && scalar(static_cast<int>(i)) != *wanted)
        return fmt::format("scalar {} is {}, the dims of its buffers give {} {}", i, scalar(static_cast<int>(i)),
                           *wanted, name);
    }
  }
  return "";
}

} // namespace

std::string faultOfSpace(const pb::Plan &plan, const Mesh &mesh, const pb::Launch &launch) {
  return Space(plan, mesh, launch).fault();
}

} // namespace espalier::rt::verify
