// Kernels over rows and columns of all lengths that the GPU back end treats differently: a part of a warp, several
// warps, rows that do not fit in registers, blocks that share rows, and lengths without wide loads.
#include "test/compiler/codegen/harness.h"

#include <gtest/gtest.h>

namespace espalier::test {
namespace {

/// Returns `text` with %R and %C replaced by the numbers of rows and columns, and %T by a type.
std::string sized(std::string text, int rows, int columns, const std::string &type) {
  for (auto [word, by] :
       {std::pair("%R", std::to_string(rows)), std::pair("%C", std::to_string(columns)), std::pair("%T", type)})
    for (size_t at; (at = text.find(word)) != std::string::npos;)
      text.replace(at, 2, by);
  return text;
}

/// Describes how a kernel is distributed over threads.
std::string threadsOf(const Compiled &compiled, int kernel = 0) {
  const rt::pb::Geometry &message = compiled.gpuPlan().objects(0).geometry(kernel);
  return std::to_string(message.threads()) + " for " + std::to_string(message.extent_per_block()) + " rows, " +
         std::to_string(message.columns_per_block()) + " columns";
}

const char *logSoftmax = R"(
!x = tensor<%Rx%Cx%T, #model.dims<batch, vocab>>
!f = tensor<%Rx%Cxf32, #model.dims<batch, vocab>>
!r = tensor<%Rxf32, #model.dims<batch>>
func.func @f.forward(%x: !x {model.role = "stream", model.name = "x"}) -> (!x {model.role = "stream",
    model.name = "x"}) {
  %max = model.reduce_max %x : (!x) -> !r
  %d = model.sub %x, %max : (!x, !r) -> !f
  %e = model.exp %d : (!f) -> !f
  %sum = model.reduce_sum %e : (!f) -> !r
  %log = model.log %sum : (!r) -> !r
  %y = model.sub %d, %log : (!f, !r) -> !x
  return %y : !x
}
)";

TEST(Lengths, RowsOfAPartOfAWarp) {
  for (int columns : {1, 3, 8, 33, 64, 100}) {
    Compiled compiled(sized(logSoftmax, 7, columns, "f32"));
    compiled.check("f.forward", {}, 2e-6);
    Compiled(sized(logSoftmax, 7, columns, "bf16")).check("f.forward", {}, 5e-3);
  }
  EXPECT_EQ(threadsOf(Compiled(sized(logSoftmax, 7, 64, "f32"))), "128 for 8 rows, 0 columns");
  EXPECT_EQ(threadsOf(Compiled(sized(logSoftmax, 7, 33, "f32"))), "128 for 4 rows, 0 columns");
}

TEST(Lengths, RowsOfABlock) {
  for (int columns : {768, 1600, 4096, 5120, 9001, 12288}) {
    Compiled(sized(logSoftmax, 2, columns, "f32")).check("f.forward", {}, 2e-6);
    Compiled(sized(logSoftmax, 2, columns, "f16")).check("f.forward", {}, 6e-4);
  }
  EXPECT_EQ(threadsOf(Compiled(sized(logSoftmax, 2, 5120, "bf16"))), "160 for 1 rows, 0 columns");
}

// RowsOfABlock has the other widths of each type: even in f32, and odd in 16 bits.
TEST(Lengths, RowsThatDoNotFit) {
  Compiled(sized(logSoftmax, 2, 50257, "f32")).check("f.forward", {}, 2e-6);
  Compiled(sized(logSoftmax, 2, 50304, "bf16")).check("f.forward", {}, 5e-3);
  EXPECT_EQ(threadsOf(Compiled(sized(logSoftmax, 2, 50304, "bf16"))), "512 for 1 rows, 0 columns");
}

const char *bias = R"(
!x = tensor<%Rx%Cx%T, #model.dims<batch, ffn>>
!h = tensor<%Cx%T, #model.dims<ffn>>
func.func @f.forward(%x: !x {model.role = "stream", model.name = "x"},
                     %b: !h {model.role = "parameter", model.name = "b"}) -> (!x {model.role = "stream",
                         model.name = "x"}) {
  %z = model.add %x, %b : (!x, !h) -> !x
  %y = model.tanh %z : (!x) -> !x
  return %y : !x
}
)";

TEST(Lengths, BlocksShareRowsWithoutSums) {
  for (int columns : {5, 12, 300, 4096}) {
    Compiled(sized(bias, 3, columns, "f32")).check("f.forward", {}, 2e-6);
    Compiled(sized(bias, 3, columns, "bf16")).check("f.forward", {}, 1e-2);
  }
  // Several blocks per row. In bf16, rows of an odd width do not start at a multiple of four bytes.
  Compiled(sized(bias, 3, 40000, "f32")).check("f.forward", {}, 2e-6);
  Compiled(sized(bias, 3, 40001, "bf16")).check("f.forward", {}, 1e-2);
  EXPECT_EQ(threadsOf(Compiled(sized(bias, 3, 40000, "bf16"))), "256 for 1 rows, 8192 columns");
}

const char *square = R"(
!x = tensor<%Cx%T, #model.dims<hidden>>
func.func @f.forward(%x: !x {model.role = "stream", model.name = "x"}) -> (!x {model.role = "stream",
    model.name = "x"}) {
  %y = model.mul %x, %x : (!x, !x) -> !x
  return %y : !x
}
)";

TEST(Lengths, ElementsBeyondTheLastVector) {
  for (int elements : {1, 2, 7, 8, 1023, 2048, 4099})
    for (const char *type : {"f32", "bf16"})
      Compiled(sized(square, 1, elements, type)).check("f.forward", {}, 1e-2);
}

