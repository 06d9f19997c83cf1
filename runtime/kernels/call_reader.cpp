#include "runtime/kernels/call_reader.h"

#include <stdexcept>

namespace espalier::rt {

namespace {

const char *nameOf(Storage storage) {
  switch (storage) {
  case Storage::F32:
    return "f32";
  case Storage::BF16:
    return "bf16";
  case Storage::F16:
    return "f16";
  case Storage::I32:
    return "i32";
  }
  return "unknown";
}

} // namespace

CallReader::CallReader(const pb::LibraryCall &call, std::span<const pb::DataType> types, Counts counts)
    : call_(call), types_(types) {
  auto need = [this](const char *what, int got, int wanted) {
    if (got < wanted)
      refuse("has " + std::to_string(got) + " " + what + ", needs " + std::to_string(wanted));
  };
  need("buffers", call.buffers_size(), counts.buffers);
  need("sizes", call.sizes_size(), counts.sizes);
  need("floats", call.floats_size(), counts.floats);
  need("scalars", call.scalars_size(), counts.scalars);
  need("types", static_cast<int>(types.size()), counts.buffers);
}

int64_t CallReader::size(int index, int64_t minimum) const {
  int64_t value = call_.sizes(index);
  if (value < minimum)
    refuse("size " + std::to_string(index) + " is " + std::to_string(value) + ", needs at least " +
           std::to_string(minimum));
  return value;
}

Storage CallReader::floating(int index) const {
  switch (types_[static_cast<size_t>(index)]) {
  case pb::F32:
    return Storage::F32;
  case pb::BF16:
    return Storage::BF16;
  case pb::F16:
    return Storage::F16;
  default:
    refuse("buffer " + std::to_string(index) + " has type " + std::to_string(types_[static_cast<size_t>(index)]) +
           ", needs f32, bf16 or f16");
  }
}

void CallReader::expect(int index, Storage storage) const {
  if (static_cast<int>(types_[static_cast<size_t>(index)]) != static_cast<int>(storage))
    refuse("buffer " + std::to_string(index) + " needs type " + nameOf(storage));
}

void CallReader::expectOne(int index, Storage storage) const {
  expect(index, storage);
  holds(index, {1}, bytesOf(storage));
}

int64_t CallReader::product(std::initializer_list<int64_t> dims) const {
  int64_t result = 1;
  for (int64_t dim : dims)
    if (dim == 0)
      return 0;
  for (int64_t dim : dims)
    if (__builtin_mul_overflow(result, dim, &result) || result >= int64_t{1} << 62)
      refuse("its sizes are too large");
  return result;
}

void CallReader::holds(int index, std::initializer_list<int64_t> dims, int64_t bytesPerElement) const {
  int64_t needed = product({product(dims), bytesPerElement});
  uint64_t has = call_.buffers(index).bytes();
  if (has < static_cast<uint64_t>(needed))
    refuse("buffer " + std::to_string(index) + " has " + std::to_string(has) + " bytes, needs " +
           std::to_string(needed));
}

void CallReader::refuse(const std::string &reason) const {
  throw std::invalid_argument("library call " + pb::LibraryCall::Function_Name(call_.function()) + ": " + reason);
}

} // namespace espalier::rt
