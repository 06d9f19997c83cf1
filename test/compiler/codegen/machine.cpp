#include "test/compiler/codegen/machine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

namespace espalier::test {

namespace pb = rt::pb;

namespace {

constexpr size_t regionBytes = 1 << 22;

size_t sizeOf(pb::DataType type) { return type == pb::BF16 || type == pb::F16 ? 2 : 4; }

void store(char *place, pb::DataType type, double number) {
  if (type == pb::I32) {
    auto integer = static_cast<int32_t>(number);
    std::memcpy(place, &integer, 4);
  } else if (type == pb::F32) {
    auto real = static_cast<float>(number);
    std::memcpy(place, &real, 4);
  } else if (type == pb::BF16) {
    auto bits = __builtin_bit_cast(uint32_t, static_cast<float>(number));
    auto half = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    std::memcpy(place, &half, 2);
  } else {
    auto half = static_cast<_Float16>(number);
    std::memcpy(place, &half, 2);
  }
}

double load(const char *place, pb::DataType type) {
  if (type == pb::I32) {
    int32_t integer;
    std::memcpy(&integer, place, 4);
    return integer;
  }
  if (type == pb::F32) {
    float real;
    std::memcpy(&real, place, 4);
    return real;
  }
  uint16_t bits;
  std::memcpy(&bits, place, 2);
  if (type == pb::BF16)
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  return static_cast<double>(__builtin_bit_cast(_Float16, bits));
}

} // namespace

std::vector<std::string> hostLevels() {
  std::vector<std::string> levels = {"x86-64"};
  if (__builtin_cpu_supports("x86-64-v3"))
    levels.push_back("x86-64-v3");
  if (__builtin_cpu_supports("x86-64-v4"))
    levels.push_back("x86-64-v4");
  return levels;
}

std::vector<std::string> allLevels() {
  std::vector<std::string> levels = hostLevels();
  levels.emplace_back(gpuLevel);
  return levels;
}

LoadedObject::LoadedObject(const pb::Plan &plan, const std::string &level) {
  if (level == gpuLevel)
    return;
  for (const pb::KernelObject &object : plan.objects()) {
    if (object.level() != level)
      continue;
    char path[] = "/tmp/espalier_kernels_XXXXXX";
    int file = mkstemp(path);
    const std::string &bytes = object.code();
    EXPECT_EQ(::write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(file);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << dlerror();
    unlink(path);
  }
}

LoadedObject::~LoadedObject() {
  if (handle)
    dlclose(handle);
}

rt::KernelFunction LoadedObject::function(const std::string &symbol) const {
  return handle ? reinterpret_cast<rt::KernelFunction>(dlsym(handle, symbol.c_str())) : nullptr;
}

Machine::Machine(const pb::Plan &plan, const std::string &level, const Surroundings &surroundings)
    : plan(plan), object(plan, level), surroundings(surroundings) {
  if (level == gpuLevel)
    for (const pb::KernelObject &object : plan.objects())
      text = emulator::Module::parse(object.code());
}

void Machine::write(int region, uint64_t offset, pb::DataType type, const Numbers &numbers) {
  std::vector<char> &bytes = regions[region];
  bytes.resize(regionBytes, 0x7f); // NaN-like: what is never written must not be read
  for (size_t i = 0; i < numbers.size(); ++i)
    store(bytes.data() + offset + i * sizeOf(type), type, numbers[i]);
}

Numbers Machine::read(int region, uint64_t offset, pb::DataType type, size_t count) {
  std::vector<char> &bytes = regions[region];
  bytes.resize(regionBytes, 0x7f);
  Numbers numbers;
  for (size_t i = 0; i < count; ++i)
    numbers.push_back(load(bytes.data() + offset + i * sizeOf(type), type));
  return numbers;
}

char *Machine::address(const pb::BufferRef &buffer) {
  std::vector<char> &bytes = regions[buffer.region()];
  bytes.resize(regionBytes, 0x7f);
  uint64_t offset = buffer.offset();
  for (const pb::AxisTerm &term : buffer.coordinates())
    offset += term.coefficient(); // every coordinate is 1
  EXPECT_LE(offset + buffer.bytes(), regionBytes);
  return bytes.data() + offset;
}

int64_t Machine::value(const pb::Scalar &scalar) const {
  int64_t value = scalar.constant() + scalar.step() * surroundings.step + scalar.layer() * surroundings.layer +
                  scalar.micro_batch() * surroundings.microBatch + scalar.seed() * surroundings.seed;
  for (const pb::AxisTerm &term : scalar.coordinates())
    value += term.coefficient();
  return value;
}

/// A grid of blocks, as plan.proto says.
void Machine::launchText(const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(launch.kernel());
  emulator::Launch grid{.entry = kernel.symbol(), .sharedBytes = kernel.shared_bytes(), .reportsUndefined = true};
  grid.block = {kernel.threads()};
  grid.grid = {static_cast<uint32_t>((launch.extent() + kernel.extent_per_block() - 1) / kernel.extent_per_block())};
  for (const pb::BufferRef &buffer : launch.buffers()) {
    char *place = address(buffer);
    std::vector<char> &region = regions[buffer.region()];
    auto [base, isNew] = deviceAddresses.try_emplace(buffer.region(), 0);
    if (isNew)
      base->second = memory.add(region.data(), region.size(), pb::Region_Name(buffer.region()));
    grid.arguments.push_back(base->second + (place - region.data()));
  }
  for (const pb::Scalar &scalar : launch.scalars())
    grid.arguments.push_back(value(scalar));
  grid.arguments.push_back(launch.extent());
  if (kernel.columns_per_block() > 0)
    grid.grid.y = (value(launch.scalars(0)) + kernel.columns_per_block() - 1) / kernel.columns_per_block();
  try {
    text->launch(grid, memory);
  } catch (const emulator::Fault &fault) {
    FAIL() << fault.what();
  }
}

void Machine::launch(const pb::Launch &launch) {
  if (text)
    return launchText(launch);
  std::vector<void *> buffers;
  std::vector<int64_t> scalars;
  for (const pb::BufferRef &buffer : launch.buffers())
    buffers.push_back(address(buffer));
  for (const pb::Scalar &scalar : launch.scalars())
    scalars.push_back(value(scalar));
  rt::KernelFunction kernel = object.function(plan.kernels(launch.kernel()).symbol());
  ASSERT_NE(kernel, nullptr) << plan.kernels(launch.kernel()).symbol();
  for (int64_t begin = 0; begin < launch.extent(); begin += launch.grain())
    kernel(buffers.data(), scalars.data(), begin, std::min(launch.extent(), begin + launch.grain()));
}

bool Machine::adds(const pb::LibraryCall &call) const {
  return call.always_adds() || (call.accumulate() && surroundings.microBatch > 0);
}

double Machine::element(const pb::LibraryCall &call, int buffer, int64_t index) {
  return load(address(call.buffers(buffer)) + index * sizeOf(call.types(buffer)), call.types(buffer));
}

void Machine::matmul(const pb::LibraryCall &call) {
  int64_t m = call.sizes(0), n = call.sizes(1), k = call.sizes(2);
  char *c = address(call.buffers(2));
  for (int64_t batch = 0; batch < call.sizes(3); ++batch)
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < n; ++column) {
        char *place = c + ((batch * m + row) * n + column) * sizeOf(call.types(2));
        double sum = adds(call) ? load(place, call.types(2)) : 0;
        for (int64_t i = 0; i < k; ++i)
          sum += element(call, 0, batch * m * k + (call.transpose_a() ? i * m + row : row * k + i)) *
                 element(call, 1, batch * k * n + (call.transpose_b() ? column * k + i : i * n + column));
        store(place, call.types(2), sum);
      }
}

void Machine::call(const pb::LibraryCall &call) {
  using Call = pb::LibraryCall;
  char *out = address(call.buffers(call.buffers_size() - 1));
  if (call.function() == Call::MATMUL)
    return matmul(call);
  if (call.function() == Call::COPY) {
    for (int64_t i = 0; i < call.sizes(0); ++i)
      std::memmove(out + i * call.sizes(2), address(call.buffers(0)) + i * call.sizes(1), call.sizes(3));
  } else if (call.function() == Call::ZERO) {
    std::memset(out, 0, call.sizes(0));
  } else if (call.function() == Call::REDUCE_PARTS) {
    for (int64_t i = 0; i < call.sizes(1); ++i) {
      double sum = adds(call) ? load(out + 4 * i, pb::F32) : 0;
      for (int64_t part = 0; part < call.sizes(0); ++part)
        sum += element(call, 0, part * call.sizes(1) + i);
      store(out + 4 * i, pb::F32, sum);
    }
  } else if (call.function() == Call::SQUARED_NORM) {
    double sum = load(out, pb::F32);
    for (int64_t i = 0; i < call.sizes(0); ++i)
      sum += call.floats(0) * element(call, 0, i) * element(call, 0, i);
    store(out, pb::F32, sum);
  } else {
    FAIL() << "the machine has no function " << call.function();
  }
}

void Machine::run(const std::string &name) {
  for (const pb::Subprogram &subprogram : plan.subprograms()) {
    if (subprogram.name() != name)
      continue;
    for (const pb::Instruction &instruction : subprogram.instructions())
      if (instruction.has_launch())
        launch(instruction.launch());
      else if (instruction.has_call())
        call(instruction.call());
      else if (instruction.has_start()) // a group of one
        std::memmove(address(instruction.start().to(0)), address(instruction.start().from(0)),
                     instruction.start().to(0).bytes());
    for (auto &[region, bytes] : regions)
      for (size_t i = subprogram.region_bytes(region); i < regionBytes; ++i)
        if (region != pb::SCALARS && bytes[i] != 0x7f) {
          FAIL() << "byte " << i << " of region " << region << " lies beyond region_bytes";
        }
    return;
  }
  FAIL() << "no subprogram " << name;
}

} // namespace espalier::test
