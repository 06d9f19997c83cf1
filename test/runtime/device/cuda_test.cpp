// Tests the parts of the CUDA back end on the device that the loader finds. The device is emulated in the test suite.
// It is real where this program is copied to a machine with a GPU (build/test/gpu/device_test).
#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/cuda/movement.h"
#include "runtime/status.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

namespace espalier::rt::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

constexpr uint64_t mebibyte = 1 << 20;

/// Returns the PlanError that `work` throws, or an empty string.
template <typename Work> std::string errorOf(Work work) {
  try {
    work();
  } catch (const PlanError &error) {
    return error.what();
  }
  return "";
}

/// A device with an arena of 16 MiB and a workspace.
class Cuda : public testing::Test {
protected:
  Driver driver;
  Context context{driver, /*ordinal=*/0};
  Queue queue{driver};
  Staging staging{driver};
  Memory memory{context, queue, 16 * mebibyte, Matmuls::workspaceBytes};

  template <typename Value> void write(uint64_t offset, const std::vector<Value> &values) {
    staging.copyIn(queue, memory.at(offset), values.data(), values.size() * sizeof(Value));
  }
  template <typename Value> std::vector<Value> read(uint64_t offset, size_t count) {
    std::vector<Value> values(count);
    staging.copyOut(queue, values.data(), memory.at(offset), count * sizeof(Value));
    return values;
  }
};

std::vector<uint8_t> randomBytes(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t &byte : bytes)
    byte = static_cast<uint8_t>(generator());
  return bytes;
}

TEST_F(Cuda, DescribesTheDevice) { EXPECT_THAT(context.describe(), MatchesRegex(".+ sm_[0-9]+")); }

TEST_F(Cuda, RejectsAMissingDevice) {
  EXPECT_THAT(errorOf([&] { Context(driver, 1000); }),
              MatchesRegex("the plan needs CUDA device 1000, this machine shows [0-9]+.*"));
}

TEST_F(Cuda, MemoryIsZeroed) {
  EXPECT_EQ(read<uint8_t>(0, 16 * mebibyte), std::vector<uint8_t>(16 * mebibyte));
  EXPECT_EQ(memory.bytes(), 16 * mebibyte + Matmuls::workspaceBytes);
}

TEST_F(Cuda, RejectsTooMuchMemoryWithBothNumbers) {
  std::string error;
  try {
    Memory(context, queue, uint64_t{1} << 50, mebibyte);
  } catch (const MemoryError &refusal) {
    error = refusal.what();
  }
  EXPECT_THAT(error,
              MatchesRegex("the plan needs 1048576\\.00 GiB of device memory \\(arena of 1125899906842624 bytes, "
                           "workspace of 1048576 bytes\\), CUDA device 0 \\(.* sm_[0-9]+\\) has .* GiB free of "
                           ".* GiB"));
}

/// Tests copies of whole staging blocks, of parts of a block, and of more blocks than exist.
TEST_F(Cuda, CopiesInAndOut) {
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{4 * mebibyte}, size_t{4 * mebibyte + 3}, size_t{15 * mebibyte + 7}}) {
    std::vector<uint8_t> bits = randomBytes(bytes, static_cast<unsigned>(bytes));
    write(64, bits);
    EXPECT_EQ(read<uint8_t>(64, bytes), bits) << bytes;
  }
}

TEST_F(Cuda, TheHostMayReuseWhatItCopiedIn) {
  std::vector<uint8_t> bits = randomBytes(5 * mebibyte, 1), kept = bits;
  write(0, bits);
  std::fill(bits.begin(), bits.end(), 0);
  EXPECT_EQ(read<uint8_t>(0, kept.size()), kept);
}

// y[i] = factor x[i] over an extent, with one element per thread. Operands are passed as for kernels of plans.
constexpr char scalePtx[] = R"(
.version 8.0
.target sm_80
.address_size 64