const char *columnSum = R"(
!x = tensor<%Rx%Cx%T, #model.dims<batch, ffn>>
!f = tensor<%Rx%Cxf32, #model.dims<batch, ffn>>
!h = tensor<%Cxf32, #model.dims<ffn>>
func.func @f.backward(%x: !x {model.role = "stream", model.name = "x"},
                      %g: !h {model.role = "accumulator", model.name = "g"}) -> (!h {model.role = "accumulator",
                          model.name = "g"}) {
  %w = model.mul %x, %x : (!x, !x) -> !f
  %sum = model.reduce_sum %w : (!f) -> !h
  %new = model.accumulate %g, %sum : (!h, !h) -> !h
  return %new : !h
}
)";

// Types alternate, so that each number of rows and each number of columns has both.
TEST(Lengths, ColumnsOfOneAndManyBlocks) {
  bool isWide = true;
  for (int rows : {1, 5, 31, 300})
    for (int columns : {1, 6, 96, 260, 1024}) {
      Compiled(sized(columnSum, rows, columns, isWide ? "f32" : "bf16")).check("f.backward", {}, 1e-5);
      isWide = !isWide;
    }
}

// Row reductions, a result in place of an input, a sum of an input and a sum of a computed value.
const char *normBackward = R"(
!x = tensor<%Rx%Cx%T, #model.dims<batch, hidden>>
!f = tensor<%Rx%Cxf32, #model.dims<batch, hidden>>
!r = tensor<%Rxf32, #model.dims<batch>>
!h = tensor<%Cxf32, #model.dims<hidden>>
func.func @f.backward(%x: !x {model.role = "stream", model.name = "x"},
                      %dy: !x {model.role = "cotangent", model.name = "x"},
                      %g: !h {model.role = "accumulator", model.name = "g"},
                      %s: !h {model.role = "accumulator", model.name = "s"})
    -> (!x {model.role = "cotangent", model.name = "x"}, !h {model.role = "accumulator", model.name = "g"},
        !h {model.role = "accumulator", model.name = "s"}) {
  %p = model.mul %x, %dy : (!x, !x) -> !f
  %sum = model.reduce_sum %p : (!f) -> !r
  %dg = model.reduce_sum %p : (!f) -> !h
  %n = model.constant %N : tensor<f32>
  %mean = model.mul %sum, %n : (!r, tensor<f32>) -> !r
  %scaled = model.mul %x, %mean : (!x, !r) -> !f
  %dx = model.sub %dy, %scaled : (!x, !f) -> !x
  %wide = model.convert %dx : (!x) -> !f
  %ds = model.reduce_sum %wide : (!f) -> !h
  %newg = model.accumulate %g, %dg : (!h, !h) -> !h
  %news = model.accumulate %s, %ds : (!h, !h) -> !h
  return %dx, %newg, %news : !x, !h, !h
}
)";

std::string normOf(int rows, int columns, const std::string &type) {
  std::string text = sized(normBackward, rows, columns, type);
  return text.replace(text.find("%N"), 2, std::to_string(1.0 / columns));
}

TEST(Lengths, SumsBesideTheRowsThatTheyRead) {
  for (auto [rows, columns] : {std::pair(1, 6), {67, 96}, {67, 260}, {21, 1600}, {5, 4096}}) {
    Compiled wide(normOf(rows, columns, "f32"));
    EXPECT_EQ(wide.instructions("f.backward"), "column_0 reduce_parts reduce_parts");
    wide.check("f.backward", {}, 1e-5);
    Compiled(normOf(rows, columns, "bf16")).check("f.backward", {}, 2e-2);
  }
  EXPECT_EQ(threadsOf(Compiled(normOf(67, 96, "bf16"))), "512 for 1 rows, 0 columns");
  EXPECT_EQ(threadsOf(Compiled(normOf(67, 4096, "bf16"))), "512 for 1 rows, 0 columns");
  // There are more sums than fit beside a row, so one of them becomes a separate kernel.
  EXPECT_EQ(Compiled(normOf(2, 8192, "f32")).instructions("f.backward"), "column_0 reduce_parts column_1 reduce_parts");
}

// A full result and its sum, without a row reduction, so blocks also split the columns.
TEST(Lengths, SumsBesideResults) {
  const char *gate = R"(
!x = tensor<%Rx%Cx%T, #model.dims<batch, ffn>>
!f = tensor<%Rx%Cxf32, #model.dims<batch, ffn>>
!h = tensor<%Cxf32, #model.dims<ffn>>
func.func @f.backward(%x: !x {model.role = "saved", model.name = "x"},
                      %dy: !x {model.role = "cotangent", model.name = "y"},
                      %g: !h {model.role = "accumulator", model.name = "g"})
    -> (!x {model.role = "cotangent", model.name = "y"}, !h {model.role = "accumulator", model.name = "g"}) {
  %t = model.tanh %x : (!x) -> !f
  %dx = model.mul %t, %dy : (!f, !x) -> !x
  %wide = model.convert %dx : (!x) -> !f
  %sum = model.reduce_sum %wide : (!f) -> !h
  %new = model.accumulate %g, %sum : (!h, !h) -> !h
  return %dx, %new : !x, !h
}
)";
  for (auto [rows, columns] : {std::pair(1, 1), {7, 6}, {300, 96}, {33, 260}, {5, 1024}}) {
    Compiled wide(sized(gate, rows, columns, "f32"));
    EXPECT_EQ(wide.instructions("f.backward"), "column_0 reduce_parts");
    wide.check("f.backward", {}, 1e-5);
    Compiled(sized(gate, rows, columns, "bf16")).check("f.backward", {}, 2e-2);
  }
}

} // namespace
} // namespace espalier::test
