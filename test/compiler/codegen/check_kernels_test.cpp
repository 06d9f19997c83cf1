// Each test makes a kernel's code differ from its body. checkKernels must name the kernel and the wrong element.
#include "compiler/codegen/check_kernels.h"

#include "compiler/codegen/emit_objects.h"
#include "compiler/codegen/guards.h"
#include "compiler/driver.h"
#include "compiler/link/emit_programs.h"
#include "dialects/exec/dialect.h"
#include "dialects/model/dialect.h"
#include "dialects/register.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>

using namespace mlir;

namespace espalier {
namespace {

using testing::HasSubstr;

const char *scaledResidual = R"(
!x = tensor<2x3x3xf32, #model.dims<batch, seq, hidden>>
!r = tensor<2x3xf32, #model.dims<batch, seq>>
func.func @block.forward(%x: !x {model.role = "stream", model.name = "x"},
                         %y: !x {model.role = "saved", model.name = "y"})
    -> (!x {model.role = "stream", model.name = "x"}, !x {model.role = "saved", model.name = "z"}) {
  %sum = model.reduce_sum %x : (!x) -> !r
  %scaled = model.mul %x, %sum : (!x, !r) -> !x
  %z = model.add %scaled, %y : (!x, !x) -> !x
  return %z, %scaled : !x, !x
}
)";

// A kernel that replaces a library call.
const char *rotation = R"(
!x = tensor<2x5x2x8xf32, #model.dims<batch, seq, heads, head_dim>>
!p = tensor<2x5xi32, #model.dims<batch, seq>>
module attributes {exec.target = "cuda"} {
func.func @block.forward(%x: !x {model.role = "saved", model.name = "x"}, %p: !p {model.role = "saved",
    model.name = "p"})
    -> (!x {model.role = "saved", model.name = "y"}) {
  %y = model.rope %x, %p {theta = 100.0 : f64} : (!x, !p) -> !x
  return %y : !x
}
}
)";

class CheckKernels : public testing::Test {
protected:
  explicit CheckKernels(const char *source = scaledResidual) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = parseSourceString<ModuleOp>(source, &context);
    PassManager passes(&context);
    addCodegenPasses(passes);
    EXPECT_TRUE(succeeded(passes.run(*module)));
    emitPrograms(*module, plan);
    EXPECT_TRUE(succeeded(codegen::emitObjects(*module, plan)));
  }

  exec::KernelOp kernel() { return *module->getOps<exec::KernelOp>().begin(); }

  /// Returns the error of the check, or an empty string.
  std::string check(const OpenKernelRunner &open = {}) {
    std::string said;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) { said += diagnostic.str(); });
    bool isSound = succeeded(codegen::checkKernels(*module, plan, open));
    EXPECT_EQ(isSound, said.empty());
    return said;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  rt::pb::Plan plan;
};

TEST_F(CheckKernels, AgreeWithTheInterpreter) { EXPECT_EQ(check(), ""); }

// The code adds, but the body now subtracts.
TEST_F(CheckKernels, FindsWrongArithmetic) {
  model::AddOp add = *kernel().getOps<model::AddOp>().begin();
  OpBuilder builder(add);
  add.replaceAllUsesWith(builder.create<model::SubOp>(add.getLoc(), add.getType(), add.getOperands()).getResult());
  add.erase();
  EXPECT_THAT(check(), HasSubstr("'row_0' at x86-64 gives "));
}

// The code stores three numbers per row, but the body now yields one.
TEST_F(CheckKernels, FindsWritesPastTheEnd) {
  Value sum = (*kernel().getOps<model::ReduceSumOp>().begin()).getResult();
  kernel().getBody().front().getTerminator()->setOperand(1, sum);
  EXPECT_THAT(check(), HasSubstr("'row_0' at x86-64 writes past the end of its result 1"));
}

TEST_F(CheckKernels, FindsMissingCode) {
  kernel().setSymName("row_9");
  EXPECT_THAT(check(), HasSubstr("'row_9' at x86-64 is missing"));
}

