#include "test/compiler/codegen/declarations.h"

namespace espalier::test {

namespace pb = rt::pb;

namespace {

/// Returns the bytes that a launch's operand accesses, or -1 if a factor is not constant.
int64_t reachOf(const pb::Operand &operand, const pb::Launch &launch) {
  int64_t bytes = operand.type() == pb::BF16 || operand.type() == pb::F16 ? 2 : 4;
  for (uint32_t factor : operand.reach()) {
    if (factor == 0) {
      bytes *= launch.extent();
      continue;
    }
    if (static_cast<int>(factor) > launch.scalars_size())
      return -1;
    const pb::Affine &scalar = launch.scalars(static_cast<int>(factor) - 1);
    pb::Affine constant;
    constant.set_constant(scalar.constant());
    if (scalar.SerializeAsString() != constant.SerializeAsString())
      return -1;
    bytes *= scalar.constant();
  }
  return bytes;
}

std::string faultOf(const pb::Plan &plan, const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  if (launch.buffers_size() != kernel.operands_size() || launch.scalars_size() != static_cast<int>(kernel.scalars()))
    return std::to_string(launch.buffers_size()) + " buffers and " + std::to_string(launch.scalars_size()) +
           " scalars of " + std::to_string(kernel.operands_size()) + " and " + std::to_string(kernel.scalars());
  for (int i = 0; i < launch.buffers_size(); ++i) {
    const pb::Operand &operand = kernel.operands(i);
    const pb::Buffer &buffer = launch.buffers(i);
    std::string name = "buffer " + std::to_string(i);
    if (plan.values(static_cast<int>(buffer.value())).type() != operand.type())
      return name + " has another type";
    if (int64_t bytes = reachOf(operand, launch); !operand.bounded() && bytes != static_cast<int64_t>(buffer.bytes()))
      return name + " has " + std::to_string(buffer.bytes()) + " bytes, declared are " + std::to_string(bytes);
    if (operand.unless() > kernel.scalars() || (operand.unless() > 0 && operand.access() != pb::Operand::ADD))
      return name + " overwrites by what is no scalar";
    if (operand.unless() > 0 && launch.scalars(static_cast<int>(operand.unless()) - 1).first() == 0)
      return name + " asks for no bucket";
    for (uint32_t over : operand.over())
      if (static_cast<int>(over) >= i || kernel.operands(static_cast<int>(over)).access() != pb::Operand::READ)
        return name + " may lie over what is not read";
  }
  return "";
}

} // namespace

std::string undeclared(const pb::Plan &plan) {
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (const pb::Instruction &instruction : subprogram.instructions())
      if (instruction.has_launch())
        if (std::string fault = faultOf(plan, instruction.launch()); !fault.empty())
          return subprogram.name() + ", " + plan.kernels(static_cast<int>(instruction.launch().kernel())).symbol() +
                 ": " + fault;
  return "";
}

} // namespace espalier::test