.visible .entry scale(
	.param .u64 x,
	.param .u64 y,
	.param .u64 factor,
	.param .u64 extent
)
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<5>;
	.reg .f32 	%f<4>;
	.reg .b64 	%rd<10>;

	ld.param.u64 	%rd1, [x];
	ld.param.u64 	%rd2, [y];
	ld.param.u64 	%rd3, [factor];
	ld.param.u64 	%rd4, [extent];
	mov.u32 	%r1, %ctaid.x;
	mov.u32 	%r2, %ntid.x;
	mov.u32 	%r3, %tid.x;
	mad.lo.s32 	%r4, %r1, %r2, %r3;
	cvt.u64.u32 	%rd5, %r4;
	setp.ge.s64 	%p1, %rd5, %rd4;
	@%p1 bra 	DONE;
	shl.b64 	%rd6, %rd5, 2;
	add.s64 	%rd7, %rd1, %rd6;
	add.s64 	%rd8, %rd2, %rd6;
	ld.global.f32 	%f1, [%rd7];
	cvt.rn.f32.s64 	%f2, %rd3;
	mul.rn.f32 	%f3, %f1, %f2;
	st.global.f32 	[%rd8], %f3;
DONE:
	ret;
}
)";

std::vector<float> counting(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(i);
  return values;
}

class Scale : public Cuda {
protected:
  static constexpr uint32_t threads = 64, elements = 1000;
  Module module{context, scalePtx};
  Kernel kernel = module.kernel("scale", threads);

  void enqueue(Queue &on, uint64_t from, uint64_t to, int64_t factor) {
    uint64_t arguments[] = {memory.at(from), memory.at(to), static_cast<uint64_t>(factor), elements};
    launch(on, kernel, {.blocksX = (elements + threads - 1) / threads, .threads = threads}, arguments);
  }
};

TEST_F(Scale, CoversExactlyTheExtent) {
  write(0, counting(elements + 1));
  write(8192, std::vector<float>(elements + 1, 7));
  enqueue(queue, 0, 8192, -3);
  std::vector<float> result = read<float>(8192, elements + 1);
  for (uint32_t i = 0; i < elements; ++i)
    ASSERT_EQ(result[i], -3.0f * static_cast<float>(i));
  EXPECT_EQ(result[elements], 7);
}

TEST_F(Scale, ReportsItsResources) {
  EXPECT_GT(kernel.registers, 0);
  EXPECT_EQ(kernel.localBytes, 0);
  EXPECT_EQ(kernel.sharedBytes, 0);
  EXPECT_GE(kernel.maxThreads, 64);
}

/// Launches kernels alternately on two queues. Each waits for the previous one.
TEST_F(Scale, EventsOrderTwoQueues) {
  Queue other(driver);
  Event done(driver);
  write(0, counting(elements));
  uint64_t places[] = {0, 8192};
  constexpr int rounds = 10;
  for (int i = 0; i < rounds; ++i) {
    Queue &from = i % 2 ? other : queue, &to = i % 2 ? queue : other;
    enqueue(from, places[i % 2], places[(i + 1) % 2], 2);
    from.record(done);
    to.waitFor(done);
  }
  EXPECT_EQ(read<float>(places[rounds % 2], elements).back(), static_cast<float>(elements - 1) * 1024);
}

TEST_F(Scale, AnEventPassesWhenItsWorkIsDone) {
  Event begin(driver, /*isTimed=*/true), end(driver, /*isTimed=*/true);
  EXPECT_TRUE(begin.isPassed());
  queue.record(begin);
  enqueue(queue, 0, 8192, 2);
  queue.record(end);
  end.wait();
  EXPECT_TRUE(begin.isPassed());
  EXPECT_GE(end.secondsSince(begin), 0);
  queue.finish();
}

TEST_F(Cuda, ReportsAFailedCallWithItsLocation) {
  Event never(driver, /*isTimed=*/true), neither(driver, /*isTimed=*/true);
  try {
    never.secondsSince(neither);
    FAIL() << "there is time between events that were never recorded";
  } catch (const CallError &error) {
    EXPECT_THAT(error.what(), MatchesRegex("cuEventElapsedTime at queue.cpp:[0-9]+: .+"));
  }
}

TEST_F(Scale, ReportsAMissingKernel) {
  EXPECT_EQ(errorOf([&] { module.kernel("scala"); }), "the plan's kernels lack 'scala'");
}

TEST_F(Scale, TooManyThreadsAreRefused) {
  EXPECT_THAT(errorOf([&] { module.kernel("scale", 4096); }),
              MatchesRegex("kernel 'scale' needs blocks of 4096 threads, .* runs at most [0-9]+ of it"));
}

TEST_F(Scale, TooMuchSharedMemoryIsRefused) {
  EXPECT_THAT(
      errorOf([&] { module.kernel("scale", threads, 16 << 20); }),
      MatchesRegex("kernel 'scale' needs 16777216 bytes of dynamic and 0 of static shared memory, .* has [0-9]+ for "
                   "a block"));
}

