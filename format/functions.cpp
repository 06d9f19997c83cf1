// Parses functions.def once, at the first use of a row.
#include "format/functions.h"

#include "format/abi.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace espalier::rt {
namespace {

using Access = OperandSignature::Access;

std::string lower(std::string_view upper) {
  std::string text(upper);
  for (char &character : text)
    if (character >= 'A' && character <= 'Z')
      character = static_cast<char>(character - 'A' + 'a');
  return text;
}

template <typename Row> std::optional<size_t> indexOf(const std::vector<Row> &rows, std::string_view name) {
  auto found = std::ranges::find_if(rows, [&](const Row &row) { return row.name == name; });
  return found == rows.end() ? std::nullopt : std::optional(static_cast<size_t>(found - rows.begin()));
}

/// Reads the text of one row, word by word.
class RowParser {
public:
  RowParser(std::string_view name, std::string_view text) : name(name), text(text) {}

  FunctionSignature function(int number);
  EpilogueSignature epilogue(int number);
  KernelSignature kernel(const FunctionSignature &function, std::span<const KernelSignature> before);

private:
  [[noreturn]] void fail(const std::string &reason) const {
    throw std::invalid_argument("functions.def, " + name + ": " + reason + " before '" +
                                std::string(text.substr(0, 40)) + "'");
  }
  void skipSpace() { text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size())); }
  bool isAtEnd() {
    skipSpace();
    return text.empty();
  }
  bool accept(std::string_view symbol) {
    skipSpace();
    bool isNext = text.starts_with(symbol);
    text.remove_prefix(isNext ? symbol.size() : 0);
    return isNext;
  }
  /// The next word; empty if a symbol is next.
  std::string_view peek() {
    skipSpace();
    return text.substr(0, text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"));
  }
  std::string word() {
    std::string found(peek());
    if (found.empty())
      fail("needs a name");
    text.remove_prefix(found.size());
    return found;
  }
  bool acceptWord(std::string_view wanted) {
    bool isNext = peek() == wanted;
    text.remove_prefix(isNext ? wanted.size() : 0);
    return isNext;
  }
  /// Whether a further clause follows, then behind its semicolon.
  bool nextClause() {
    if (isAtEnd())
      return false;
    if (!accept(";"))
      fail("needs ';'");
    return true;
  }
  bool isClauseOver() { return isAtEnd() || text.front() == ';'; }

  bool acceptMark(OperandSignature &operand);
  SignatureDim dim();
  const OperandSignature *declaration(std::string_view operand) const;
  void operands(Signature &signature);
  void typeOf(std::span<OperandSignature> group);
  std::vector<NumberSignature> numbers();
  std::vector<std::string> words();
  void scalars(Signature &signature);
  void resolveSizes(std::vector<SignatureDim> &dims, bool isScratch) const;
  bool knowsSize(std::string_view size) const;

  std::string name;
  std::string_view text;
  const FunctionSignature *known = nullptr; ///< whose operands and sizes the row may name
  std::span<const KernelSignature> before;
};

bool RowParser::acceptMark(OperandSignature &operand) {
  if (acceptWord("if")) {
    operand.flag = word();
    return true;
  }
  static constexpr std::pair<std::string_view, Access> accesses[] = {
      {"read", Access::Read}, {"update", Access::Update}, {"add", Access::Add}, {"store", Access::Store}};
  static constexpr std::pair<std::string_view, bool OperandSignature::*> marks[] = {
      {"linear", &OperandSignature::isLinear},
      {"sum", &OperandSignature::isSum},
      {"slot", &OperandSignature::isSlot},
      {"each", &OperandSignature::isRepeated}};
  for (const auto &[mark, access] : accesses)
    if (acceptWord(mark)) {
      operand.access = access;
      return true;
    }
  for (const auto &[mark, member] : marks)
    if (acceptWord(mark))
      return operand.*member = true;
  return false;
}

