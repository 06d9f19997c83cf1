// Tests the errors of makeLibraryKernel.
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

void expectRefusal(const CallUnderTest &test, const char *sentence) {
  try {
    makeLibraryKernel(test.call, test.types, /*threads=*/1);
    FAIL() << "accepted, wanted: " << sentence;
  } catch (const std::invalid_argument &error) {
    EXPECT_STREQ(error.what(), sentence);
  }
}

TEST(Refusal, BufferThatIsTooSmall) {
  CallUnderTest test = makeMatmul();
  test.call.mutable_buffers(1)->set_bytes(39);
  expectRefusal(test, "library call MATMUL: buffer 1 has 39 bytes, needs 40");
}

TEST(Refusal, ListsThatAreTooShort) {
  CallUnderTest test = makeMatmul();
  test.call.mutable_sizes()->RemoveLast();
  expectRefusal(test, "library call MATMUL: has 3 sizes, needs 4");
  test = makeMatmul();
  test.call.mutable_buffers()->RemoveLast();
  expectRefusal(test, "library call MATMUL: has 2 buffers, needs 3");
  test = makeMatmul();
  test.types.pop_back();
  expectRefusal(test, "library call MATMUL: has 2 types, needs 3");
}

TEST(Refusal, SizesOutOfRange) {
  CallUnderTest test = makeMatmul();
  test.call.set_sizes(0, -3);
  expectRefusal(test, "library call MATMUL: size 0 is -3, needs at least 0");
  test = makeMatmul();
  for (int i = 0; i < 3; ++i)
    test.call.set_sizes(i, int64_t{1} << 40);
  expectRefusal(test, "library call MATMUL: its sizes are too large");
}

TEST(Refusal, SizesThatTheFunctionDoesNotHave) {
  CallUnderTest test(pb::LibraryCall::ROPE, {2, 1, 4, 2}, {10000});
  test.add(pb::F32, 8);
  test.addIds({0, 1});
  test.add(pb::F32, 8);
  expectRefusal(test, "library call ROPE: size 3 is 2, needs at most 1");
  for (int64_t size : {2, 1, 0, 1})
    test.call.add_sizes(size);
  expectRefusal(test, "library call ROPE: has 8 sizes, needs at most 7");
}

TEST(Refusal, MoreChoicesThanExperts) {
  CallUnderTest test(pb::LibraryCall::ROUTE, {1, 2, 3, 4, 1});
  test.add(pb::F32, 6);
  test.add(pb::I32, 8, 0);
  test.add(pb::I32, 8, 0);
  expectRefusal(test, "library call ROUTE: has 4 choices of 3 experts, needs no more choices than experts");
}

TEST(Refusal, GroupsWithTooFewExperts) {
  CallUnderTest test(pb::LibraryCall::ROUTE, {1, 2, 6, 3, 1, 3, 1});
  test.add(pb::F32, 12);
  test.add(pb::I32, 6, 0);
  test.add(pb::I32, 6, 0);
  expectRefusal(test, "library call ROUTE: keeps 1 of 3 groups of 6 experts for 3 choices, needs equal groups with an "
                      "expert for each choice");
}

TEST(Refusal, TypesThatDoNotFit) {
  CallUnderTest test = makeMatmul();
  test.types[0] = pb::I32;
  expectRefusal(test, "library call MATMUL: buffer 0 has type 3, needs f32, bf16 or f16");
  CallUnderTest reduce(pb::LibraryCall::REDUCE_PARTS, {2, 3});
  reduce.add(pb::BF16, 12);
  reduce.add(pb::F32, 3);
  expectRefusal(reduce, "library call REDUCE_PARTS: buffer 0 needs type f32");
}

