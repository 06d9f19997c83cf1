// The CUDA back end as the executor sees it, opened as for a run: a plan by hand, its launches and calls, and what is
// said of plans that do not run here.
#include "runtime/comm/local.h"
#include "runtime/device/device.h"
#include "runtime/status.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <functional>

namespace espalier::rt {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// y[row, column] = seven-digit number of both, plus the launch's number: a block does 4 rows and 32 columns.
constexpr char numberPtx[] = R"(
.version 8.0
.target sm_80
.address_size 64

.visible .entry number(
	.param .u64 y,
	.param .u64 columns,
	.param .u64 addend,
	.param .u64 extent
)
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<16>;
	.reg .f32 	%f<2>;
	.reg .b64 	%rd<8>;

	ld.param.u64 	%rd1, [y];
	ld.param.u64 	%rd2, [columns];
	ld.param.u64 	%rd3, [addend];
	ld.param.u64 	%rd4, [extent];
	cvt.u32.u64 	%r1, %rd2;
	cvt.u32.u64 	%r2, %rd3;
	cvt.u32.u64 	%r3, %rd4;
	mov.u32 	%r4, %ctaid.y;
	mov.u32 	%r5, %tid.x;
	shl.b32 	%r6, %r4, 5;
	add.s32 	%r7, %r6, %r5;
	setp.ge.s32 	%p1, %r7, %r1;
	@%p1 bra 	DONE;
	mov.u32 	%r8, %ctaid.x;
	shl.b32 	%r9, %r8, 2;
	add.s32 	%r10, %r9, 4;
	min.s32 	%r10, %r10, %r3;
LOOP:
	mad.lo.s32 	%r11, %r9, 1000, %r7;
	add.s32 	%r12, %r11, %r2;
	cvt.rn.f32.s32 	%f1, %r12;
	mad.lo.s32 	%r13, %r9, %r1, %r7;
	mul.wide.s32 	%rd5, %r13, 4;
	add.s64 	%rd6, %rd1, %rd5;
	st.global.f32 	[%rd6], %f1;
	add.s32 	%r9, %r9, 1;
	setp.lt.s32 	%p2, %r9, %r10;
	@%p2 bra 	LOOP;
DONE:
	ret;
}
)";

pb::BufferRef buffer(uint64_t offset, uint64_t bytes) {
  pb::BufferRef ref;
  ref.set_region(pb::WORKSPACE);
  ref.set_offset(offset);
  ref.set_bytes(bytes);
  return ref;
}

pb::LibraryCall libraryCall(pb::LibraryCall::Function function, std::vector<pb::BufferRef> buffers,
                            std::vector<int64_t> sizes) {
  pb::LibraryCall call;
  call.set_function(function);
  for (const pb::BufferRef &ref : buffers)
    *call.add_buffers() = ref;
  call.mutable_sizes()->Add(sizes.begin(), sizes.end());
  return call;
}

/// 8 x 4 by 4 x 6 in f32.
pb::LibraryCall matmul() {
  pb::LibraryCall call =
      libraryCall(pb::LibraryCall::MATMUL, {buffer(0, 128), buffer(128, 96), buffer(256, 192)}, {8, 6, 4, 1});
  for (int i = 0; i < 3; ++i)
    call.add_types(pb::F32);
  return call;
}

/// One rank, one kernel, and a subprogram of one call of each kind.
pb::Plan samplePlan() {
  pb::Plan plan;
  plan.set_target("cuda");
  pb::KernelObject *object = plan.add_objects();
  object->set_level("sm_80");
  object->set_code(numberPtx);
  pb::Kernel *kernel = plan.add_kernels();
  kernel->set_symbol("number");
  kernel->set_threads(32);
  kernel->set_extent_per_block(4);
  kernel->set_columns_per_block(32);
  pb::Subprogram *subprogram = plan.add_subprograms();
  subprogram->set_name("sample");
  *subprogram->add_instructions()->mutable_call() = matmul();
  *subprogram->add_instructions()->mutable_call() =
      libraryCall(pb::LibraryCall::COPY, {buffer(0, 1024), buffer(1024, 1024)}, {3, 64, 128, 32});
  *subprogram->add_instructions()->mutable_call() = libraryCall(pb::LibraryCall::ZERO, {buffer(0, 64)}, {64});
  plan.add_stages()->set_arena_bytes(1 << 16);
  return plan;
}

class CudaDevice : public testing::Test {
protected:
  explicit CudaDevice(pb::Plan plan = samplePlan()) : plan(std::move(plan)) {}