SignatureDim RowParser::dim() {
  SignatureDim found;
  found.isTiled = acceptWord("tiled");
  found.name = word();
  if (accept("?")) {
    found.flag = std::move(found.name);
    found.name = word();
  }
  if (accept("@"))
    found.stride = word();
  found.isMany = accept("..");
  return found;
}

/// The type, dims and origin behind the last name of a group of operands.
void RowParser::typeOf(std::span<OperandSignature> group) {
  std::string type = word();
  if (type.size() != 1 || std::string_view("fesib").find(type) == std::string_view::npos)
    fail("needs a type f, e, s, i or b, got " + type);
  std::vector<SignatureDim> dims;
  if (!accept("["))
    fail("needs dims");
  while (!accept("]")) {
    dims.push_back(dim());
    if (!accept(",") && !text.starts_with("]"))
      fail("needs ',' or ']'");
  }
  for (OperandSignature &operand : group) {
    operand.type = type.front();
    operand.dims = dims;
  }
  if (acceptWord("over"))
    group.back().over = word();
  if (acceptWord("of"))
    group.back().of = word();
}

/// An operand of the function, or memory of an earlier kernel of it, that a kernel names.
const OperandSignature *RowParser::declaration(std::string_view operand) const {
  if (!known)
    return nullptr;
  if (std::optional<size_t> index = known->findOperand(operand))
    return &known->operands[*index];
  for (const KernelSignature &kernel : before)
    if (std::optional<size_t> index = kernel.findOperand(operand))
      return &kernel.operands[*index];
  return nullptr;
}

void RowParser::operands(Signature &signature) {
  size_t typed = 0; // operands before it have their types
  bool isBehindArrow = false;
  while (!isClauseOver()) {
    if (accept("->")) {
      isBehindArrow = true;
      continue;
    }
    OperandSignature operand;
    operand.access = isBehindArrow ? Access::Write : Access::Read;
    while (acceptMark(operand)) {
    }
    operand.name = word();
    operand.isOptional = accept("?");
    const OperandSignature *declared = declaration(operand.name);
    if (declared) {
      operand.type = declared->type;
      operand.dims = declared->dims;
      operand.isSlot = declared->isSlot;
    }
    signature.operands.push_back(std::move(operand));
    if (accept(":"))
      typeOf(std::span(signature.operands).subspan(typed));
    else if (!declared)
      continue;
    typed = signature.operands.size();
  }
  if (typed != signature.operands.size())
    fail(signature.operands.back().name + " needs a type");
}

std::vector<NumberSignature> RowParser::numbers() {
  std::vector<NumberSignature> found;
  while (!isClauseOver()) {
    NumberSignature &number = found.emplace_back();
    number.name = word();
    if (accept("="))
      number.initial = word();
    number.isFlag = accept("?");
  }
  return found;
}

std::vector<std::string> RowParser::words() {
  std::vector<std::string> found;
  while (!isClauseOver())
    found.push_back(word());
  return found;
}

void RowParser::scalars(Signature &signature) {
  while (!isClauseOver()) {
    if (acceptWord("of")) {
      signature.space = word();
      continue;
    }
    ScalarSignature &scalar = signature.scalars.emplace_back();
    scalar.name = word();
    scalar.isOptional = accept("?");
  }
}

bool RowParser::knowsSize(std::string_view size) const { return known->findSize(size).has_value(); }

void RowParser::resolveSizes(std::vector<SignatureDim> &dims, bool isScratch) const {
  for (SignatureDim &dim : dims) {
    if (auto index = known->findSize(dim.name))
      dim.size = static_cast<int>(*index);
    else if (!dim.isOne() && !isScratch)
      fail(dim.name + " is no size");
    for (const std::string &other : {dim.flag, dim.stride})
      if (!other.empty() && !knowsSize(other))
        fail(other + " is no size");
  }
}

