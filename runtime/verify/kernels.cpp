// Rule E: each instruction matches the declaration of its kernel in the number of operands and scalars, in types, and
// in the exact bytes that the kernel accesses. The plan declares generated kernels, and functions.def declares library
// functions.
#include "format/geometry.h"
#include "runtime/verify/dims.h"
#include "runtime/verify/library_functions.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

class Kernels {
public:
  Kernels(const pb::Plan &plan, PlanErrors &errors)
      : plan(plan), errors(errors),
        isByHand(std::ranges::all_of(plan.kernels(), [](const pb::Kernel &kernel) { return kernel.uses().empty(); })) {}

  void check();

private:
  void checkGeometries(const pb::Object &object);
  void checkLaunch(const pb::Launch &launch);
  void checkScalars(const pb::Launch &launch);
  void checkBlocks(const pb::Launch &launch, int index);
  void checkReach(const pb::Launch &launch, int index);
  void checkFirst(const pb::Launch &launch, const pb::Operand &operand, int index);
  int64_t checkWalk(const pb::Launch &launch, int index, int64_t rows);
  void checkRows(const pb::Launch &launch);
  void checkExtent(const pb::Launch &launch);
  void checkGrid(const pb::Launch &launch);
  void checkCall(const pb::LibraryCall &call);
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(name + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  const pb::Value &valueOf(const pb::Buffer &buffer) const { return plan.values(static_cast<int>(buffer.value())); }

  const pb::Plan &plan;
  PlanErrors &errors;
  const bool isByHand; ///< a hand-written plan, in which kernels do not declare their scalars
  std::string name;    ///< the current instruction
};

void Kernels::check() {
  for (const pb::Object &object : plan.objects())
    checkGeometries(object);
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (int i = 0; i < subprogram.instructions_size(); ++i) {
      const pb::Instruction &instruction = subprogram.instructions(i);
      name = instructionName(plan, subprogram, i);
      if (instruction.has_launch())
        checkLaunch(instruction.launch());
      else if (instruction.has_call())
        checkCall(instruction.call());
    }
}

/// Compares each geometry with the text of the code. The first lines of the code state the geometry of each kernel.
void Kernels::checkGeometries(const pb::Object &object) {
  std::string_view code = object.code();
  for (int i = 0; i < object.geometry_size(); ++i) {
    std::string_view line = code.substr(0, code.find('\n'));
    code.remove_prefix(std::min(code.size(), line.size() + 1));
    const pb::Geometry &geometry = object.geometry(i);
    std::string wanted = geometryLine(plan.kernels(i).symbol(), geometry.threads(), geometry.extent_per_block(),
                                      geometry.columns_per_block(), geometry.shared_bytes());
    if (line != wanted)
      return errors.add(fmt::format("the plan launches '{}', its code is written for '{}'; compile the plan again",
                                    wanted, line.substr(0, 200)));
  }
}

void Kernels::checkLaunch(const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  if (launch.buffers_size() != kernel.operands_size() ||
      static_cast<uint32_t>(launch.scalars_size()) != kernel.scalars())
    return add("{} buffers and {} scalars, {} takes {} and {}", launch.buffers_size(), launch.scalars_size(),
               kernel.symbol(), kernel.operands_size(), kernel.scalars());
  checkScalars(launch);
  for (int i = 0; i < launch.buffers_size(); ++i) {
    const pb::Operand &operand = kernel.operands(i);
    if (operand.type() != valueOf(launch.buffers(i)).type())
      add("buffer {} holds {}, {} takes {}", i, pb::DataType_Name(valueOf(launch.buffers(i)).type()), kernel.symbol(),
          pb::DataType_Name(operand.type()));
    checkReach(launch, i);
    if (operand.unless() > 0)
      checkFirst(launch, operand, i);
  }
  checkRows(launch);
  checkExtent(launch);
  checkGrid(launch);
}

constexpr int64_t greatestDivisor = INT32_MAX; // generated code uses 32-bit division

/// Checks that sizes and divisors are constant. The scalar `first`, which selects overwrite instead of accumulate, has
/// no other term.
void Kernels::checkScalars(const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  if (!isByHand && static_cast<uint32_t>(kernel.uses_size()) != kernel.scalars())
    return add("{} scalars, of which {} are said to be something", kernel.scalars(), kernel.uses_size());
  std::vector<bool> isFirst(kernel.scalars(), false);
  for (const pb::Operand &operand : kernel.operands())
    if (operand.unless() > 0)
      isFirst[operand.unless() - 1] = true;
  for (int i = 0; i < launch.scalars_size(); ++i) {
    pb::Affine rest = launch.scalars(i);
    rest.clear_first();
    pb::Kernel::Scalar use = isByHand ? pb::Kernel::FIRST : kernel.uses(i);
    if (!isByHand && (use == pb::Kernel::FIRST) != isFirst[static_cast<size_t>(i)])
      add("scalar {} is said to be {}, {} adds otherwise", i, pb::Kernel::Scalar_Name(use), kernel.symbol());
    else if (launch.scalars(i).first() && !isFirst[static_cast<size_t>(i)])
      add("scalar {} asks for the first micro-batch of a bucket, {} adds to nothing by it", i, kernel.symbol());
    else if (launch.scalars(i).first() && rest.ByteSizeLong() > 0)
      add("scalar {} asks for the first micro-batch of a bucket and is a number besides", i);
    else if (use <= pb::Kernel::BLOCK_ROWS && !isConstant(launch.scalars(i)))
      add("scalar {} is a size and differs from rank to rank or run to run", i);
    else if (use == pb::Kernel::DIVISOR && (!isConstant(launch.scalars(i)) || launch.scalars(i).constant() < 1 ||
                                            launch.scalars(i).constant() > greatestDivisor))
      add("scalar {} is {}, a divisor is a constant from 1 to {}", i, textOf(launch.scalars(i)), greatestDivisor);
    if (use == pb::Kernel::BLOCK_ROWS)
      checkBlocks(launch, i);
  }
}

/// Checks that each row lies in exactly one block, and that the blocks are as equal as possible.
void Kernels::checkBlocks(const pb::Launch &launch, int index) {
  bool isSquare = plan.kernels(static_cast<int>(launch.kernel())).shape() == "square_blocks";
  int64_t each = launch.scalars(index).constant(), rows = index > 0 ? launch.scalars(index - 1).constant() : 0;
  int64_t blocks = launch.extent(), multiple = isSquare ? squareBlockMultiple : 1;
  int64_t wanted = rows > 0 && blocks > 0 ? (rows - 1) / blocks / multiple * multiple + multiple : 0;
  if (each < 1 || each != wanted || blocks != (rows - 1) / each + 1)
    add("{} blocks of {} rows are not {} rows once each", blocks, each, rows);
}

void Kernels::checkReach(const pb::Launch &launch, int index) {
  const pb::Operand &operand = plan.kernels(static_cast<int>(launch.kernel())).operands(index);
  const pb::Buffer &buffer = launch.buffers(index);
  if (operand.bounded())
    return;
  std::vector<int64_t> factors = {widthOf(operand.type())};
  for (uint32_t factor : operand.reach()) {
    if (factor == 0) {
      factors.push_back(launch.extent());
      continue;
    }
    const pb::Affine &scalar = launch.scalars(static_cast<int>(factor) - 1);
    if (!isConstant(scalar))
      return add("scalar {} is a size and differs from rank to rank or run to run", factor - 1);
    factors.push_back(scalar.constant());
  }
  if (int64_t bytes = product(factors); bytes != static_cast<int64_t>(buffer.bytes()))
    add("buffer {} has {} bytes, the kernel reaches {}", index, buffer.bytes(), bytes);
}

bool isGenerated(const pb::Kernel &kernel) {
  return kernel.shape() == "row" || kernel.shape() == "column" || kernel.shape() == "flat";
}

// Factors of Operand.reach in generated kernels. The number of rows is rowsFactor in column kernels, else extentFactor.
constexpr uint32_t extentFactor = 0, columnsFactor = 1, rowsFactor = 2;

/// Checks that the terms of a strided access cover the operand without gaps, each element equally often. Returns the
/// number of rows that the access distinguishes, or 0 after an error.
int64_t Kernels::checkWalk(const pb::Launch &launch, int index, int64_t rows) {
  const pb::Operand &operand = plan.kernels(static_cast<int>(launch.kernel())).operands(index);
  bool hasColumns = !operand.reach().empty() && operand.reach(operand.reach_size() - 1) == columnsFactor;
  int64_t stride = hasColumns ? launch.scalars(0).constant() : 1, most = 1;
  for (int term = 0; term < operand.reach_size() - hasColumns; ++term) {
    int first = static_cast<int>(operand.walk()) - 1 + 3 * term;
    if (first + 2 >= launch.scalars_size() || operand.reach(term) != static_cast<uint32_t>(first) + 2) {
      add("buffer {} is walked by scalars that say nothing of what is reached", index);
      return 0;
    }
    const pb::Affine &divisor = launch.scalars(first), &modulus = launch.scalars(first + 1);
    int64_t period = product({divisor.constant(), modulus.constant()});
    if (!isConstant(divisor) || divisor.constant() < 1 || period < 1 || rows % period != 0 ||
        !isConstant(launch.scalars(first + 2)) || launch.scalars(first + 2).constant() != stride) {
      add("buffer {} is not walked through all of its rows by {} rows", index, rows);
      return 0;
    }
    stride = product({stride, modulus.constant()});
    most = std::max(most, period);
  }
  return most;
}

/// Checks that a generated kernel has the rows and columns of its operands. A dense operand fixes the number of rows.
/// Without a dense operand, the strided accesses fix the number.
void Kernels::checkRows(const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  bool isColumn = kernel.shape() == "column";
  if (isByHand || !isGenerated(kernel) || launch.scalars_size() < (isColumn ? 3 : kernel.shape() == "row" ? 1 : 0))
    return;
  int64_t rows = isColumn ? launch.scalars(1).constant() : launch.extent(), walked = 1;
  bool reachesRows = false, reachesColumns = kernel.shape() == "flat";
  for (int i = 0; i < kernel.operands_size(); ++i) {
    const auto &reach = kernel.operands(i).reach();
    reachesRows |= std::ranges::count(reach, isColumn ? rowsFactor : extentFactor) > 0;
    reachesColumns |= std::ranges::count(reach, columnsFactor) > 0;
    if (kernel.operands(i).walk() > 0)
      walked = std::max(walked, checkWalk(launch, i, rows));
  }
  if (!reachesRows && rows != walked)
    add("goes through {} rows, its buffers have {}", rows, walked);
  if (!reachesColumns && launch.scalars(0).constant() != 1)
    add("goes through {} columns, its buffers have one", launch.scalars(0).constant());
}

/// Checks the scalar that selects overwrite (beta = 0) in the first micro-batch. The scalar names the bucket of the
/// accumulator, or is the constant 0 or 1.
void Kernels::checkFirst(const pb::Launch &launch, const pb::Operand &operand, int index) {
  const pb::Affine &scalar = launch.scalars(static_cast<int>(operand.unless()) - 1);
  bool isFixed = isConstant(scalar) && (scalar.constant() == 0 || scalar.constant() == 1);
  const pb::Value &value = valueOf(launch.buffers(index));
  uint32_t root = value.whole() > 0 ? value.whole() - 1 : launch.buffers(index).value();
  const pb::Bucket *bucket = scalar.first() ? &plan.buckets(static_cast<int>(scalar.first()) - 1) : nullptr;
  bool isOther = bucket && bucket->gradient().value() != root &&
                 !(bucket->has_whole_gradient() && bucket->whole_gradient().value() == root);
  if (operand.access() != pb::Operand::ADD || isOther || (scalar.first() == 0 && !isFixed))
    add("buffer {} is added to unless scalar {} says otherwise, which it does not", index, operand.unless() - 1);
}

/// Checks the extent of a launch that no operand depends on. The extent is a product of scalars; tiled scalars are
/// rounded up to whole blocks.
void Kernels::checkExtent(const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  const KernelSignature *row = findKernel(kernel.shape());
  if (!row || !row->isCounted || plan.objects().empty() || plan.objects(0).geometry().empty())
    return;
  std::vector<int64_t> factors;
  for (const SignatureDim &dim : row->extent) {
    auto index = static_cast<int>(*row->findScalar(dim.name));
    int64_t size = index < launch.scalars_size() ? launch.scalars(index).constant() : 0;
    int64_t rows = dim.isTiled ? plan.objects(0).geometry(static_cast<int>(launch.kernel())).extent_per_block() : 1;
    factors.insert(factors.end(), {size / rows + (size % rows != 0), rows});
  }
  if (int64_t wanted = product(factors); wanted != launch.extent())
    add("is launched over {} iterations, its sizes give {}", launch.extent(), wanted);
}

/// Checks the grid against the limits of CUDA: 2^31 - 1 blocks in x, 65535 blocks in y.
void Kernels::checkGrid(const pb::Launch &launch) {
  for (const pb::Object &object : plan.objects()) {
    if (object.geometry().empty())
      continue;
    const pb::Geometry &geometry = object.geometry(static_cast<int>(launch.kernel()));
    int64_t blocks = launch.extent() / geometry.extent_per_block();
    int64_t columns = 0;
    if (geometry.columns_per_block() > 0 && !launch.scalars().empty())
      columns = launch.scalars(0).constant() / geometry.columns_per_block();
    if (blocks > 0x7ffffffe || columns > 65534)
      add("a grid of {} by {} blocks", blocks, columns);
  }
}

/// Returns whether a type matches the letter of a signature. `ofAll` is the type of the first operand of type e.
bool hasType(char letter, pb::DataType type, pb::DataType ofAll) {
  switch (letter) {
  case 's':
    return type == pb::F32;
  case 'i':
    return type == pb::I32;
  case 'f':
    return type != pb::I32;
  case 'e':
    return type != pb::I32 && type == ofAll;
  default:
    return true;
  }
}

void Kernels::checkCall(const pb::LibraryCall &call) {
  const std::string &function = pb::LibraryCall::Function_Name(call.function());
  std::optional<std::vector<OperandRule>> rules = operandsOf(call);
  if (!rules || static_cast<size_t>(call.buffers_size()) != rules->size())
    return add("{} buffers and {} sizes are not what {} takes", call.buffers_size(), call.sizes_size(), function);
  bool adds = false;
  std::optional<pb::DataType> ofAll;
  for (int i = 0; i < call.buffers_size(); ++i) {
    const OperandRule &rule = (*rules)[static_cast<size_t>(i)];
    const pb::Buffer &buffer = call.buffers(i);
    pb::DataType type = valueOf(buffer).type();
    if (rule.row->type == 'e' && !ofAll)
      ofAll = type;
    if (!hasType(rule.row->type, type, ofAll.value_or(type)))
      add("buffer {} holds {}, {} does not take it", i, pb::DataType_Name(type), function);
    int64_t width = rule.row->type == 'b' ? 1 : widthOf(type);
    if (int64_t bytes = product({rule.elements, width}); bytes != static_cast<int64_t>(buffer.bytes()))
      add("buffer {} has {} bytes, its sizes give {}", i, buffer.bytes(), bytes);
    adds |= rule.access == pb::Operand::ADD;
  }
  if (call.store() != pb::OVERWRITE && !adds)
    add("{} adds to nothing", function);
}

/// Describes how the values of a launch differ from the most similar use that its kernel was compiled for. Returns an
/// empty string if the launch is one of these uses.
std::string otherThanMade(const pb::Plan &plan, const pb::Kernel &kernel, const pb::Launch &launch) {
  int uses = kernel.operands().empty() ? 0 : kernel.operands(0).values_size();
  int most = -1, other = launch.buffers().empty() ? -1 : 0;
  for (int use = 0; use < uses; ++use) {
    int alike = 0, firstOther = -1;
    for (int i = 0; i < launch.buffers_size(); ++i) {
      bool isAlike = kernel.operands(i).values(use) == launch.buffers(i).value();
      alike += isAlike;
      if (!isAlike && firstOther < 0)
        firstOther = i;
    }
    if (firstOther < 0)
      return "";
    if (alike > most)
      most = alike, other = firstOther;
  }
  return other < 0 ? ""
                   : fmt::format("buffer {} holds '{}', {} is not made to take it there", other,
                                 plan.values(static_cast<int>(launch.buffers(other).value())).name(), kernel.symbol());
}

} // namespace

void verifyUses(const pb::Plan &plan, PlanErrors &errors) {
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (int i = 0; i < subprogram.instructions_size(); ++i) {
      if (!subprogram.instructions(i).has_launch())
        continue;
      const pb::Launch &launch = subprogram.instructions(i).launch();
      const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
      if (std::string other = otherThanMade(plan, kernel, launch); !other.empty())
        errors.add(fmt::format("{}: {}", instructionName(plan, subprogram, i), other));
    }
}

void verifyKernels(const pb::Plan &plan, PlanErrors &errors) { Kernels(plan, errors).check(); }

} // namespace espalier::rt::verify
