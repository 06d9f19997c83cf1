// Compiles forward and backward of a block, and of the head with its loss, from differentiation to machine code.
#include "test/compiler/codegen/harness.h"

#include "compiler/passes.h"
#include "dialects/model/dialect.h"
#include "dialects/register.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace espalier::test {
namespace {

/// Differentiates the segments of `text`. The cotangent becomes an argument, as after split-phases.
std::string differentiated(const std::string &text) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module);
  PassManager passes(&context);
  passes.addPass(createDifferentiate());
  passes.addPass(createCSEPass());
  EXPECT_TRUE(succeeded(passes.run(*module)));
  Builder builder(&context);
  for (auto function : module->getOps<func::FuncOp>())
    for (auto cotangent : llvm::make_early_inc_range(function.getOps<model::CotangentOp>())) {
      auto attributes =
          builder.getDictionaryAttr({builder.getNamedAttr("model.role", builder.getStringAttr("cotangent")),
                                     builder.getNamedAttr("model.name", builder.getStringAttr("x"))});
      (void)function.insertArgument(function.getNumArguments(), cotangent.getType(), attributes, function.getLoc());
      cotangent.replaceAllUsesWith(Value(function.getArguments().back()));
      cotangent.erase();
    }
  std::string printed;
  llvm::raw_string_ostream stream(printed);
  module->print(stream);
  return printed;
}

const char *block = R"(
!x = tensor<2x16x24x%T, #model.dims<batch, seq, hidden>>
!a = tensor<2x16x40x%T, #model.dims<batch, seq, ffn>>
!r = tensor<2x16xf32, #model.dims<batch, seq>>
!xf = tensor<2x16x24xf32, #model.dims<batch, seq, hidden>>
!af = tensor<2x16x40xf32, #model.dims<batch, seq, ffn>>
!h = tensor<24x%T, #model.dims<hidden>>
!f = tensor<40x%T, #model.dims<ffn>>
!w1 = tensor<24x40x%T, #model.dims<hidden, ffn>>
!w2 = tensor<40x24x%T, #model.dims<ffn, hidden>>
!s = tensor<f32>
func.func @block.joint(%x: !x {model.role = "stream", model.name = "x"},
    %g: !h {model.role = "parameter", model.name = "g"}, %b: !h {model.role = "parameter", model.name = "b"},
    %w1: !w1 {model.role = "parameter", model.name = "w1"}, %b1: !f {model.role = "parameter", model.name = "b1"},
    %w2: !w2 {model.role = "parameter", model.name = "w2"}, %b2: !h {model.role = "parameter", model.name = "b2"})
    -> (!x {model.role = "stream", model.name = "x"}) attributes {model.segment} {
  %n = model.constant 0.041666666666666664 : !s
  %e = model.constant 1.0e-5 : !s
  %half = model.constant 0.5 : !s
  %one = model.constant 1.0 : !s
  %root = model.constant 0.7071067811865476 : !s
  %sum = model.reduce_sum %x : (!x) -> !r
  %mean = model.mul %sum, %n : (!r, !s) -> !r
  %d = model.sub %x, %mean : (!x, !r) -> !xf
  %d2 = model.mul %d, %d : (!xf, !xf) -> !xf
  %v = model.reduce_sum %d2 : (!xf) -> !r
  %var = model.mul %v, %n : (!r, !s) -> !r
  %ve = model.add %var, %e : (!r, !s) -> !r
  %rstd = model.rsqrt %ve : (!r) -> !r
  %xh = model.mul %d, %rstd : (!xf, !r) -> !xf
  %xw = model.mul %xh, %g : (!xf, !h) -> !xf
  %y = model.add %xw, %b : (!xf, !h) -> !x
  %u = model.contract %y, %w1 : (!x, !w1) -> !a
  %ub = model.add %u, %b1 : (!a, !f) -> !a
  %us = model.mul %ub, %root : (!a, !s) -> !af
  %er = model.erf %us : (!af) -> !af
  %er1 = model.add %er, %one : (!af, !s) -> !af
  %uh = model.mul %ub, %half : (!a, !s) -> !af
  %act = model.mul %uh, %er1 : (!af, !af) -> !a
  %o = model.contract %act, %w2 : (!a, !w2) -> !x
  %ob = model.add %o, %b2 : (!x, !h) -> !x
  %dr = model.dropout %ob {rate = 0.1 : f64, id = 1 : i64} : (!x) -> !x
  %res = model.add %dr, %x : (!x, !x) -> !x
  return %res : !x
}
)";

std::string withType(std::string text, const std::string &type) {
  for (size_t at; (at = text.find("%T")) != std::string::npos;)
    text.replace(at, 2, type);
  return text;
}

TEST(Joint, BlockForwardAndBackwardInF32) {
  Compiled compiled(differentiated(withType(block, "f32")));
  compiled.check("block.joint", {}, 2e-5);
  Surroundings first;
  first.microBatch = 0;
  compiled.check("block.joint", first, 2e-5);
}

TEST(Joint, BlockForwardAndBackwardInBf16) {
  Compiled(differentiated(withType(block, "bf16"))).check("block.joint", {}, 0.04);
}

// The norm and its residual are one kernel. In backward, the bias gradient is one kernel, and so is the norm with its
// two parameter gradients, which read the same rows.
TEST(Joint, BlockHasFewKernels) {
  Compiled compiled(differentiated(withType(block, "f32")));
  EXPECT_EQ(
      compiled.instructions("block.joint"),
      "column_0 reduce_parts matmul row_1 matmul column_2 reduce_parts matmul row_3 matmul matmul matmul column_4 "
      "reduce_parts reduce_parts");
}

// Equal inputs give equal bytes. A process compiles equal kernels once; resume_phases.test compares those of processes.
TEST(Joint, CompilesToTheSameBytes) {
  std::string text = differentiated(withType(block, "bf16"));
  EXPECT_EQ(Compiled(text).plan().SerializeAsString(), Compiled(text).plan().SerializeAsString());
}

} // namespace
} // namespace espalier::test
