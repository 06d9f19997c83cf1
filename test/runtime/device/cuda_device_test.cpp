// Tests the CUDA back end through the interface of the executor. A hand-built plan contains launches and library calls.
// Also tests the errors for plans that cannot run on this device.
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

// y[row, column] is a seven-digit number of both, plus the number of the launch. A block covers 4 rows and 32 columns.
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

pb::Buffer buffer(uint64_t offset, uint64_t bytes) {
  pb::Buffer buffer;
  buffer.set_offset(offset);
  buffer.set_bytes(bytes);
  return buffer;
}

pb::LibraryCall libraryCall(pb::LibraryCall::Function function, std::vector<pb::Buffer> buffers,
                            std::vector<int64_t> sizes) {
  pb::LibraryCall call;
  call.set_function(function);
  for (const pb::Buffer &buffer : buffers)
    *call.add_buffers() = buffer;
  call.mutable_sizes()->Add(sizes.begin(), sizes.end());
  return call;
}

/// Returns a plan for one rank with one kernel and a subprogram with library calls. Value 0 is f32, value 1 is bf16.
pb::Plan samplePlan() {
  pb::Plan plan;
  plan.set_target("cuda");
  pb::Mesh *mesh = plan.mutable_mesh();
  mesh->set_pp(1);
  mesh->set_dp(1);
  mesh->set_cp(1);
  mesh->set_ep(1);
  mesh->set_tp(1);
  plan.add_regions("workspace");
  plan.add_values();
  plan.add_values()->set_type(pb::BF16);
  pb::Object *object = plan.add_objects();
  object->set_level("sm_80");
  object->set_code(numberPtx);
  pb::Geometry *geometry = object->add_geometry();
  geometry->set_threads(32);
  geometry->set_extent_per_block(4);
  geometry->set_columns_per_block(32);
  plan.add_kernels()->set_symbol("number");
  pb::Subprogram *subprogram = plan.add_subprograms();
  subprogram->set_name("sample");
  // The product [8, 4] x [4, 6] in f32.
  *subprogram->add_instructions()->mutable_call() =
      libraryCall(pb::LibraryCall::MATMUL, {buffer(0, 128), buffer(128, 96), buffer(256, 192)}, {8, 6, 4, 1});
  *subprogram->add_instructions()->mutable_call() =
      libraryCall(pb::LibraryCall::COPY, {buffer(0, 1024), buffer(1024, 1024)}, {3, 64, 32});
  *subprogram->add_instructions()->mutable_call() = libraryCall(pb::LibraryCall::ZERO, {buffer(0, 64)}, {64});
  for (int outer : {2, 3})
    *subprogram->add_instructions()->mutable_call() =
        libraryCall(pb::LibraryCall::REARRANGE, {buffer(0, 24), buffer(1024, 24)}, {outer, 6 / outer, 4});
  pb::Stage *stage = plan.add_stages();
  stage->add_arena_bytes(1 << 16);
  stage->add_arena_bytes(1 << 12);
  return plan;
}

// Set before the driver loads: the device memory is not a multiple of the page size.
[[maybe_unused]] const int memorySet = setenv("ESPALIER_EMULATOR_MEMORY", "2148532224", /*overwrite=*/1);

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
    Place buffers[] = {{to}};
    int64_t scalars[] = {columns, addend};
    device->launch({.kernel = 0, .buffers = buffers, .scalars = scalars, .extent = rows, .grain = 1});
  }
  void call(uint32_t instruction, std::vector<uint64_t> buffers, bool accumulate = false) {
    std::vector<Place> places;
    for (uint64_t offset : buffers)
      places.push_back({offset});
    device->call({0, instruction, places, /*scalars=*/{}, accumulate});
  }

  /// Adds a transfer of 64 bytes on a queue.
  uint32_t transfer(uint32_t queue) { return device->addTransfer({.queue = queue, .bytes = {64}}); }
  TransferTicket start(uint32_t transfer, Place from, Place to) {
    return device->start({transfer, {&from, 1}, {&to, 1}});
  }
  float *host(uint64_t offset) { return reinterpret_cast<float *>(device->host(offset)); }

  pb::Plan plan;
  LocalWorld world{1};
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  ThreadPool pool{1, /*spins=*/0};
  std::unique_ptr<Backend> backend = loadBackend(plan, /*threads=*/1);
  std::unique_ptr<Device> device = backend->open(plan.stages(0), {*communicator, pool, /*spins=*/0});
};

TEST_F(CudaDevice, DescribesItselfAndItsMemory) {
  EXPECT_THAT(backend->level(), MatchesRegex("sm_[0-9]+ \\(.+\\)"));
  EXPECT_EQ(device->allocatedBytes(), (1 << 16) + (32 << 20) + (1 << 12));
}

/// Tests numbers of rows and columns that fill their last block and that do not.
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

TEST_F(CudaDevice, LaunchesNothingForAnEmptyExtent) {
  number(/*rows=*/0, /*columns=*/4, 5, 0);
  number(/*rows=*/4, /*columns=*/0, 5, 0);
  EXPECT_EQ(read(0, 16), std::vector<float>(16));
}