TEST_F(Cuda, RejectsInvalidKernelsWithTheLog) {
  std::string text = scalePtx;
  text.replace(text.find("mul.rn.f32"), 10, "mull.rn.f3");
  EXPECT_THAT(errorOf([&] { Module(context, text).kernel("scale"); }),
              AllOf(StartsWith("the driver does not compile the plan's kernels for "), HasSubstr("\n")));
}

// y[extent - 1 - i] = x[i] in one block, with 1 KiB of shared memory per thread.
constexpr char reversePtx[] = R"(
.version 8.0
.target sm_80
.address_size 64

.extern .shared .align 16 .b8 room[];

.visible .entry reverse(
	.param .u64 x,
	.param .u64 y,
	.param .u64 extent
)
{
	.reg .b32 	%r<8>;
	.reg .f32 	%f<3>;
	.reg .b64 	%rd<9>;

	ld.param.u64 	%rd1, [x];
	ld.param.u64 	%rd2, [y];
	ld.param.u64 	%rd3, [extent];
	mov.u32 	%r1, %tid.x;
	cvt.u32.u64 	%r2, %rd3;
	mul.wide.u32 	%rd4, %r1, 4;
	add.s64 	%rd5, %rd1, %rd4;
	ld.global.f32 	%f1, [%rd5];
	shl.b32 	%r3, %r1, 10;
	mov.u32 	%r4, room;
	add.s32 	%r5, %r4, %r3;
	st.shared.f32 	[%r5], %f1;
	bar.sync 	0;
	sub.s32 	%r6, %r2, %r1;
	add.s32 	%r6, %r6, -1;
	shl.b32 	%r7, %r6, 10;
	add.s32 	%r7, %r4, %r7;
	ld.shared.f32 	%f2, [%r7];
	add.s64 	%rd6, %rd2, %rd4;
	st.global.f32 	[%rd6], %f2;
	ret;
}
)";

TEST_F(Cuda, ABlockCanHaveMoreSharedMemoryThanUsual) {
  constexpr uint32_t threads = 96, shared = threads * 1024;
  Module module(context, reversePtx);
  Kernel kernel = module.kernel("reverse", threads, shared);
  std::vector<float> values = counting(threads);
  write(0, values);
  uint64_t arguments[] = {memory.at(0), memory.at(4096), threads};
  launch(queue, kernel, {.threads = threads, .sharedBytes = shared}, arguments);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(read<float>(4096, threads), values);
}

struct CopyCase {
  const char *name;
  StridedCopy copy;
};

class Copy : public Cuda, public testing::WithParamInterface<CopyCase> {};

TEST_P(Copy, MovesOnlyTheBlocks) {
  const StridedCopy &strides = GetParam().copy;
  std::vector<uint8_t> from = randomBytes(8192, 1), to = randomBytes(8192, 2);
  write(0, from);
  write(8192, to);
  copy(queue, memory.at(8192), memory.at(0), strides);
  for (int64_t block = 0; block < strides.blocks; ++block)
    std::memcpy(&to[block * strides.toStride], &from[block * strides.fromStride], strides.bytes);
  EXPECT_EQ(read<uint8_t>(8192, to.size()), to);
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, Copy,
    testing::Values(CopyCase{"Dense", {.blocks = 7, .fromStride = 100, .toStride = 100, .bytes = 100}},
                    CopyCase{"OutOfLongerRows", {.blocks = 20, .fromStride = 200, .toStride = 64, .bytes = 64}},
                    CopyCase{"IntoLongerRows", {.blocks = 20, .fromStride = 64, .toStride = 200, .bytes = 64}},
                    CopyCase{"One", {.blocks = 1, .fromStride = 9, .toStride = 5, .bytes = 333}},
                    CopyCase{"TheSameBlockAgain", {.blocks = 5, .fromStride = 0, .toStride = 64, .bytes = 48}},
                    CopyCase{"OverlappingBlocks", {.blocks = 5, .fromStride = 16, .toStride = 64, .bytes = 48}},
                    CopyCase{"None", {.blocks = 0, .fromStride = 64, .toStride = 64, .bytes = 64}},
                    CopyCase{"Empty", {.blocks = 3, .fromStride = 64, .toStride = 64, .bytes = 0}}),
    [](const auto &info) { return info.param.name; });