TEST(Refusal, AttentionOutsideItsLimits) {
  CallUnderTest test(pb::LibraryCall::ATTENTION_FORWARD, {1, 2, 1, 1, 385}, {1, 0});
  for (int64_t elements : {770, 770, 770, 770, 2})
    test.add(pb::F32, elements);
  test.add(pb::F32, 1);
  expectRefusal(test, "library call ATTENTION_FORWARD: buffer 5 needs type i32");
  test.types[5] = pb::I32;
  expectRefusal(test, "library call ATTENTION_FORWARD: head_dim is 385, needs to be at most 384");
  test.call.set_sizes(4, 3);
  test.call.set_floats(0, 0);
  expectRefusal(test, "library call ATTENTION_FORWARD: scale is 0.000000, needs to be above 0");
  test.call.set_floats(0, 1);
  test.call.set_floats(1, 0.5);
  expectRefusal(test, "library call ATTENTION_FORWARD: has 0 scalars, needs 4 for dropout");
  test.call.set_floats(1, 0);
  test.call.add_sizes(400);
  expectRefusal(test, "library call ATTENTION_FORWARD: buffer 1 has 3080 bytes, needs 4800");
  for (int buffer : {1, 2})
    test.call.mutable_buffers(buffer)->set_bytes(4800);
  expectRefusal(test, "library call ATTENTION_FORWARD: has 0 scalars, needs 5 for a part of the queries");
  for (int i = 0; i < 5; ++i)
    test.call.add_scalars();
  test.call.set_floats(1, 1);
  expectRefusal(test, "library call ATTENTION_FORWARD: dropout rate is 1.000000, needs to be "
                      "at least 0 and below 1");
  test.types[1] = pb::BF16;
  expectRefusal(test, "library call ATTENTION_FORWARD: buffer 1 needs type f32");
}

TEST(Refusal, RopeOfAnOddHead) {
  CallUnderTest test(pb::LibraryCall::ROPE, {2, 1, 3, 0}, {10000});
  test.add(pb::F32, 6);
  test.addIds({0, 1});
  test.add(pb::F32, 6);
  expectRefusal(test, "library call ROPE: head_dim is 3, needs to be even");
}

TEST(Refusal, BlocksBehindTheEnd) {
  CallUnderTest copy(pb::LibraryCall::COPY, {3, 8, 4});
  copy.add(pb::F32, 4);
  copy.add(pb::F32, 3);
  expectRefusal(copy, "library call COPY: buffer 0 has 16 bytes, needs 20");
  CallUnderTest swap(pb::LibraryCall::REARRANGE, {2, 3, 4});
  swap.add(pb::F32, 6);
  swap.add(pb::F32, 5);
  expectRefusal(swap, "library call REARRANGE: buffer 1 has 20 bytes, needs 24");
  CallUnderTest odd(pb::LibraryCall::REARRANGE, {2, 4, 3, 1}), unknown(pb::LibraryCall::REARRANGE, {2, 3, 4, 3});
  for (CallUnderTest *test : {&odd, &unknown})
    for (int i = 0; i < 2; ++i)
      test->add(pb::F32, 6);
  expectRefusal(odd, "library call REARRANGE: has blocks of 3 bytes, which have no halves");
  expectRefusal(unknown, "library call REARRANGE: zigzag is 3, needs to be 0, 1 or 2");
}

TEST(Refusal, UnsupportedByThisTarget) {
  CallUnderTest test = makeMatmul();
  test.call.set_epilogue(pb::LibraryCall::GELU_GRADIENT);
  expectRefusal(test, "library call MATMUL: has an epilogue, which this target has not");
  test = makeMatmul();
  test.call.set_epilogue(pb::LibraryCall::BIAS);
  expectRefusal(test, "library call MATMUL: has 3 buffers, needs 4");
  test.add(pb::F32, 4);
  test.call.set_store(pb::ADD);
  expectRefusal(
      test, "library call MATMUL: has a bias, which requires k above 0, one matrix and a result that is overwritten");
  test = makeMatmul();
  test.call.set_function(static_cast<pb::LibraryCall::Function>(77));
  expectRefusal(test, "library call : is function 77, which has no kernel in this runtime");
}

} // namespace

} // namespace espalier::rt