TEST_F(CudaDevice, RunsWorkInIssueOrder) {
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
    a[i] = static_cast<float>(i / 4 + 1); // row i has the value i + 1
  for (int i = 0; i < 24; ++i)
    b[i] = static_cast<float>(i % 6 + 1); // column j has the value j + 1
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

TEST_F(CudaDevice, RearrangesEitherWay) {
  write(0, {0, 1, 2, 3, 4, 5});
  call(/*REARRANGE 2 x 3*/ 3, {0, 1024});
  EXPECT_EQ(read(1024, 6), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  call(/*REARRANGE 3 x 2*/ 4, {1024, 2048});
  EXPECT_EQ(read(2048, 6), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST_F(CudaDevice, ACollectiveOfOneRankMovesAtMost) {
  uint32_t collective = device->addTransfer(
      {.kind = pb::Transfer::ALL_GATHER, .queue = 1, .members = {0}, .shape = {.elements = {3, 2}}, .bytes = {12, 8}});
  write(0, {1, 2, 3, 4});
  write(512, {5, 6, 7});
  Place from[] = {{0}, {512}}, to[] = {{256}, {512}};
  device->wait(device->start({collective, from, to}));
  EXPECT_EQ(read(256, 4), (std::vector<float>{1, 2, 3, 0}));
  EXPECT_EQ(read(512, 3), (std::vector<float>{5, 6, 7}));
}

// A transfer starts after the work that precedes it. Work after its wait sees the result. Work between start and wait
// runs concurrently with the transfer.
TEST_F(CudaDevice, TransfersRunBetweenStartAndWait) {
  uint32_t in = transfer(1), out = transfer(2), within = transfer(1);
  for (int turn = 0; turn < 8; ++turn) {
    uint64_t slot = turn % 2 * 2048;
    std::fill_n(host(slot), 16, static_cast<float>(turn));
    TransferTicket arrives = start(in, {slot, pb::HOST}, {0});
    TransferTicket moves = start(within, {0}, {4096}); // follows the transfer on the same queue without a wait
    number(1, 1, turn, 8192);
    device->wait(moves);
    device->wait(arrives);
    call(/*COPY*/ 1, {4096, 12288});
    TransferTicket leaves = start(out, {12288}, {slot + 1024, pb::HOST});
    device->wait(leaves);
    device->endTurn();
    device->finishTurns(0);
    EXPECT_EQ(host(slot + 1024)[7], turn);
    EXPECT_EQ(read(8192, 1)[0], turn);
  }
}

TEST_F(CudaDevice, WaitsForAllButTheLastStep) {
  device->finishTurns(0); // no step was issued
  uint32_t out = transfer(1);
  for (int turn = 0; turn < 4; ++turn) {
    number(1, 1, turn, 0);
    device->wait(start(out, {0}, {turn * 64u, pb::HOST}));
    device->endTurn();
    device->finishTurns(1);
    if (turn > 0)
      EXPECT_EQ(host((turn - 1) * 64)[0], turn - 1);
  }
}

TEST_F(CudaDevice, RejectsSendsOfASingleRank) {
  try {
    device->addTransfer({.kind = pb::Transfer::SEND, .peer = 3, .bytes = {4}});
    ADD_FAILURE() << "it was accepted";
  } catch (const PlanError &error) {
    EXPECT_STREQ(error.what(), "a plan of one rank has a transfer 'SEND' with others");
  }
}

/// The file of times names a kernel and a product by their sizes, with the number of their runs.
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

/// Returns the error of loading a sample plan after `change`.
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

/// Not all of the free memory is allocatable in one piece. Here the last half page is not allocatable.
TEST(CudaBackend, FragmentedMemoryIsAMemoryError) {
  pb::Plan plan = samplePlan();
  plan.mutable_stages(0)->set_arena_bytes(pb::DEVICE, 2148532224 - (32 << 20));
  LocalWorld world(1);
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  ThreadPool pool(1, /*spins=*/0);
  std::unique_ptr<Backend> backend = loadBackend(plan, /*threads=*/1);
  try {
    backend->open(plan.stages(0), {*communicator, pool, /*spins=*/0});
    ADD_FAILURE() << "it was given";
  } catch (const MemoryError &error) {
    EXPECT_THAT(error.what(), MatchesRegex("the plan needs 2.00 GiB of device memory .arena of 2114977792 bytes, "
                                           "workspace of 33554432 bytes., CUDA device 0 .* has 2.00 GiB free of 2.00 "
                                           "GiB, but not in one piece"));
  }
}

TEST(CudaBackend, KernelsWithoutABlockAreRefused) {
  EXPECT_EQ(refusal([](pb::Plan &plan) { plan.mutable_objects(0)->mutable_geometry(0)->set_threads(0); }),
            "kernel 'number' has blocks of 0 threads for 4 iterations, needs at least 1 of each");
}

TEST(CudaBackend, KernelsWithoutAGridAreRefused) {
  EXPECT_EQ(refusal([](pb::Plan &plan) { plan.mutable_objects(0)->clear_geometry(); }),
            "the plan lists 0 launch grids for sm_80, but has 1 kernels");
}

TEST(CudaBackend, CallsThatAreKernelsOnCudaAreRefused) {
  EXPECT_EQ(refusal([](pb::Plan &plan) {
              plan.mutable_subprograms(0)->mutable_instructions(2)->mutable_call()->set_function(pb::LibraryCall::ROPE);
            }),
            "sample, instruction 2: library call ROPE is not supported on CUDA, where kernels replace it; compile "
            "the plan again");
}

TEST(CudaBackend, MalformedCallsAreRefused) {
  auto change = [](int instruction, auto how) {
    return refusal(
        [&](pb::Plan &plan) { how(*plan.mutable_subprograms(0)->mutable_instructions(instruction)->mutable_call()); });
  };
  EXPECT_EQ(change(0, [](pb::LibraryCall &call) { call.mutable_buffers(2)->set_bytes(96); }),
            "sample, instruction 0: library call MATMUL: buffer 2 has 96 bytes, needs 192");
  EXPECT_EQ(change(1, [](pb::LibraryCall &call) { call.mutable_buffers(0)->set_bytes(100); }),
            "sample, instruction 1: library call COPY: buffer 0 has 100 bytes, needs 160");
  EXPECT_EQ(change(3, [](pb::LibraryCall &call) { call.set_sizes(2, 8); }),
            "sample, instruction 3: library call REARRANGE: buffer 0 has 24 bytes, needs 48");
  EXPECT_EQ(change(2, [](pb::LibraryCall &call) { call.set_sizes(0, 65); }),
            "sample, instruction 2: library call ZERO: buffer 0 has 64 bytes, needs 65");
}

TEST(CudaBackend, RejectsInvalidEpilogues) {
  auto withBias = [](uint64_t bytes, auto how) {
    return refusal([&](pb::Plan &plan) {
      pb::LibraryCall &product = *plan.mutable_subprograms(0)->mutable_instructions(0)->mutable_call();
      *product.add_buffers() = buffer(512, bytes);
      product.set_epilogue(pb::LibraryCall::BIAS);
      how(product);
    });
  };
  const std::string begin = "sample, instruction 0: library call MATMUL: ";
  EXPECT_EQ(withBias(20, [](pb::LibraryCall &) {}), begin + "buffer 3 has 20 bytes, needs 24");
  EXPECT_EQ(withBias(24, [](pb::LibraryCall &call) { call.set_epilogue(pb::LibraryCall::ADD); }),
            begin + "buffer 3 has 24 bytes, needs 192");
  EXPECT_EQ(withBias(24, [](pb::LibraryCall &call) { call.set_epilogue(pb::LibraryCall::BIAS_ADD); }),
            begin + "has 4 buffers, needs 5");
  // If the library has no algorithm for a product, a kernel computes it. Rows of gelu's operand need a multiple of 8
  // elements.
  EXPECT_THAT(
      withBias(192, [](pb::LibraryCall &call) { call.set_epilogue(pb::LibraryCall::GELU_GRADIENT); }),
      MatchesRegex("sample, instruction 0: cuBLASLt [0-9]+ has no algorithm for the product of f32 .8, 4. by f32 "
                   ".4, 6. to f32, gelu_gradient on .* within a workspace of 32 MiB; compile the plan again with "
                   "--set context.unfused_epilogues=.gelu_gradient."));
  EXPECT_EQ(withBias(24, [](pb::LibraryCall &call) { call.set_store(pb::ADD); }),
            begin + "has an epilogue, which needs k above 0, one matrix and no accumulation");
}

TEST(CudaBackend, AlgorithmsOfAnotherLibraryAreRefused) {
  EXPECT_THAT(
      refusal([](pb::Plan &plan) {
        plan.add_libraries("cuBLASLt 1.2.3 on sm_90");
        plan.mutable_subprograms(0)->mutable_instructions(0)->mutable_call()->set_algorithm("kept");
      }),
      MatchesRegex("sample, instruction 0: the plan has algorithms of cuBLASLt 1.2.3 on sm_90, here is cuBLASLt "
                   "[0-9.]+ on sm_[0-9]+; compile it again, with a cluster file that `espalier calibrate "
                   "--target cuda --plan` made here or without matmul_algorithms"));
}

TEST(CudaBackend, RejectsProductsOfTwoTypesWithTheirLocation) {
  EXPECT_THAT(refusal([](pb::Plan &plan) {
                plan.mutable_subprograms(0)->mutable_instructions(0)->mutable_call()->mutable_buffers(1)->set_value(1);
              }),
              HasSubstr("sample, instruction 0: cuBLASLt "));
}

TEST(CudaBackend, RejectsATooLargeArenaAtLoad) {
  pb::Plan plan = samplePlan();
  plan.mutable_stages(0)->set_arena_bytes(pb::DEVICE, uint64_t{1} << 50);
  EXPECT_THROW(loadBackend(plan, /*threads=*/1), MemoryError);
}

} // namespace
} // namespace espalier::rt
