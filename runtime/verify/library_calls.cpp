// Rule K for library calls: the names of dimensions determine sizes, transposition and scalars. The rows of
// functions.def describe most functions. MATMUL, COPY and REARRANGE have separate rules.
#include "format/abi.h"
#include "format/zigzag.h"
#include "runtime/verify/dims.h"
#include "runtime/verify/library_functions.h"
#include "runtime/verify/signatures.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

class LibraryCallCheck {
public:
  LibraryCallCheck(const pb::Plan &plan, const Mesh &mesh, const pb::LibraryCall &call)
      : plan(plan), mesh(mesh), shapes(plan, mesh), call(call), rows(call) {}

  /// Returns the first fault of the call, or an empty string.
  std::string fault();

private:
  std::string flags() const;
  std::string slots() const;
  std::string floats() const;
  std::string bySignature();
  std::string matmul();
  std::string epilogue(const std::map<std::string, Dims> &dimsOf) const;
  std::string copy();
  std::string rearrange();
  std::string scalars() const;
  std::string sizes(const std::vector<int64_t> &wanted) const;
  std::string unlike(int a, int b) const {
    return fmt::format("buffers {} and {} hold {} and {}", a, b, textOf(dims[static_cast<size_t>(a)]),
                       textOf(dims[static_cast<size_t>(b)]));
  }
  const Dims &of(int buffer) const { return dims[static_cast<size_t>(buffer)]; }
  const pb::Value &valueAt(int buffer) const { return plan.values(static_cast<int>(call.buffers(buffer).value())); }
  int64_t widthAt(int buffer) const { return widthOf(valueAt(buffer).type()); }

  const pb::Plan &plan;
  const Mesh &mesh;
  Shapes shapes;
  const pb::LibraryCall &call;
  const CallRows rows;
  std::vector<const OperandSignature *> operands; ///< by buffer
  std::vector<Dims> dims;                         ///< by buffer
};

std::string LibraryCallCheck::fault() {
  using Call = pb::LibraryCall;
  if (!rows.function)
    return "";
  operands = rows.operands(call.buffers_size());
  if (operands.size() != static_cast<size_t>(call.buffers_size()))
    return ""; // rule E reports this error
  for (const std::string &found : {flags(), slots(), floats()})
    if (!found.empty())
      return found;
  int known = 0;
  for (const pb::Buffer &buffer : call.buffers()) {
    bool isSlice = call.function() == Call::COPY && dims.empty() && call.sizes_size() == 3 &&
                   call.sizes(0) * call.sizes(1) != call.sizes(2);
    if (shapes.isLess(buffer) && !isSlice)
      return ""; // only rule E's byte counts are known
    std::optional<Dims> found = shapes.of(buffer);
    known += found && !plan.values(static_cast<int>(buffer.value())).dims().empty();
    dims.push_back(found.value_or(Dims()));
    if (!found && known > 0)
      return fmt::format("buffer {} holds a value without dims", dims.size() - 1);
  }
  if (known == 0)
    return "";
  switch (call.function()) {
  case Call::MATMUL:
    return matmul();
  case Call::COPY:
    return copy();
  case Call::REARRANGE:
    return rearrange();
  default:
    return bySignature();
  }
}

/// Checks that fields of other functions are unset.
std::string LibraryCallCheck::flags() const {
  const FunctionSignature &row = *rows.function;
  if (call.causal() && !row.hasFlag("causal"))
    return "is no attention and masks later positions";
  if ((call.transpose_a() || call.transpose_b()) && !row.hasFlag("transpose_a"))
    return "transposes what is no product's operand";
  if (call.epilogue() != pb::LibraryCall::NONE && !row.hasFlag("epilogue"))
    return "has an epilogue, which only products have";
  if (row.scalars.empty() && !call.scalars().empty())
    return fmt::format("has {} scalars and takes none", call.scalars_size());
  return "";
}

/// Checks the slots of the scalars. A hand-written plan may declare only the step.
std::string LibraryCallCheck::slots() const {
  for (int i = 0; i < call.buffers_size(); ++i) {
    const OperandSignature &operand = *operands[static_cast<size_t>(i)];
    if (!operand.isSlot || (operand.type == 'i' && valueAt(i).whole() == 0))
      continue;
    if (uint32_t slot = *findSlot(operand.name); valueAt(i).first() != slot)
      return fmt::format("buffer {} holds slot {} of the scalars, it must hold {}", i, valueAt(i).first(), slot);
  }
  return "";
}

