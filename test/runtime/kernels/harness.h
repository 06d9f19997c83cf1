// Builds a library call with its buffers, and runs it with any number of threads at any instruction set level. Reads
// and writes the buffers as doubles.
#pragma once

#include "runtime/kernels/factories.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace espalier::rt {

inline double valueAt(const std::vector<char> &bytes, pb::DataType type, int64_t index) {
  if (type == pb::F32) {
    float value;
    std::memcpy(&value, bytes.data() + index * 4, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, bytes.data() + index * 2, 2);
  return type == pb::BF16 ? bf16ToFloat(half) : f16ToFloat(half);
}

inline void setValue(std::vector<char> &bytes, pb::DataType type, int64_t index, float value) {
  uint16_t half = type == pb::BF16 ? floatToBf16(value) : floatToF16(value);
  if (type == pb::F32)
    std::memcpy(bytes.data() + index * 4, &value, 4);
  else
    std::memcpy(bytes.data() + index * 2, &half, 2);
}

/// Unit roundoff of a type: half the distance from 1 to the next larger number.
inline double roundoff(pb::DataType type) { return type == pb::F32 ? 0x1p-24 : type == pb::BF16 ? 0x1p-8 : 0x1p-11; }

/// A call and its buffers. Each run checks the guard bytes after every buffer and scratch.
class CallUnderTest {
public:
  pb::LibraryCall call;
  std::vector<std::vector<char>> buffers;
  std::vector<int64_t> scalars;
  std::vector<pb::DataType> types;
  bool adds = false;
  bool quantizes = false;           ///< packs it in 8 bits
  bool packs = false;               ///< packs the second operand before the run, and then spoils it
  int64_t firstRow = 0, endRow = 0; ///< see CallArguments
  std::vector<int32_t> starts = {}; ///< see CallArguments; empty: null
  uint32_t seed = 17;

  CallUnderTest(pb::LibraryCall::Function function, std::vector<int64_t> sizes, std::vector<double> floats = {}) {
    call.set_function(function);
    call.mutable_sizes()->Add(sizes.begin(), sizes.end());
    call.mutable_floats()->Add(floats.begin(), floats.end());
  }

  void setScalars(std::vector<int64_t> values) {
    scalars = std::move(values);
    call.clear_scalars();
    for (size_t i = 0; i < scalars.size(); ++i)
      call.add_scalars();
  }

  /// Adds a buffer of normally distributed values and returns its index.
  int add(pb::DataType type, int64_t elements, double deviation = 1) {
    int index = addBytes(type, elements * (type == pb::F32 || type == pb::I32 ? 4 : 2));
    std::mt19937 generator(static_cast<uint32_t>(index) * 7919u + 1u);
    std::normal_distribution<float> normal(0, static_cast<float>(deviation));
    for (int64_t i = 0; i < elements && deviation > 0; ++i)
      setValue(buffers[static_cast<size_t>(index)], type, i, normal(generator));
    return index;
  }

  int addIds(const std::vector<int32_t> &ids) {
    int index = addBytes(pb::I32, static_cast<int64_t>(ids.size()) * 4);
    std::memcpy(buffers.back().data(), ids.data(), ids.size() * 4);
    return index;
  }

  double at(int buffer, int64_t index) const {
    return valueAt(buffers[static_cast<size_t>(buffer)], types[static_cast<size_t>(buffer)], index);
  }

  void run(int threads, const cpu::Loops &loops = cpu::bestLoops()) {
    std::unique_ptr<LibraryKernel> kernel = makeLibraryKernel(call, types, threads, loops, quantizes);
    std::vector<void *> pointers;
    for (std::vector<char> &buffer : buffers)
      pointers.push_back(buffer.data());
    Guarded shared(kernel->sharedScratchBytes());
    CallArguments arguments{.buffers = pointers.data(),
                            .scalars = scalars.data(),
                            .adds = adds,
                            .firstRow = firstRow,
                            .endRow = endRow,
                            .starts = starts.empty() ? nullptr : starts.data(),
                            .scratch = shared.data(),
                            .seed = seed};
    Guarded packed(packs ? kernel->packedBytes() : 0);
    if (packs) {
      ASSERT_TRUE(kernel->packedLayout());
      for (int64_t part = 0; part < kernel->packParts(); ++part)
        kernel->pack(pointers[1], packed.data(), part);
      EXPECT_TRUE(packed.intact()) << "wrote behind the packed weights";
      std::memset(buffers[1].data(), 0xFF, buffers[1].size() - kGuard);
      arguments.packed = packed.data();
    }
    std::atomic<int64_t> next{0};
    auto work = [&] {
      Guarded scratch(kernel->scratchBytesPerThread());
      for (int64_t part; (part = next.fetch_add(1)) < kernel->parts();)
        kernel->run(arguments, part, scratch.data());
      EXPECT_TRUE(scratch.intact()) << "wrote behind the thread's scratch";
    };
    std::vector<std::thread> pool;
    for (int i = 1; i < threads; ++i)
      pool.emplace_back(work);
    work();
    for (std::thread &thread : pool)
      thread.join();
    kernel->finish(arguments);
    EXPECT_TRUE(shared.intact()) << "wrote behind the shared scratch";
    for (size_t i = 0; i < buffers.size(); ++i)
      for (size_t guard = 0; guard < kGuard; ++guard)
        ASSERT_EQ(buffers[i][buffers[i].size() - 1 - guard], kMark) << "wrote behind buffer " << i;
  }

private:
  static constexpr size_t kGuard = 256;
  static constexpr char kMark = 0x5A;

  int addBytes(pb::DataType type, int64_t bytes) {
    buffers.emplace_back(static_cast<size_t>(bytes) + kGuard, kMark);
    std::memset(buffers.back().data(), 0, static_cast<size_t>(bytes));
    call.add_buffers()->set_bytes(static_cast<uint64_t>(bytes));
    types.push_back(type);
    return static_cast<int>(buffers.size()) - 1;
  }

  /// Scratch memory that is filled with NaNs and followed by guard bytes.
  class Guarded {
  public:
    explicit Guarded(size_t bytes) : bytes_(bytes), memory_(bytes + kGuard + 64, kMark) {
      std::memset(data(), 0xFF, bytes_);
    }
    char *data() { return memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64; }
    bool intact() {
      for (size_t i = 0; i < kGuard; ++i)
        if (data()[bytes_ + i] != kMark)
          return false;
      return true;
    }

  private:
    size_t bytes_;
    std::vector<char> memory_;
  };
};

/// Runs `make()` with 1, 2 and 3 threads and expects equal bytes in every buffer.
template <class Make> void expectSameBitsForAnyThreads(Make make) {
  CallUnderTest one = make();
  one.run(1);
  for (int threads : {2, 3}) {
    CallUnderTest many = make();
    many.run(threads);
    EXPECT_EQ(one.buffers, many.buffers) << threads << " threads";
  }
}

/// Calls body(loops) for every instruction set level of this machine.
template <class Body> void forEachLevel(Body body) {
  int count = 0;
  const cpu::Loops *const *levels = cpu::usableLoops(count);
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(std::string("level ") + levels[i]->name);
    body(*levels[i]);
  }
}

} // namespace espalier::rt
