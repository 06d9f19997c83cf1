// Describes a kernel's signature in the plan, so that a launch with wrong buffers, types or sizes is rejected before it
// runs. For kernels with a body, the signature comes from the kernel shape. For all others, it comes from their row in
// format/functions.def.
#pragma once

#include "format/plan.pb.h"

#include "dialects/exec/dialect.h"

namespace espalier::codegen {

/// Returns the plan's data type for an element type.
rt::pb::DataType dataType(mlir::Type element);

/// Adds the operands of `kernel` to `message` in the order of the launch buffers, and sets its number of scalars.
void describeKernel(exec::KernelOp kernel, rt::pb::Kernel &message);

} // namespace espalier::codegen
