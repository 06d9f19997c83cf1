#include "runtime/kernels/call_reader.h"

#include <algorithm>
#include <stdexcept>

namespace espalier::rt {

namespace {

const char *nameOf(pb::DataType type) {
  switch (type) {
  case pb::F32:
    return "f32";
  case pb::BF16:
    return "bf16";
  case pb::F16:
    return "f16";
  case pb::I32:
    return "i32";
  default:
    return "unknown";
  }
}

bool isFloat(pb::DataType type) { return type == pb::F32 || type == pb::BF16 || type == pb::F16; }

} // namespace

CallReader::CallReader(const pb::LibraryCall &call, std::span<const pb::DataType> types)
    : call_(call), types_(types), rows_(call) {
  if (!rows_.function)
    refuse("is function " + std::to_string(call.function()) + ", which has no kernel in this runtime");
  operands_ = rows_.operands(call.buffers_size());
  checkCounts();
  checkSizes();
  checkBuffers();
}

void CallReader::checkCounts() const {
  auto need = [this](const char *what, int got, size_t wanted) {
    if (got < static_cast<int>(wanted))
      refuse("has " + std::to_string(got) + " " + what + ", needs " + std::to_string(wanted));
  };
  const FunctionSignature &row = *rows_.function;
  auto scalars = std::ranges::count(row.scalars, false, &ScalarSignature::isOptional);
  need("buffers", call_.buffers_size(), operands_.size());
  need("sizes", call_.sizes_size(), row.leastSizes());
  need("floats", call_.floats_size(), row.leastFloats());
  need("scalars", call_.scalars_size(), static_cast<size_t>(scalars));
  need("types", static_cast<int>(types_.size()), operands_.size());
}

void CallReader::checkSizes() const {
  const std::vector<NumberSignature> &sizes = rows_.function->sizes;
  if (call_.sizes_size() > static_cast<int>(sizes.size()))
    refuse("has " + std::to_string(call_.sizes_size()) + " sizes, needs at most " + std::to_string(sizes.size()));
  for (int i = 0; i < call_.sizes_size(); ++i) {
    bool isFlag = sizes[static_cast<size_t>(i)].isFlag;
    std::string found = "size " + std::to_string(i) + " is " + std::to_string(call_.sizes(i));
    if (call_.sizes(i) < 0)
      refuse(found + ", needs at least 0");
    if (isFlag && call_.sizes(i) > 1)
      refuse(found + ", needs at most 1");
  }
}

void CallReader::checkBuffers() const {
  const pb::DataType *ofAll = nullptr; // the type of the first operand with type letter e
  for (size_t i = 0; i < operands_.size(); ++i) {
    char letter = operands_[i]->type;
    pb::DataType type = types_[i];
    std::string buffer = "buffer " + std::to_string(i);
    if ((letter == 'f' || letter == 'e') && !isFloat(type))
      refuse(buffer + " has type " + std::to_string(type) + ", needs f32, bf16 or f16");
    if (letter == 'e' && !ofAll)
      ofAll = &types_[i];
    pb::DataType wanted = letter == 's' ? pb::F32 : letter == 'i' ? pb::I32 : letter == 'e' ? *ofAll : type;
    if (type != wanted)
      refuse(buffer + " needs type " + nameOf(wanted));
  }
  for (size_t i = 0; i < operands_.size(); ++i) {
    std::optional<int64_t> elements = elementsOf(*operands_[i], *rows_.function, *rows_.sizes);
    if (!elements)
      refuse("its sizes are too large");
    int64_t needed = *elements * (operands_[i]->type == 'b' ? 1 : bytesOf(static_cast<Storage>(types_[i])));
    if (uint64_t has = call_.buffers(static_cast<int>(i)).bytes(); has < static_cast<uint64_t>(needed))
      refuse("buffer " + std::to_string(i) + " has " + std::to_string(has) + " bytes, needs " + std::to_string(needed));
  }
}

int64_t CallReader::size(std::string_view name, int64_t minimum) const {
  size_t index = *rows_.function->findSize(name);
  int64_t value = (*rows_.sizes)[index];
  if (value < minimum)
    refuse("size " + std::to_string(index) + " is " + std::to_string(value) + ", needs at least " +
           std::to_string(minimum));
  return value;
}

Zigzag CallReader::zigzag() const {
  int64_t order = size("zigzag");
  if (order > static_cast<int64_t>(Zigzag::To))
    refuse("zigzag is " + std::to_string(order) + ", needs to be 0, 1 or 2");
  if (order != 0 && size("bytes") % 2 != 0)
    refuse("has blocks of " + std::to_string(size("bytes")) + " bytes, which have no halves");
  return static_cast<Zigzag>(order);
}

double CallReader::real(std::string_view name) const {
  size_t index = *rows_.function->findFloat(name);
  bool isGiven = static_cast<int>(index) < call_.floats_size();
  return isGiven ? call_.floats(static_cast<int>(index)) : std::stod(rows_.function->floats[index].initial);
}

bool CallReader::has(std::string_view operand) const {
  return std::ranges::count(operands_, operand, &OperandSignature::name) > 0;
}

int CallReader::buffer(std::string_view operand) const {
  return static_cast<int>(std::ranges::find(operands_, operand, &OperandSignature::name) - operands_.begin());
}

Storage CallReader::storage(std::string_view operand) const {
  return static_cast<Storage>(types_[static_cast<size_t>(buffer(operand))]);
}

void CallReader::needScalars(int count, const std::string &reason) const {
  if (call_.scalars_size() < count)
    refuse("has " + std::to_string(call_.scalars_size()) + " scalars, needs " + std::to_string(count) + " " + reason);
}

int64_t CallReader::product(int64_t a, int64_t b) const {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    refuse("its sizes are too large");
  return result;
}

void CallReader::refuse(const pb::LibraryCall &call, const std::string &reason) {
  throw std::invalid_argument("library call " + pb::LibraryCall::Function_Name(call.function()) + ": " + reason);
}

} // namespace espalier::rt
