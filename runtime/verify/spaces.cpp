// Rule K for launches. Of generated kernels: which elements a row of the iteration space touches, and what its other
// numbers are, follow from the names of dimensions. Kernels that stand for library calls follow from their row of
// functions.def.
#include "runtime/verify/dims.h"
#include "runtime/verify/signatures.h"

#include <algorithm>
#include <map>

namespace espalier::rt::verify {
namespace {

/// ((row / divisor) % modulus) * stride.
struct Term {
  int64_t divisor, modulus, stride;
};

/// Whether an operand has a row of sums per block of rows: what a column kernel writes as often as it iterates.
bool isPartialSum(const pb::Kernel &kernel, int operand) {
  const pb::Operand &sum = kernel.operands(operand);
  return kernel.shape() == "column" && sum.access() == pb::Operand::WRITE && sum.reach_size() > 0 && sum.reach(0) == 0;
}

class Space {
public:
  Space(const pb::Plan &plan, const Mesh &mesh, const pb::Launch &launch)
      : plan(plan), shapes(plan, mesh), launch(launch), kernel(plan.kernels(static_cast<int>(launch.kernel()))) {}

  /// What is wrong with the launch, or nothing.
  std::string fault();

private:
  std::optional<Dims> spaceOfAll() const;
  std::string faultOf(size_t rows);
  std::string faultOfOperand(int index, size_t rows);
  std::string faultOfScalars(size_t rows);
  std::string faultOfSignature(const KernelSignature &row);
  std::string faultOfSizes(const KernelSignature &row, const std::vector<const OperandSignature *> &operands) const;
  pb::Affine wanted(pb::Kernel::Scalar use, const pb::Affine &found, size_t rows) const;
  bool isGenerated() const { return kernel.shape() == "row" || kernel.shape() == "column" || kernel.shape() == "flat"; }
  std::vector<Term> termsOf(const std::vector<bool> &has, size_t rows, bool hasColumns) const;
  std::vector<Term> elementTerms(size_t rows) const;
  pb::Affine firstElement() const;
  bool areScalars(int first, const std::vector<Term> &terms) const;
  int64_t scalar(int index) const { return launch.scalars(index).constant(); }
  Dims slice(size_t begin, size_t end) const {
    return Dims(space.begin() + static_cast<int64_t>(begin), space.begin() + static_cast<int64_t>(end));
  }