TEST_F(CheckKernels, NeedsASupportedLevel) {
  for (rt::pb::Object &object : *plan.mutable_objects())
    object.set_level("x86-64-v9");
  EXPECT_THAT(check(), HasSubstr("nothing here runs the plan's kernels"));
}

/// A device whose only kernel clears its first result and the next `excess` bytes.
class WrongDevice : public KernelRunner {
public:
  explicit WrongDevice(size_t excess) : excess(excess) {}
  std::string level() const override { return "sm_0"; }
  void run(uint32_t, std::span<const std::span<char>> buffers, std::span<const int64_t>, int64_t) override {
    std::span<char> guarded = buffers[buffers.size() - 2];
    size_t bytes = guarded.size() - checkedGuardBytes + excess;
    std::fill(guarded.begin(), guarded.begin() + static_cast<ptrdiff_t>(bytes), '\0');
  }

  void call(const rt::pb::LibraryCall &, std::span<const rt::pb::DataType>, std::span<const std::span<char>>,
            std::span<const int64_t>, uint32_t) override {}

private:
  size_t excess;
};

TEST_F(CheckKernels, RunsKernelsOnTheDevice) {
  (*module)->setAttr("exec.target", StringAttr::get(&context, "cuda"));
  plan.clear_objects();
  auto device = [](size_t excess) {
    return [excess](const rt::pb::Plan &) { return std::make_unique<WrongDevice>(excess); };
  };
  EXPECT_THAT(check(device(0)), HasSubstr("'row_0' at sm_0 gives 0.00 at element "));
  EXPECT_THAT(check(device(1)), HasSubstr("'row_0' at sm_0 writes past the end of its result 0"));
  EXPECT_THAT(check(), HasSubstr("nothing here runs the plan's kernels"));
}

/// A device whose kernels clear only `excess` bytes after their last buffer. Its library calls, which serve as
/// reference, clear their last buffer.
class IdleDevice : public KernelRunner {
public:
  explicit IdleDevice(size_t excess) : excess(excess) {}
  std::string level() const override { return "sm_0"; }
  void run(uint32_t, std::span<const std::span<char>> buffers, std::span<const int64_t>, int64_t) override {
    std::span<char> last = buffers.back();
    std::fill(last.end() - checkedGuardBytes, last.end() - checkedGuardBytes + static_cast<ptrdiff_t>(excess), '\0');
  }
  void call(const rt::pb::LibraryCall &call, std::span<const rt::pb::DataType> types,
            std::span<const std::span<char>> buffers, std::span<const int64_t>, uint32_t) override {
    EXPECT_EQ(call.function(), rt::pb::LibraryCall::ROPE);
    EXPECT_EQ(types.size(), 3u);
    std::span<char> last = buffers.back();
    std::fill(last.begin(), last.end() - checkedGuardBytes, '\0');
  }

private:
  size_t excess; ///< bytes that it clears after the last buffer
};

class CheckCalls : public CheckKernels {
protected:
  CheckCalls() : CheckKernels(rotation) {}
  std::string checkOn(size_t excess) {
    return check([excess](const rt::pb::Plan &) { return std::make_unique<IdleDevice>(excess); });
  }
};

TEST_F(CheckCalls, ComparesWithTheRuntimesKernels) {
  EXPECT_THAT(checkOn(0),
              testing::ContainsRegex("'rope_0' at sm_0 gives -?0\\.[0-9]+ at element 0 of buffer 2 of rope, "
                                     "the runtime's own kernel 0.00"));
  EXPECT_THAT(checkOn(1), HasSubstr("'rope_0' at sm_0 writes past the end of buffer 2 of rope"));
}

TEST_F(CheckCalls, ReportsKernelsWithoutACall) {
  kernel().setShape("rotate");
  EXPECT_THAT(checkOn(0), HasSubstr("'rope_0' implements a library call that is not checked"));
}

} // namespace
} // namespace espalier