  std::vector<float> read(uint64_t from, size_t count) {
    std::vector<float> values(count);
    device->copyOut(values.data(), from, 4 * count);
    return values;
  }
  void write(uint64_t to, const std::vector<float> &values) { device->copyIn(to, values.data(), 4 * values.size()); }
  void number(int64_t rows, int64_t columns, int64_t addend, uint64_t to) {
    uint64_t buffers[] = {to};
    int64_t scalars[] = {columns, addend};
    device->launch({.kernel = 0, .buffers = buffers, .scalars = scalars, .extent = rows, .grain = 1});
  }
  void call(uint32_t instruction, std::vector<uint64_t> buffers, bool accumulate = false) {
    device->call({0, instruction, buffers, /*scalars=*/{}, accumulate, /*step=*/0});
  }

  pb::Plan plan;
  LocalWorld world{1};
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  ThreadPool pool{1, /*spins=*/0};
  std::unique_ptr<Backend> backend = loadBackend(plan, /*threads=*/1);
  std::unique_ptr<Device> device = backend->open(plan.stages(0), {*communicator, pool, /*spins=*/0});
};

TEST_F(CudaDevice, TellsWhatItIsAndWhatItTook) {
  EXPECT_THAT(backend->level(), MatchesRegex("sm_[0-9]+ \\(.+\\)"));
  EXPECT_EQ(device->allocatedBytes(), (1 << 16) + (32 << 20));
}

/// Rows and columns that fill their last block and that do not.
TEST_F(CudaDevice, BlocksCoverRowsAndColumns) {
  for (auto [rows, columns] : {std::pair{8, 64}, {7, 33}, {1, 1}}) {
    device->fill(0, 0, 4096);
    number(rows, columns, /*addend=*/5, /*to=*/512);
    std::vector<float> values = read(512, rows * columns + 1);
    for (int i = 0; i < rows * columns; ++i)
      ASSERT_EQ(values[i], static_cast<float>(i / columns * 1000 + i % columns + 5)) << rows << " x " << columns;
    EXPECT_EQ(values.back(), 0);
  }
}

TEST_F(CudaDevice, NothingIsLaunchedForNothing) {
  number(/*rows=*/0, /*columns=*/4, 5, 0);
  number(/*rows=*/4, /*columns=*/0, 5, 0);
  EXPECT_EQ(read(0, 16), std::vector<float>(16));
}

TEST_F(CudaDevice, WorkIsDoneInTheOrderOfItsIssue) {
  for (int addend = 0; addend < 20; ++addend) {
    number(4, 32, addend, 0);
    call(/*COPY*/ 1, {0, 4096});
    write(0, {-1});
  }
  EXPECT_EQ(read(4096, 1), std::vector<float>{19});
  EXPECT_EQ(read(0, 1), std::vector<float>{-1});
}

TEST_F(CudaDevice, ProductsOverwriteOrAdd) {
  std::vector<float> a(32), b(24), c(48, 100);
  for (int i = 0; i < 32; ++i)
    a[i] = static_cast<float>(i / 4 + 1); // row i is i + 1
  for (int i = 0; i < 24; ++i)
    b[i] = static_cast<float>(i % 6 + 1); // column j is j + 1
  write(0, a);
  write(128, b);
  for (bool accumulate : {false, true}) {
    write(256, c);
    call(/*MATMUL*/ 0, {0, 128, 256}, accumulate);
    std::vector<float> result = read(256, 48);
    for (int i = 0; i < 48; ++i)
      ASSERT_EQ(result[i], static_cast<float>(4 * (i / 6 + 1) * (i % 6 + 1) + (accumulate ? 100 : 0)));
  }
}

TEST_F(CudaDevice, ZeroClears) {
  write(0, std::vector<float>(17, 3));
  call(/*ZERO*/ 2, {0});
  std::vector<float> expected(17);
  expected.back() = 3;
  EXPECT_EQ(read(0, 17), expected);
}

TEST_F(CudaDevice, ACollectiveOfOneRankMovesAtMost) {
  CollectiveShape shape;
  shape.elements = {3, 2};
  int self[] = {0};
  uint32_t collective = device->addCollective(self, shape);
  write(0, {1, 2, 3, 4});
  write(512, {5, 6, 7});
  uint64_t from[] = {0, 512}, to[] = {256, 512};
  Ticket ticket = device->startCollective(collective, from, to);
  device->wait(ticket);
  EXPECT_EQ(read(256, 4), (std::vector<float>{1, 2, 3, 0}));
  EXPECT_EQ(read(512, 3), (std::vector<float>{5, 6, 7}));
}