  const pb::Plan &plan;
  Shapes shapes;
  const pb::Launch &launch;
  const pb::Kernel &kernel;
  Dims space;
};

std::string Space::fault() {
  if (const KernelSignature *row = findKernel(kernel.shape()))
    return faultOfSignature(*row);
  bool walks = std::ranges::any_of(kernel.operands(), [](const pb::Operand &operand) { return operand.walk() > 0; });
  if (kernel.space() == 0 && !walks)
    return faultOfScalars(0);
  for (const pb::Buffer &buffer : launch.buffers())
    if (shapes.isLess(buffer))
      return ""; // rule E's bytes are all that is known
  int needed = kernel.shape() == "column" ? 3 : 1;
  if (launch.scalars_size() < needed)
    return fmt::format("{} scalars do not say what rows and columns there are", launch.scalars_size());
  std::optional<Dims> dims =
      kernel.space() == 0 ? spaceOfAll() : shapes.of(launch.buffers(static_cast<int>(kernel.space()) - 1));
  if (!dims)
    return kernel.space() == 0
               ? "walks through rows and columns that its buffers do not give"
               : fmt::format("buffer {} is as large as the launch, and its value has no dims", kernel.space() - 1);
  space = *dims;
  // Dimensions of one element may count among the rows or the columns.
  std::string first;
  int64_t rows = kernel.shape() == "column" ? scalar(1) : launch.extent();
  for (size_t split = 0; split <= space.size(); ++split) {
    if (elementsOf(slice(0, split)) != rows || elementsOf(slice(split, space.size())) != scalar(0))
      continue;
    std::string found = faultOf(split);
    if (found.empty())
      return "";
    first = first.empty() ? found : first;
  }
  return first.empty() ? fmt::format("{} rows and {} columns are not those of {}", rows, scalar(0), textOf(space))
                       : first;
}

/// Where no buffer is as large as the launch: all dims of its buffers, in the one order that each of these has. Example:
/// scores [batch, seq, expert] of the experts in ids [choice, batch, seq].
std::optional<Dims> Space::spaceOfAll() const {
  std::vector<Dims> left;
  for (const pb::Buffer &buffer : launch.buffers()) {
    std::optional<Dims> dims = shapes.of(buffer);
    if (!dims)
      return std::nullopt;
    left.push_back(*dims);
  }
  Dims all;
  for (;;) {
    std::optional<Dim> next; // the dim that no buffer has behind another one
    for (const Dims &dims : left) {
      auto isBehind = [&](const Dims &other) { return contains(other, dims.front()) && other.front() != dims.front(); };
      if (dims.empty() || std::ranges::any_of(left, isBehind))
        continue;
      if (next && *next != dims.front())
        return std::nullopt;
      next = dims.front();
    }
    if (!next)
      break;
    all.push_back(*next);
    for (Dims &dims : left)
      if (!dims.empty() && dims.front() == *next)
        dims.erase(dims.begin());
  }
  bool isWhole = std::ranges::all_of(left, [](const Dims &dims) { return dims.empty(); });
  return isWhole ? std::optional(all) : std::nullopt;
}

std::string Space::faultOf(size_t rows) {
  for (size_t d = rows; kernel.whole_columns() && d < space.size(); ++d)
    if (space[d].split)
      return fmt::format("goes on with sums over the columns {}, which lie in parts", textOf(slice(rows, space.size())));
  for (int i = 0; i < launch.buffers_size(); ++i) {
    if (std::string found = isPartialSum(kernel, i) ? "" : faultOfOperand(i, rows); !found.empty())
      return found;
  }
  return faultOfScalars(rows);
}

/// An operand has some dimensions of the space, in its order; which ones says where a row of it lies.
std::string Space::faultOfOperand(int index, size_t rows) {
  const pb::Operand &operand = kernel.operands(index);
  std::optional<Dims> dims = shapes.of(launch.buffers(index));
  if (!dims)
    return fmt::format("buffer {} holds a value without dims", index);
  std::vector<bool> has(space.size(), false);
  size_t next = 0;
  for (size_t d = 0; d < space.size(); ++d)
    if (next < dims->size() && (*dims)[next] == space[d]) {
      has[d] = true;
      ++next;
    }
  bool hasColumns = rows < space.size(), hasRows = true, isSome = false;
  for (size_t d = 0; d < space.size(); ++d) {
    if (d < rows)
      hasRows = hasRows && has[d];
    else
      hasColumns = hasColumns && has[d], isSome = isSome || has[d];
  }
  if (next != dims->size() || (isSome && !hasColumns))
    return fmt::format("buffer {} holds {}, which are no rows of {}", index, textOf(*dims), textOf(space));
  std::vector<Term> terms;
  if (!(hasRows && (hasColumns || rows > 0)))
    terms = termsOf(has, rows, hasColumns);
  if (terms.empty() != (operand.walk() == 0) || (!terms.empty() && !areScalars(static_cast<int>(operand.walk()) - 1, terms)))
    return fmt::format("buffer {} holds {} of {} and is not walked so", index, textOf(*dims), textOf(space));
  return "";
}

/// Innermost first; neighbouring dimensions are one.
std::vector<Term> Space::termsOf(const std::vector<bool> &has, size_t rows, bool hasColumns) const {
  std::vector<Term> terms;
  int64_t stride = hasColumns ? elementsOf(slice(rows, space.size())) : 1, inner = 1;
  for (size_t d = rows; d-- > 0;) {
    if (d + 1 < rows && has[d] && has[d + 1])
      terms.back().modulus *= space[d].size;
    else if (has[d])
      terms.push_back({inner, space[d].size, stride});
    if (has[d])
      stride *= space[d].size;
    inner *= space[d].size;
  }
  return terms;
}

bool Space::areScalars(int first, const std::vector<Term> &terms) const {
  for (size_t i = 0; i < terms.size(); ++i)
    for (int part = 0; part < 3; ++part) {
      int index = first + 3 * static_cast<int>(i) + part;
      int64_t wanted = part == 0 ? terms[i].divisor : part == 1 ? terms[i].modulus : terms[i].stride;
      if (index >= launch.scalars_size() || !isConstant(launch.scalars(index)) || scalar(index) != wanted)
        return false;
    }
  return true;
}

/// Element d of a sample lies at the product of the whole sizes behind it.
pb::Affine Space::firstElement() const {
  pb::Affine first;
  for (size_t d = 1; d < space.size(); ++d) {
    int64_t stride = 1;
    for (size_t inner = d + 1; inner < space.size(); ++inner)
      stride *= shapes.whole(space[inner]);
    first = sum(first, shapes.origin(space[d], stride));
  }
  return first;
}

/// Where a row lies in its whole sample; dimensions that are not split are one with the next outer one.
std::vector<Term> Space::elementTerms(size_t rows) const {
  std::vector<Term> terms;
  for (size_t d = 1; d < rows; ++d) {
    int64_t stride = 1, inner = 1;
    for (size_t i = d + 1; i < space.size(); ++i)
      stride *= shapes.whole(space[i]);
    for (size_t i = d + 1; i < rows; ++i)
      inner *= space[i].size;
    if (d > 1 && shapes.whole(space[d]) == space[d].size)
      terms.back() = {inner, terms.back().modulus * space[d].size, stride};
    else
      terms.push_back({inner, space[d].size, stride});
  }
  return terms;
}

/// What a scalar must be; `found` where only the launch knows.
pb::Affine Space::wanted(pb::Kernel::Scalar use, const pb::Affine &found, size_t rows) const {
  switch (use) {
  case pb::Kernel::VALID_COLUMNS:
    return sum(constant(static_cast<int64_t>(plan.settings().vocabulary())), shapes.origin(space.back(), -1));
  case pb::Kernel::SAMPLE_ROWS:
    return constant(elementsOf(slice(1, rows)));
  case pb::Kernel::FIRST_ELEMENT:
    return firstElement();
  default: // columns and rows, what operands walk by and `first` are what the launch has
    return scalarOf(use, shapes, space, found);
  }
}

std::string Space::faultOfScalars(size_t rows) {
  std::vector<int64_t> walk;
  for (const Term &term : rows > 0 ? elementTerms(rows) : std::vector<Term>())
    walk.insert(walk.end(), {term.divisor, term.modulus, term.stride});
  size_t walked = 0;
  for (int i = 0; i < kernel.uses_size(); ++i) {
    const pb::Affine &found = launch.scalars(i);
    pb::Kernel::Scalar use = kernel.uses(i);
    bool isOfSpace = use >= pb::Kernel::FIRST_COLUMN && use != pb::Kernel::SEED && use != pb::Kernel::STREAM;
    bool isOfRows = use >= pb::Kernel::FIRST_SAMPLE && use <= pb::Kernel::ELEMENT_WALK;
    bool isOfQueries = use >= pb::Kernel::FIRST_HEAD;
    bool hasNone = isOfRows && (isGenerated() ? rows == 0 : use != pb::Kernel::FIRST_SAMPLE);
    if ((isOfSpace && space.empty()) || hasNone || (isOfQueries && (isGenerated() || space.size() < 4)))
      return fmt::format("scalar {} belongs to rows and columns that no buffer has", i);
    pb::Affine right = wanted(use, found, rows);
    if (use == pb::Kernel::ELEMENT_WALK) {
      right = constant(walked < walk.size() ? walk[walked] : 0);
      ++walked;
    } else {
      walked = 0;
    }
    if (!isSame(found, right))
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
  bool isKnown = std::ranges::none_of(launch.buffers(), isLess); // else rule E's bytes are all that is known
  if (kernel.space() > 0) {
    std::optional<Dims> dims = shapes.of(launch.buffers(static_cast<int>(kernel.space()) - 1));
    if (!dims && isKnown)
      return fmt::format("buffer {} says what the scalars are, and its value has no dims", kernel.space() - 1);
    space = dims.value_or(Dims());
  }
  std::string found = isKnown ? faultOfSizes(row, operands) : "";
  bool hasScalars = found.empty() && (isKnown || kernel.space() == 0);
  return hasScalars ? faultOfScalars(0) : found;
}

/// Scalars that are sizes say what the dims of the operands say.
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
