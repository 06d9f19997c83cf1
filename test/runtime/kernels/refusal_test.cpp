// What makeLibraryKernel does not accept, and the sentence it says.
#include "test/runtime/kernels/harness.h"

#include <gmock/gmock.h>

namespace espalier::rt {

namespace {

CallUnderTest makeMatmul() {
  CallUnderTest test(pb::LibraryCall::MATMUL, {3, 4, 5, 1});
  test.add(pb::F32, 15);
  test.add(pb::BF16, 20);
  test.add(pb::F32, 12);
  return test;
}

void expectRefusal(const pb::LibraryCall &call, const char *sentence) {
  try {
    makeLibraryKernel(call, /*threads=*/1);
    FAIL() << "accepted, wanted: " << sentence;
  } catch (const std::invalid_argument &error) {
    EXPECT_STREQ(error.what(), sentence);
  }
}

TEST(Refusal, BufferThatIsTooSmall) {
  CallUnderTest test = makeMatmul();
  test.call.mutable_buffers(1)->set_bytes(39);
  expectRefusal(test.call, "library call MATMUL: buffer 1 has 39 bytes, needs 40");
}

TEST(Refusal, ListsThatAreTooShort) {
  CallUnderTest test = makeMatmul();
  test.call.mutable_sizes()->RemoveLast();
  expectRefusal(test.call, "library call MATMUL: has 3 sizes, needs 4");
  test = makeMatmul();
  test.call.mutable_buffers()->RemoveLast();
  expectRefusal(test.call, "library call MATMUL: has 2 buffers, needs 3");
  test = makeMatmul();
  test.call.mutable_types()->RemoveLast();
  expectRefusal(test.call, "library call MATMUL: has 2 types, needs one for buffer 2");
}

TEST(Refusal, SizesOutOfRange) {
  CallUnderTest test = makeMatmul();
  test.call.set_sizes(0, -3);
  expectRefusal(test.call, "library call MATMUL: size 0 is -3, needs at least 0");
  test = makeMatmul();
  for (int i = 0; i < 3; ++i)
    test.call.set_sizes(i, int64_t{1} << 40);
  expectRefusal(test.call, "library call MATMUL: its sizes are too large");
}

TEST(Refusal, TypesThatDoNotFit) {
  CallUnderTest test = makeMatmul();
  test.call.set_types(0, pb::I32);
  expectRefusal(test.call, "library call MATMUL: buffer 0 has type 3, needs f32, bf16 or f16");
  CallUnderTest reduce(pb::LibraryCall::REDUCE_PARTS, {2, 3});
  reduce.add(pb::BF16, 12);
  reduce.add(pb::F32, 3);
  expectRefusal(reduce.call, "library call REDUCE_PARTS: buffer 0 needs type f32");
}

TEST(Refusal, AttentionOutsideItsLimits) {
  CallUnderTest test(pb::LibraryCall::ATTENTION_FORWARD, {1, 2, 1, 1, 385}, {1, 0});
  for (int64_t elements : {770, 770, 770, 770, 2})
    test.add(pb::F32, elements);
  expectRefusal(test.call, "library call ATTENTION_FORWARD: head_dim is 385, needs to be at most 384");
  test.call.set_sizes(4, 3);
  test.call.set_floats(0, 0);
  expectRefusal(test.call, "library call ATTENTION_FORWARD: scale is 0.000000, needs to be above 0");
  test.call.set_floats(0, 1);
  test.call.set_floats(1, 0.5);
  expectRefusal(test.call, "library call ATTENTION_FORWARD: has 0 scalars, needs 4 for dropout");
  test.call.set_floats(1, 0);
  test.call.add_sizes(400);
  expectRefusal(test.call, "library call ATTENTION_FORWARD: has 0 scalars, needs 5 for a part of the queries");
  for (int i = 0; i < 5; ++i)
    test.call.add_scalars();
  expectRefusal(test.call, "library call ATTENTION_FORWARD: buffer 1 has 3080 bytes, needs 4800");
  test.call.set_floats(1, 1);
  expectRefusal(test.call, "library call ATTENTION_FORWARD: dropout rate is 1.000000, needs to be "
                           "at least 0 and below 1");
}

TEST(Refusal, RopeOfAnOddHead) {
  CallUnderTest test(pb::LibraryCall::ROPE, {2, 1, 3, 0}, {10000});
  test.add(pb::F32, 6);
  test.addIds({0, 1});
  test.add(pb::F32, 6);
  expectRefusal(test.call, "library call ROPE: head_dim is 3, needs to be even");
}

TEST(Refusal, CopiesThatOverlap) {
  CallUnderTest test(pb::LibraryCall::COPY, {3, 8, 4, 8});
  test.add(pb::F32, 6);
  test.add(pb::F32, 6);
  expectRefusal(test.call, "library call COPY: blocks of 8 bytes overlap at a stride of 4");
}

TEST(Refusal, FunctionsOfTheExecutor) {
  pb::LibraryCall call;
  call.set_function(pb::LibraryCall::UPDATE_SCALARS);
  expectRefusal(call, "library call UPDATE_SCALARS: is function 10, which has no kernel in this runtime");
}

} // namespace

} // namespace espalier::rt