/// Its file names a kernel and a product by their sizes, with how often they ran.
class CudaTimes : public CudaDevice {
protected:
  static pb::Plan planWithTimes() {
    setenv("ESPALIER_CUDA_TIMES", file.c_str(), /*overwrite=*/1);
    return samplePlan();
  }
  CudaTimes() : CudaDevice(planWithTimes()) { unsetenv("ESPALIER_CUDA_TIMES"); }

  static inline const std::string file = testing::TempDir() + "cuda_times.txt";
};

TEST_F(CudaTimes, AreWrittenWhenTheDeviceIsClosed) {
  for (int i = 0; i < 3; ++i)
    number(8, 64, 5, 0);
  call(/*MATMUL*/ 0, {0, 128, 256});
  device.reset();
  std::ifstream stream(file);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  EXPECT_THAT(text, testing::ContainsRegex("busy [0-9.]+ ms of [0-9.]+ ms"));
  EXPECT_THAT(text, testing::ContainsRegex("\n +3 .*  number 8 .2 x 2 blocks of 32.\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n +1 .*  product of f32 .8, 4. by f32 .4, 6. to f32\n"));
}

/// What loading a sample plan says after `change`.
std::string refusal(const std::function<void(pb::Plan &)> &change) {
  pb::Plan plan = samplePlan();
  change(plan);
  try {
    loadBackend(plan, /*threads=*/1);
  } catch (const PlanError &error) {
    return error.what();
  }
  return "";
}

TEST(CudaBackend, KernelsForNewerDevicesAreRefused) {
  EXPECT_THAT(refusal([](pb::Plan &plan) { plan.mutable_objects(0)->set_level("sm_999"); }),
              MatchesRegex("the plan's kernels are for \\[sm_999\\], CUDA device 0 is .+ sm_[0-9]+"));
}

TEST(CudaBackend, KernelsWithoutABlockAreRefused) {
  EXPECT_EQ(refusal([](pb::Plan &plan) { plan.mutable_kernels(0)->set_threads(0); }),
            "kernel 'number' has blocks of 0 threads for 4 iterations, needs at least 1 of each");
}

TEST(CudaBackend, CallsThatAreKernelsOnCudaAreRefused) {
  EXPECT_EQ(refusal([](pb::Plan &plan) {
              plan.mutable_subprograms(0)->mutable_instructions(2)->mutable_call()->set_function(pb::LibraryCall::ROPE);
            }),
            "sample, instruction 2: library call ROPE is none on CUDA, where kernels do that work; compile the plan "
            "again");
}

TEST(CudaBackend, MalformedCallsAreRefused) {
  auto change = [](int instruction, auto how) {
    return refusal(
        [&](pb::Plan &plan) { how(*plan.mutable_subprograms(0)->mutable_instructions(instruction)->mutable_call()); });
  };
  EXPECT_EQ(change(0, [](pb::LibraryCall &call) { call.mutable_buffers(2)->set_bytes(96); }),
            "sample, instruction 0: library call MATMUL: buffer 2 has 96 bytes, needs 192");
  EXPECT_EQ(change(1, [](pb::LibraryCall &call) { call.set_sizes(2, 16); }),
            "sample, instruction 1: library call COPY: blocks of 32 bytes overlap at a stride of 16");
  EXPECT_EQ(change(1, [](pb::LibraryCall &call) { call.mutable_buffers(0)->set_bytes(100); }),
            "sample, instruction 1: library call COPY: buffer 0 has 100 bytes, needs 160");
  EXPECT_EQ(change(2, [](pb::LibraryCall &call) { call.set_sizes(0, 65); }),
            "sample, instruction 2: library call ZERO: buffer 0 has 64 bytes, needs 65");
}

TEST(CudaBackend, ProductsOfTwoTypesAreRefusedWithTheirPlace) {
  EXPECT_THAT(refusal([](pb::Plan &plan) {
                plan.mutable_subprograms(0)->mutable_instructions(0)->mutable_call()->set_types(1, pb::BF16);
              }),
              HasSubstr("sample, instruction 0: cuBLASLt "));
}

TEST(CudaBackend, SeveralRanksAreRefused) {
  EXPECT_EQ(refusal([](pb::Plan &plan) {
              pb::Axis *axis = plan.add_mesh();
              axis->set_name("dp");
              axis->set_size(2);
            }),
            "a plan of 2 ranks on CUDA needs NCCL, which this version does not use; plan for one device");
}

TEST(CudaBackend, AnArenaThatDoesNotFitIsRefusedWhenThePlanIsLoaded) {
  pb::Plan plan = samplePlan();
  plan.mutable_stages(0)->set_arena_bytes(uint64_t{1} << 50);
  EXPECT_THROW(loadBackend(plan, /*threads=*/1), MemoryError);
}

} // namespace
} // namespace espalier::rt
