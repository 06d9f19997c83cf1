#include "test/compiler/codegen/machine.h"

#include "dialects/exec/dialect.h"

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
  for (const pb::Object &object : plan.objects()) {
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
    for (const pb::Object &object : plan.objects())
      text = emulator::Module::parse(object.code());
}

void Machine::write(int region, uint64_t offset, pb::DataType type, const Numbers &numbers) {
  std::vector<char> &bytes = regions[region];
  bytes.resize(regionBytes, 0x7f); // a NaN-like pattern, so that a read of unwritten bytes shows
  for (size_t i = 0; i < numbers.size(); ++i)
    store(bytes.data() + offset + i * sizeOf(type), type, numbers[i]);
  written[region] = std::max(written[region], offset + numbers.size() * sizeOf(type));
}

Numbers Machine::read(int region, uint64_t offset, pb::DataType type, size_t count) {
  std::vector<char> &bytes = regions[region];
  bytes.resize(regionBytes, 0x7f);
  Numbers numbers;
  for (size_t i = 0; i < count; ++i)
    numbers.push_back(load(bytes.data() + offset + i * sizeOf(type), type));
  return numbers;
}

char *Machine::address(const pb::Buffer &buffer) {
  std::vector<char> &bytes = regions[static_cast<int>(buffer.region())];
  bytes.resize(regionBytes, 0x7f);
  uint64_t offset = buffer.offset() + value(buffer.reads_at());
  EXPECT_LE(offset + buffer.bytes(), regionBytes);
  return bytes.data() + offset;
}

pb::DataType Machine::typeOf(const pb::Buffer &buffer) const {
  return plan.values(static_cast<int>(buffer.value())).type();
}

/// Evaluates a scalar. Every coordinate is 1, and the first micro-batch overwrites all sums.
int64_t Machine::value(const pb::Affine &scalar) const {
  if (scalar.first() > 0)
    return surroundings.microBatch == 0 ? 1 : 0;
  return scalar.constant() + scalar.layer() * surroundings.layer + scalar.micro_batch() * surroundings.microBatch +
         scalar.seed() * surroundings.seed + scalar.pp() + scalar.dp() + scalar.cp() + scalar.ep() + scalar.tp();
}

/// Runs a launch as a grid of blocks, as defined by Geometry in plan.proto.
void Machine::launchText(const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  const pb::Geometry &geometry = plan.objects(0).geometry(static_cast<int>(launch.kernel()));
  emulator::Launch grid{.entry = kernel.symbol(), .sharedBytes = geometry.shared_bytes(), .reportsUndefined = true};
  grid.block = {geometry.threads()};
  grid.grid = {
      static_cast<uint32_t>((launch.extent() + geometry.extent_per_block() - 1) / geometry.extent_per_block())};
  for (const pb::Buffer &buffer : launch.buffers()) {
    char *place = address(buffer);
    std::vector<char> &region = regions[static_cast<int>(buffer.region())];
    auto [base, isNew] = deviceAddresses.try_emplace(static_cast<int>(buffer.region()), 0);
    if (isNew)
      base->second = memory.add(region.data(), region.size(), "region " + std::to_string(buffer.region()));
    grid.arguments.push_back(base->second + (place - region.data()));
  }
  for (const pb::Affine &scalar : launch.scalars())
    grid.arguments.push_back(value(scalar));
  grid.arguments.push_back(launch.extent());
  if (geometry.columns_per_block() > 0)
    grid.grid.y = (value(launch.scalars(0)) + geometry.columns_per_block() - 1) / geometry.columns_per_block();
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
  for (const pb::Buffer &buffer : launch.buffers())
    buffers.push_back(address(buffer));
  for (const pb::Affine &scalar : launch.scalars())
    scalars.push_back(value(scalar));
  rt::KernelFunction kernel = object.function(plan.kernels(launch.kernel()).symbol());
  ASSERT_NE(kernel, nullptr) << plan.kernels(launch.kernel()).symbol();
  for (int64_t begin = 0; begin < launch.extent(); begin += launch.grain())
    kernel(buffers.data(), scalars.data(), begin, std::min(launch.extent(), begin + launch.grain()));
}

bool Machine::adds(const pb::LibraryCall &call) const {
  return call.store() == pb::ADD || (call.store() == pb::ADD_UNLESS_FIRST && surroundings.microBatch > 0);
}

double Machine::element(const pb::LibraryCall &call, int buffer, int64_t index) {
  pb::DataType type = typeOf(call.buffers(buffer));
  return load(address(call.buffers(buffer)) + index * sizeOf(type), type);
}

void Machine::matmul(const pb::LibraryCall &call) {
  int64_t m = call.sizes(0), n = call.sizes(1), k = call.sizes(2);
  char *c = address(call.buffers(2));
  pb::DataType type = typeOf(call.buffers(2));
  for (int64_t batch = 0; batch < call.sizes(3); ++batch)
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < n; ++column) {
        char *place = c + ((batch * m + row) * n + column) * sizeOf(type);
        double sum = adds(call) ? load(place, type) : 0;
        if (call.epilogue() == pb::LibraryCall::BIAS)
          sum += element(call, 3, column);
        for (int64_t i = 0; i < k; ++i)
          sum += element(call, 0, batch * m * k + (call.transpose_a() ? i * m + row : row * k + i)) *
                 element(call, 1, batch * k * n + (call.transpose_b() ? column * k + i : i * n + column));
        store(place, type, sum);
      }
}

void Machine::call(const pb::LibraryCall &call) {
  using Call = pb::LibraryCall;
  char *out = address(call.buffers(call.buffers_size() - 1));
  if (call.function() == Call::MATMUL)
    return matmul(call);
  if (call.function() == Call::COPY) {
    for (int64_t i = 0; i < call.sizes(0); ++i)
      std::memmove(out + i * call.sizes(2), address(call.buffers(0)) + i * call.sizes(1), call.sizes(2));
  } else if (call.function() == Call::REARRANGE) {
    int64_t a = call.sizes(0), b = call.sizes(1), bytes = call.sizes(2);
    for (int64_t i = 0; i < a * b; ++i)
      std::memmove(out + (i % b * a + i / b) * bytes, address(call.buffers(0)) + i * bytes, bytes);
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

void Machine::checkEnds(const pb::Subprogram &subprogram) {
  std::map<int, uint64_t> ends;
  auto include = [&](const auto &buffers) {
    for (const pb::Buffer &buffer : buffers) {
      uint64_t &end = ends[static_cast<int>(buffer.region())];
      end = std::max(end, buffer.offset() + value(buffer.reads_at()) + buffer.bytes());
    }
  };
  for (const pb::Instruction &instruction : subprogram.instructions()) {
    include(instruction.launch().buffers());
    include(instruction.call().buffers());
    if (instruction.has_start())
      include(plan.transfers(static_cast<int>(instruction.start())).to());
  }
  for (auto &[region, bytes] : regions)
    for (size_t i = ends[region]; i < regionBytes; ++i)
      if (region != static_cast<int>(exec::Region::Scalars) && bytes[i] != 0x7f && i >= written[region])
        FAIL() << "byte " << i << " of region " << region << " lies behind all buffers";
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
      else if (instruction.has_start()) { // the group has one rank
        const pb::Transfer &transfer = plan.transfers(static_cast<int>(instruction.start()));
        std::memmove(address(transfer.to(0)), address(transfer.from(0)), transfer.to(0).bytes());
      }
    checkEnds(subprogram);
    return;
  }
  FAIL() << "no subprogram " << name;
}

} // namespace espalier::test
