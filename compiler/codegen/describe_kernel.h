// What a kernel declares in the plan, so that a launch with other buffers, types or sizes is refused before it runs:
// for kernels made from a body what their shape says, for the others what their row of runtime/functions.def says.
#pragma once

#include "runtime/plan.pb.h"

#include "dialects/exec/dialect.h"

namespace espalier::codegen {

rt::pb::DataType dataType(mlir::Type element);

/// Adds the operands of `kernel` to `message`, in the order of its launches' buffers, and says how many scalars it has.
void describeKernel(exec::KernelOp kernel, rt::pb::Kernel &message);

} // namespace espalier::codegen