FunctionSignature RowParser::function(int number) {
  FunctionSignature row;
  row.name = lower(name);
  row.number = number;
  operands(row);
  while (nextClause()) {
    if (acceptWord("sizes"))
      row.sizes = numbers();
    else if (acceptWord("floats"))
      row.floats = numbers();
    else if (acceptWord("whole"))
      row.whole = words();
    else if (acceptWord("slots"))
      row.slots = words();
    else if (acceptWord("flags"))
      row.flags = words();
    else if (acceptWord("scalars"))
      scalars(row);
    else
      fail("needs a clause sizes, floats, whole, slots, flags or scalars");
  }
  known = &row;
  for (OperandSignature &operand : row.operands) {
    resolveSizes(operand.dims, /*isScratch=*/false);
    if (!operand.flag.empty() && !knowsSize(operand.flag))
      fail(operand.flag + " is no size");
    if (operand.isSlot && !findSlot(operand.name))
      fail(operand.name + " is no slot of the scalars");
    if (!operand.over.empty() && !row.findOperand(operand.over))
      fail(operand.over + " is no operand");
  }
  for (const auto &list : {row.whole, row.slots})
    for (const std::string &size : list)
      if (!knowsSize(size))
        fail(size + " is no size");
  if (!row.slots.empty() && row.slots.size() != 2)
    fail("slots takes two sizes");
  if (row.space.empty() != row.scalars.empty() || (!row.space.empty() && !row.findOperand(row.space)))
    fail("scalars need 'of' and an operand");
  return row;
}

EpilogueSignature RowParser::epilogue(int number) {
  EpilogueSignature row;
  row.name = lower(name);
  row.number = number;
  operands(row);
  if (!isAtEnd() && accept(";")) {
    row.isLinear = !(acceptWord("not") && acceptWord("linear"));
    if (row.isLinear || !isAtEnd())
      fail("needs 'not linear' and nothing else");
  }
  known = findFunction("matmul");
  for (OperandSignature &operand : row.operands)
    resolveSizes(operand.dims, /*isScratch=*/false);
  return row;
}

KernelSignature RowParser::kernel(const FunctionSignature &function, std::span<const KernelSignature> others) {
  KernelSignature row;
  row.name = name;
  row.function = known = &function;
  before = others;
  operands(row);
  while (nextClause()) {
    if (acceptWord("scalars")) {
      scalars(row);
    } else if (peek() == "extent" || peek() == "count") {
      row.isCounted = word() == "count";
      while (!isClauseOver())
        row.extent.push_back(dim());
    } else if (acceptWord("space")) {
      row.space = word();
    } else if (acceptWord("code")) {
      row.code = words();
    } else if (acceptWord("norm")) {
      row.norm = word();
    } else {
      fail("needs a clause scalars, extent, count, space, code or norm");
    }
  }
  for (OperandSignature &operand : row.operands)
    resolveSizes(operand.dims, row.isScratch(operand));
  resolveSizes(row.extent, /*isScratch=*/true);
  if (!row.space.empty() && !row.findOperand(row.space))
    fail(row.space + " is no operand");
  for (const std::string &part : row.code)
    if (!function.findSize(part) && !function.findFloat(part) && !function.hasFlag(part))
      fail(part + " is no size, float or flag");
  if (!row.norm.empty() && !function.findFloat(row.norm))
    fail(row.norm + " is no float");
  return row;
}

const std::vector<FunctionSignature> &functions() {
  static const std::vector<FunctionSignature> rows = {
#define FUNCTION(number, name, text) parseFunction(number, #name, text),
#include "format/functions.def"
  };
  return rows;
}

const std::vector<EpilogueSignature> &epilogues() {
  static const std::vector<EpilogueSignature> rows = {
#define EPILOGUE(number, name, text) parseEpilogue(number, #name, text),
#include "format/functions.def"
  };
  return rows;
}