TEST_F(Cuda, ZeroClearsOnlyItsBytes) {
  write(0, std::vector<uint8_t>(100, 9));
  zero(queue, memory.at(10), 80);
  zero(queue, memory.at(95), 0);
  std::vector<uint8_t> expected(100, 9);
  std::fill(expected.begin() + 10, expected.begin() + 90, 0);
  EXPECT_EQ(read<uint8_t>(0, 100), expected);
}

std::vector<uint8_t> stored(const std::vector<float> &values, Storage storage) {
  std::vector<uint8_t> bytes(values.size() * bytesOf(storage));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = storage == Storage::BF16 ? floatToBf16(values[i]) : floatToF16(values[i]);
    std::memcpy(&bytes[i * bytesOf(storage)], storage == Storage::F32 ? static_cast<const void *>(&values[i]) : &half,
                bytesOf(storage));
  }
  return bytes;
}

class Product : public Cuda, public testing::WithParamInterface<MatmulShape> {
protected:
  static constexpr uint64_t placeA = 0, placeB = 4 * mebibyte, placeC = 8 * mebibyte, placeRow = 12 * mebibyte,
                            placeMatrix = 14 * mebibyte;
  CublasLt cublas;
  Matmuls matmuls{context, cublas};

  /// Returns small whole numbers. Every sum is exact in any order, so that results can be compared bit by bit.
  std::vector<float> values(int64_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<float> result(count);
    for (float &value : result)
      value = static_cast<float>(static_cast<int>(generator() % 5)) - 2;
    return result;
  }

  std::vector<uint8_t> run(const MatmulShape &shape, bool accumulates) {
    matmuls.run(queue, matmuls.prepare(shape),
                {memory.at(placeA), memory.at(placeB), memory.at(placeC), memory.at(placeRow), memory.at(placeMatrix)},
                accumulates, memory.workspace());
    return read<uint8_t>(placeC, shape.batch * shape.m * shape.n * bytesOf(shape.c));
  }
};

std::vector<float> reference(const MatmulShape &shape, const std::vector<float> &a, const std::vector<float> &b,
                             std::vector<float> c) {
  for (int64_t matrix = 0; matrix < shape.batch; ++matrix)
    for (int64_t i = 0; i < shape.m; ++i)
      for (int64_t j = 0; j < shape.n; ++j)
        for (int64_t k = 0; k < shape.k; ++k) {
          int64_t inA = matrix * shape.m * shape.k + (shape.transposeA ? k * shape.m + i : i * shape.k + k);
          int64_t inB = matrix * shape.k * shape.n + (shape.transposeB ? j * shape.k + k : k * shape.n + j);
          c[(matrix * shape.m + i) * shape.n + j] += a[inA] * b[inB];
        }
  return c;
}

TEST_P(Product, EqualsTheHostsProduct) {
  const MatmulShape &shape = GetParam();
  std::vector<float> a = values(shape.batch * shape.m * shape.k, 1), b = values(shape.batch * shape.k * shape.n, 2);
  std::vector<float> c = values(shape.batch * shape.m * shape.n, 3);
  write(placeA, stored(a, shape.a));
  write(placeB, stored(b, shape.b));
  for (bool accumulates : {false, true}) {
    write(placeC, stored(c, shape.c));
    std::vector<float> sums = reference(shape, a, b, accumulates ? c : std::vector<float>(c.size()));
    EXPECT_EQ(run(shape, accumulates), stored(sums, shape.c)) << shape.describe() << ", adding: " << accumulates;
  }
}

std::vector<float> floatsOf(const std::vector<uint8_t> &bytes, Storage storage) {
  std::vector<float> values(bytes.size() / bytesOf(storage));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(storage == Storage::F32 ? static_cast<void *>(&values[i]) : &half, &bytes[i * bytesOf(storage)],
                bytesOf(storage));
    if (storage != Storage::F32)
      values[i] = storage == Storage::BF16 ? bf16ToFloat(half) : f16ToFloat(half);
  }
  return values;
}

float gelu(float x) { return x / 2 * (1 + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x))); }