std::string LibraryCallCheck::floats() const {
  if (call.function() == pb::LibraryCall::UPDATE_SCALARS &&
      (call.floats_size() != 1 || call.floats(0) != plan.settings().max_grad_norm()))
    return fmt::format("clips not at a norm of {}", plan.settings().max_grad_norm());
  if (call.function() == pb::LibraryCall::UPDATE_SCALARS &&
      (call.buffers_size() == 7) != (plan.settings().skip_spike_factor() > 0))
    return fmt::format("{} a limit of the norm, and skip_spike_factor is {}",
                       call.buffers_size() == 7 ? "has" : "lacks", plan.settings().skip_spike_factor());
  return "";
}

std::string LibraryCallCheck::sizes(const std::vector<int64_t> &wanted) const {
  std::vector<int64_t> found(call.sizes().begin(), call.sizes().end());
  if (found == wanted)
    return "";
  return fmt::format("has sizes {}, its dims give {}", fmt::join(found, " "), fmt::join(wanted, " "));
}

/// Checks the scalars against the dims of the row's space operand.
std::string LibraryCallCheck::scalars() const {
  const FunctionSignature &row = *rows.function;
  if (static_cast<size_t>(call.scalars_size()) != row.scalars.size())
    return fmt::format("has {} scalars, takes {}", call.scalars_size(), row.scalars.size());
  for (int i = 0; i < call.scalars_size(); ++i) {
    pb::Kernel::Scalar kind = scalarKind(row.scalars[static_cast<size_t>(i)].name);
    pb::Affine wanted = scalarOf(kind, shapes, of(static_cast<int>(*row.findOperand(row.space))), call.scalars(i));
    if (!isSame(call.scalars(i), wanted))
      return fmt::format("scalar {} is {}, it must be {}", i, textOf(call.scalars(i)), textOf(wanted));
  }
  return "";
}

/// Checks that each size is the product of the dimensions that its dim is bound to. A size without a dimension in any
/// operand is not checked.
std::string LibraryCallCheck::bySignature() {
  std::vector<DimBinding::Bound> bound;
  for (int i = 0; i < call.buffers_size(); ++i)
    bound.push_back({i, operands[static_cast<size_t>(i)], of(i), widthAt(i)});
  DimBinding binding(*rows.function, shapes, std::move(bound));
  if (std::string found = binding.bind(); !found.empty())
    return found;
  if (!rows.sizes)
    return ""; // rule E reports this error
  std::vector<int64_t> wanted;
  for (size_t i = 0; i < rows.sizes->size(); ++i)
    wanted.push_back(binding.sizeOf(rows.function->sizes[i].name, /*inBytes=*/true).value_or((*rows.sizes)[i]));
  if (std::string found = binding.faultOfSlots(wanted); !found.empty())
    return found;
  if (std::optional<size_t> zigzag = rows.function->findSize("zigzag"))
    wanted[*zigzag] = areZigzag(of(static_cast<int>(*rows.function->findOperand("q"))));
  for (size_t last = wanted.size(); last-- > 0 && !rows.function->sizes[last].initial.empty();) {
    const std::string &initial = rows.function->sizes[last].initial;
    std::optional<size_t> same = rows.function->findSize(initial);
    bool isGiven = static_cast<int>(last) < call.sizes_size() && !same;
    if (isGiven || wanted[last] != (same ? wanted[*same] : std::stoll(initial)))
      break;
    wanted.pop_back(); // an omitted size
  }
  std::string found = sizes(wanted);
  return found.empty() ? scalars() : found;
}

/// Checks the operands of the epilogue. They have the dims of c or of its columns; bias sums may be the only shard of a
/// gradient.
std::string LibraryCallCheck::epilogue(const std::map<std::string, Dims> &dimsOf) const {
  for (int i = 3; i < call.buffers_size(); ++i) {
    Dims found = of(i), wanted;
    if (!found.empty() && found.front() == Dim{"part", 1})
      found.erase(found.begin());
    for (const SignatureDim &dim : operands[static_cast<size_t>(i)]->dims)
      wanted = joined({wanted, dimsOf.at(dim.name)});
    if (found != wanted)
      return unlike(2, i);
  }
  return "";
}