const std::vector<KernelSignature> &kernels() {
  static const std::vector<KernelSignature> rows = [] {
    struct Row {
      const char *shape, *function, *text;
    };
    static constexpr Row texts[] = {
#define KERNEL(shape, function, text) {#shape, #function, text},
#include "format/functions.def"
    };
    std::vector<KernelSignature> parsed;
    for (const Row &row : texts) {
      const FunctionSignature &function = *findFunction(lower(row.function));
      auto first = std::ranges::find(parsed, &function, &KernelSignature::function);
      parsed.push_back(parseKernel(row.shape, function, row.text, std::span(first, parsed.end())));
    }
    return parsed;
  }();
  return rows;
}

template <typename Row> const Row *findByName(const std::vector<Row> &rows, std::string_view name) {
  std::optional<size_t> index = indexOf(rows, name);
  return index ? &rows[*index] : nullptr;
}

template <typename Row> const Row *findByNumber(const std::vector<Row> &rows, int number) {
  auto found = std::ranges::find(rows, number, &Row::number);
  return found == rows.end() ? nullptr : &*found;
}

} // namespace

std::optional<size_t> Signature::findOperand(std::string_view name) const { return indexOf(operands, name); }
std::optional<size_t> Signature::findScalar(std::string_view name) const { return indexOf(scalars, name); }
bool Signature::hasType(char type) const { return std::ranges::count(operands, type, &OperandSignature::type) > 0; }

std::optional<size_t> FunctionSignature::findSize(std::string_view name) const { return indexOf(sizes, name); }
std::optional<size_t> FunctionSignature::findFloat(std::string_view name) const { return indexOf(floats, name); }
bool FunctionSignature::hasFlag(std::string_view name) const { return std::ranges::count(flags, name) > 0; }
bool FunctionSignature::isWhole(std::string_view size) const { return std::ranges::count(whole, size) > 0; }

size_t FunctionSignature::leastSizes() const {
  return static_cast<size_t>(std::ranges::count(sizes, "", &NumberSignature::initial));
}

size_t FunctionSignature::leastFloats() const {
  return static_cast<size_t>(std::ranges::count(floats, "", &NumberSignature::initial));
}

bool KernelSignature::reachesByExtent(const OperandSignature &operand) const {
  if (extent.empty())
    return operand.isWritten() && operand.dims.empty();
  auto isSame = [](const SignatureDim &a, const SignatureDim &b) { return a.name == b.name && a.flag == b.flag; };
  return !isCounted && operand.dims.size() >= extent.size() &&
         std::equal(extent.begin(), extent.end(), operand.dims.begin(), isSame);
}

std::span<const FunctionSignature> functionSignatures() { return functions(); }
std::span<const EpilogueSignature> epilogueSignatures() { return epilogues(); }
std::span<const KernelSignature> kernelSignatures() { return kernels(); }

const FunctionSignature *findFunction(int number) { return findByNumber(functions(), number); }
const FunctionSignature *findFunction(std::string_view name) { return findByName(functions(), name); }
const EpilogueSignature *findEpilogue(int number) { return findByNumber(epilogues(), number); }
const EpilogueSignature *findEpilogue(std::string_view name) { return findByName(epilogues(), name); }
const KernelSignature *findKernel(std::string_view shape) { return findByName(kernels(), shape); }

std::optional<uint32_t> findSlot(std::string_view operand) {
  static constexpr std::pair<std::string_view, ScalarSlot> slots[] = {{"loss_sum", LossSum},
                                                                      {"token_count", TokenCount},
                                                                      {"squared_norm", SquaredNorm},
                                                                      {"loss_scale", LossScale},
                                                                      {"norm_limit", NormLimit},
                                                                      {"gradient_scale", GradientScale},
                                                                      {"apply", Apply},
                                                                      {"step", Step}};
  auto found = std::ranges::find(slots, operand, &std::pair<std::string_view, ScalarSlot>::first);
  return found == std::end(slots) ? std::nullopt : std::optional<uint32_t>(found->second);
}