TEST_F(Product, EpiloguesAddBiasAndMatrix) {
  for (Storage storage : {Storage::F32, Storage::BF16})
    for (Epilogue epilogue : {pb::LibraryCall::BIAS, pb::LibraryCall::ADD, pb::LibraryCall::BIAS_ADD}) {
      MatmulShape shape = {.m = 48, .n = 24, .k = 40, .a = storage, .b = storage, .c = storage, .epilogue = epilogue};
      std::vector<float> a = values(shape.m * shape.k, 1), b = values(shape.k * shape.n, 2);
      std::vector<float> bias = values(shape.n, 4), addend = values(shape.m * shape.n, 5);
      write(placeA, stored(a, storage));
      write(placeB, stored(b, storage));
      write(placeRow, stored(bias, storage));
      write(placeMatrix, stored(addend, storage));
      std::vector<float> sums = reference(shape, a, b, std::vector<float>(addend.size()));
      for (size_t i = 0; i < sums.size(); ++i)
        sums[i] += (shape.hasBias() ? bias[i % bias.size()] : 0) + (shape.adds() ? addend[i] : 0);
      EXPECT_EQ(run(shape, /*accumulates=*/false), stored(sums, storage)) << shape.describe();
      EXPECT_EQ(read<uint8_t>(placeMatrix, addend.size() * bytesOf(storage)), stored(addend, storage));
    }
}

TEST_F(Product, EpiloguesComputeGeluAndItsDerivative) {
  MatmulShape shape = {.m = 48,
                       .n = 24,
                       .k = 8,
                       .a = Storage::BF16,
                       .b = Storage::BF16,
                       .c = Storage::BF16,
                       .epilogue = pb::LibraryCall::BIAS_GELU};
  std::vector<float> a = values(shape.m * shape.k, 1), b = values(shape.k * shape.n, 2), bias = values(shape.n, 4);
  write(placeA, stored(a, shape.a));
  write(placeB, stored(b, shape.b));
  write(placeRow, stored(bias, shape.c));
  std::vector<float> x = reference(shape, a, b, std::vector<float>(shape.m * shape.n)), products = x;
  for (size_t i = 0; i < x.size(); ++i)
    x[i] += bias[i % bias.size()];
  std::vector<float> active = floatsOf(run(shape, /*accumulates=*/false), shape.c);
  EXPECT_EQ(read<uint8_t>(placeMatrix, 2 * x.size()), stored(x, shape.c));
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(active[i], gelu(x[i]), 0.004 * std::abs(x[i]) + 1e-6) << x[i];
  shape.keepsOperand = false;
  EXPECT_EQ(shape.bytesOfMatrix(), 0);
  EXPECT_EQ(floatsOf(run(shape, /*accumulates=*/false), shape.c), active);
  shape.epilogue = pb::LibraryCall::GELU_GRADIENT;
  std::vector<float> gradient = floatsOf(run(shape, /*accumulates=*/false), shape.c);
  for (size_t i = 0; i < x.size(); ++i) {
    float slope = (gelu(x[i] + 0.01F) - gelu(x[i] - 0.01F)) / 0.02F;
    EXPECT_NEAR(gradient[i], products[i] * slope, 0.005 * std::abs(products[i]) + 1e-3) << x[i];
  }
}

TEST_F(Product, EpiloguesComputeBiasGradients) {
  for (Storage storage : {Storage::BF16, Storage::F16})
    for (bool accumulates : {false, true}) {
      MatmulShape shape = {.m = 48, .n = 24, .k = 40, .a = storage, .b = storage, .c = Storage::F32};
      shape.transposeA = true;
      shape.epilogue = pb::LibraryCall::BIAS_GRADIENT;
      std::vector<float> a = values(shape.m * shape.k, 1), b = values(shape.k * shape.n, 2),
                         c = values(shape.m * shape.n, 3);
      write(placeA, stored(a, shape.a));
      write(placeB, stored(b, shape.b));
      write(placeC, stored(c, shape.c));
      write(placeRow, stored(std::vector<float>(shape.n, 99), shape.c));
      std::vector<float> sums(shape.n);
      for (int64_t k = 0; k < shape.k; ++k)
        for (int64_t n = 0; n < shape.n; ++n)
          sums[n] += b[k * shape.n + n];
      EXPECT_EQ(run(shape, accumulates),
                stored(reference(shape, a, b, accumulates ? c : std::vector<float>(c.size())), shape.c));
      EXPECT_EQ(read<uint8_t>(placeRow, 4 * shape.n), stored(sums, shape.c)) << "overwritten, adding or not";
    }
}