/// Checks c = op(a) op(b). The batch dims are in all three; m is in a and c, n in b and c, and k in a and b.
std::string LibraryCallCheck::matmul() {
  const Dims &a = of(0), &b = of(1), &c = of(2);
  auto isIn = [](const Dims &dims) { return [&dims](const Dim &dim) { return contains(dims, dim); }; };
  Dims batch = where(c, [&](const Dim &dim) { return contains(a, dim) && contains(b, dim); });
  Dims m = where(where(c, isIn(a)), [&](const Dim &dim) { return !contains(b, dim); });
  Dims n = where(where(c, isIn(b)), [&](const Dim &dim) { return !contains(a, dim); });
  Dims k = where(a, [&](const Dim &dim) { return !contains(c, dim); });
  bool isPlainA = a == joined({batch, m, k}), isPlainB = b == joined({batch, k, n});
  bool isProduct = c == joined({batch, m, n}) && (isPlainA || a == joined({batch, k, m})) &&
                   (isPlainB || b == joined({batch, n, k}));
  if (!isProduct)
    return fmt::format("{} and {} have no product {}", textOf(a), textOf(b), textOf(c));
  if (call.transpose_a() == isPlainA || call.transpose_b() == isPlainB)
    return fmt::format("{} and {} are {}transposed and {}transposed in {}", textOf(a), textOf(b),
                       isPlainA ? "not " : "", isPlainB ? "not " : "", textOf(c));
  if (std::string fault = epilogue({{"batch", batch}, {"m", m}, {"n", n}}); !fault.empty())
    return fault;
  return sizes({elementsOf(m), elementsOf(n), elementsOf(k), elementsOf(batch)});
}

/// Returns whether the dims are those of an optimizer's update, which reads flat shards as matrices.
bool areOfUpdate(const Dims &dims) {
  return !dims.empty() && std::ranges::all_of(dims, [](const Dim &dim) { return dim.name.starts_with("element"); });
}

/// Checks that the result equals the source, or is the rank's shard of the source along one dimension. In an
/// optimizer's update the result may have other dims, with all elements in their order.
std::string LibraryCallCheck::copy() {
  if (areOfUpdate(of(1)) && elementsOf(of(0)) == elementsOf(of(1))) {
    int64_t bytes = elementsOf(of(0)) * widthAt(0);
    if (call.buffers(0).has_reads_at())
      return fmt::format("reads at {}, its part begins at 0", textOf(call.buffers(0).reads_at()));
    return sizes({1, bytes, bytes});
  }
  std::optional<Cut> cut = cutOf(of(0), of(1));
  if (!cut)
    return unlike(0, 1);
  int64_t outer = cut->parts == 1 ? 1 : cut->outer;
  int64_t bytes = elementsOf(of(1)) * widthAt(1) / std::max<int64_t>(outer, 1);
  if (cut->parts != mesh.count(cut->axes))
    return unlike(0, 1);
  pb::Affine place = shapes.index(cut->axes, bytes);
  if (!isSame(place, call.buffers(0).reads_at()))
    return fmt::format("reads at {}, its part begins at {}", textOf(call.buffers(0).reads_at()), textOf(place));
  return sizes({outer, cut->parts * bytes, bytes});
}

/// Checks a copy between a sequence of shards and their positions in the whole value, in either direction.
std::string LibraryCallCheck::rearrange() {
  bool fromParts = !of(0).empty() && of(0).front().name == "part";
  const Dims &parts = of(fromParts ? 0 : 1), &whole = of(fromParts ? 1 : 0);
  if (parts.size() != whole.size() + 1 || parts.front().name != "part")
    return unlike(0, 1);
  std::optional<Cut> cut = cutOf(whole, Dims(parts.begin() + 1, parts.end()));
  if (!cut || cut->axes || cut->parts != parts.front().size)
    return unlike(0, 1);
  int64_t bytes = elementsOf(whole) * widthAt(0) / std::max<int64_t>(cut->outer * cut->parts, 1);
  std::vector<int64_t> wanted = {fromParts ? cut->parts : cut->outer, fromParts ? cut->outer : cut->parts, bytes};
  if (valueAt(fromParts ? 0 : 1).zigzag() && !areZigzag(parts))
    wanted.push_back(static_cast<int64_t>(fromParts ? Zigzag::From : Zigzag::To));
  return sizes(wanted);
}

} // namespace

std::string faultOfProduct(const pb::Plan &plan, const Mesh &mesh, const pb::LibraryCall &call) {
  return LibraryCallCheck(plan, mesh, call).fault();
}

} // namespace espalier::rt::verify