std::vector<const OperandSignature *> operandsOf(const FunctionSignature &function, const EpilogueSignature *epilogue,
                                                 size_t buffers, std::span<const int64_t> sizes) {
  auto exists = [&](const OperandSignature &operand) {
    std::optional<size_t> flag = operand.flag.empty() ? std::nullopt : function.findSize(operand.flag);
    return !flag || (*flag < sizes.size() && sizes[*flag] == 1);
  };
  std::vector<const OperandSignature *> found;
  for (const OperandSignature &operand : function.operands)
    if (exists(operand))
      found.push_back(&operand);
  for (const OperandSignature &operand : epilogue ? std::span(epilogue->operands) : std::span<const OperandSignature>())
    found.push_back(&operand);
  if (buffers < found.size())
    std::erase_if(found, [](const OperandSignature *operand) { return operand->isOptional; });
  return found;
}

std::vector<const OperandSignature *> operandsOf(const KernelSignature &kernel, size_t buffers) {
  std::vector<const OperandSignature *> found;
  auto repeated = static_cast<size_t>(std::ranges::count(kernel.operands, true, &OperandSignature::isRepeated));
  size_t once = kernel.operands.size() - repeated;
  size_t times = repeated > 0 && buffers > once ? (buffers - once) / repeated : 1;
  for (const OperandSignature &operand : kernel.operands)
    if (!operand.isOptional || buffers >= kernel.operands.size())
      found.insert(found.end(), operand.isRepeated ? times : 1, &operand);
  return found;
}

std::optional<std::vector<int64_t>> allSizes(const FunctionSignature &function, std::span<const int64_t> given) {
  if (given.size() < function.leastSizes() || given.size() > function.sizes.size())
    return std::nullopt;
  std::vector<int64_t> sizes(given.begin(), given.end());
  for (size_t i = 0; i < function.sizes.size(); ++i) {
    const NumberSignature &size = function.sizes[i];
    if (i >= given.size()) {
      std::optional<size_t> other = function.findSize(size.initial);
      sizes.push_back(other ? sizes[*other] : std::stoll(size.initial));
    }
    if (sizes[i] < 0 || (size.isFlag && sizes[i] > 1))
      return std::nullopt;
  }
  return sizes;
}

std::optional<int64_t> elementsOf(const OperandSignature &operand, const FunctionSignature &function,
                                  std::span<const int64_t> sizes) {
  constexpr int64_t limit = int64_t{1} << 48; // the bytes of a rank stay below
  auto sizeAt = [&](std::string_view name) { return sizes[*function.findSize(name)]; };
  int64_t elements = 1, behind = 0; // a dim with a stride adds what lies before its last block
  for (const SignatureDim &dim : operand.dims) {
    if (dim.isOne() || (!dim.flag.empty() && sizeAt(dim.flag) == 0))
      continue;
    int64_t size = sizes[static_cast<size_t>(dim.size)];
    if (!dim.stride.empty()) {
      if (size > 0 && (__builtin_mul_overflow(size - 1, sizeAt(dim.stride), &behind) || behind >= limit))
        return std::nullopt;
      size = std::min<int64_t>(size, 1);
    }
    if (size >= limit || __builtin_mul_overflow(elements, size, &elements) || elements >= limit)
      return std::nullopt;
  }
  return elements + behind < limit ? std::optional(elements + behind) : std::nullopt;
}

FunctionSignature parseFunction(int number, std::string_view name, std::string_view text) {
  return RowParser(name, text).function(number);
}

EpilogueSignature parseEpilogue(int number, std::string_view name, std::string_view text) {
  return RowParser(name, text).epilogue(number);
}

KernelSignature parseKernel(std::string_view shape, const FunctionSignature &function, std::string_view text,
                            std::span<const KernelSignature> before) {
  return RowParser(shape, text).kernel(function, before);
}

} // namespace espalier::rt