std::vector<MatmulShape> shapes() {
  using enum Storage;
  std::vector<MatmulShape> all;
  for (auto [inputs, output] : {std::pair{F32, F32}, {BF16, BF16}, {BF16, F32}, {F16, F16}, {F16, F32}})
    for (bool transposeA : {false, true})
      for (bool transposeB : {false, true}) {
        MatmulShape shape = {.m = 48, .n = 24, .k = 40, .a = inputs, .b = inputs, .c = output};
        shape.transposeA = transposeA;
        shape.transposeB = transposeB;
        all.push_back(shape);
        shape.batch = 3;
        all.push_back(shape);
      }
  MatmulShape odd = {.m = 7, .n = 5, .k = 3, .a = BF16, .b = BF16, .c = F32, .alignments = {2, 2, 4, 4, 4}};
  MatmulShape noTerms = {.m = 8, .n = 8, .k = 0}, noRows = {.m = 0, .n = 8, .k = 8}, none = {.m = 8, .n = 8, .k = 8};
  none.batch = 0;
  all.insert(all.end(), {odd, noTerms, noRows, none});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Product, testing::ValuesIn(shapes()));

using Products = Product;

TEST_F(Products, OneShapeIsPreparedOnce) {
  MatmulShape shape = {.m = 16, .n = 16, .k = 16}, other = shape;
  other.transposeA = true;
  EXPECT_EQ(&matmuls.prepare(shape), &matmuls.prepare(shape));
  EXPECT_NE(&matmuls.prepare(shape), &matmuls.prepare(other));
}

TEST_F(Products, RejectTwoTypesWithTheShape) {
  MatmulShape shape = {.m = 48, .n = 24, .k = 40, .a = Storage::F32, .b = Storage::BF16, .transposeB = true};
  EXPECT_THAT(errorOf([&] { matmuls.prepare(shape); }),
              MatchesRegex("cuBLASLt [0-9]+ has no algorithm for the product of f32 \\[48, 40\\] by bf16 \\[24, 40\\] "
                           "transposed to f32 on .* sm_[0-9]+ within a workspace of 32 MiB"));
}

/// All algorithms that cuBLASLt recommends give the same result. Products with an explicit algorithm differ from those
/// with the default.
TEST_F(Products, UseTheAlgorithmsOfThePlan) {
  MatmulShape shape = {.m = 48, .n = 24, .k = 40, .a = Storage::BF16, .b = Storage::BF16, .c = Storage::BF16};
  std::vector<float> a = values(48 * 40, 1), b = values(40 * 24, 2);
  write(placeA, stored(a, shape.a));
  write(placeB, stored(b, shape.b));
  std::vector<uint8_t> want = stored(reference(shape, a, b, std::vector<float>(48 * 24)), shape.c);
  std::vector<MatmulAlgorithm> algorithms = matmuls.recommend(shape, /*most=*/4);
  ASSERT_FALSE(algorithms.empty());
  for (const MatmulAlgorithm &algorithm : algorithms) {
    const Matmuls::Product &product = matmuls.prepare(shape, algorithm);
    EXPECT_EQ(&product, &matmuls.prepare(shape, algorithm));
    EXPECT_NE(&product, &matmuls.prepare(shape));
    write(placeC, std::vector<uint8_t>(want.size(), 0xA5));
    matmuls.run(queue, product, {memory.at(placeA), memory.at(placeB), memory.at(placeC)}, /*accumulates=*/false,
                memory.workspace());
    EXPECT_EQ(read<uint8_t>(placeC, want.size()), want);
  }
}

TEST_F(Products, RejectInvalidAlgorithms) {
  MatmulShape shape = {.m = 48, .n = 24, .k = 40};
  auto refused = [&](const MatmulAlgorithm &algorithm) { return errorOf([&] { matmuls.prepare(shape, algorithm); }); };
  std::string begin = "the algorithm of cuBLASLt [0-9.]+ on sm_[0-9]+ for the product of f32 \\[48, 40\\] by f32 "
                      "\\[40, 24\\] to f32 ";
  EXPECT_THAT(refused(MatmulAlgorithm(63, 'x')), MatchesRegex(begin + "has 63 bytes, not 64; compile the plan again"));
  EXPECT_THAT(refused(MatmulAlgorithm(64, '\xff')),
              MatchesRegex(begin + "does not support this product: .+; compile the plan again"));
}

TEST_F(Products, RejectIntegers) {
  MatmulShape shape = {.m = 8, .n = 8, .k = 8, .a = Storage::I32};
  EXPECT_EQ(errorOf([&] { matmuls.prepare(shape); }), "a matrix product takes f32, bf16 or f16, got i32");
}

} // namespace
} // namespace espalier::rt::cuda
