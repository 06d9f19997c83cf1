// Checked plans (Plan.guard_bytes): the free bytes behind buffers are filled with a pattern, and an instruction that
// changed one of them has written past the end of a buffer.
#pragma once

#include "runtime/device/device.h"
#include "runtime/mesh.h"
#include "runtime/plan.pb.h"

#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// The guards of one rank. Behind buffers of the workspace they come and go with the buffers, as the plan lists them;
/// everything else lies still, and what no instruction, input or stream ever touches there is a gap.
class Guards {
public:
  /// Fills the gaps of the rank's arena.
  Guards(const pb::Plan &plan, const Mesh &mesh, int rank, Device &device);

  /// Before an instruction of a subprogram: fills the guards of the buffers that begin to live. `bases`: where the
  /// call's regions begin.
  void open(int subprogram, int instruction, std::span<const Place> bases) const;

  /// After the instruction. Throws std::runtime_error that names the damaged byte and the buffer before it.
  void check(int subprogram, int instruction, std::span<const Place> bases) const;

private:
  struct Gap {
    uint64_t begin, end;
    std::string owner; ///< what lies before it
  };
  void checkGap(uint64_t begin, uint64_t end, const std::string &owner) const;

  const pb::Plan &plan;
  Device &device;
  const uint32_t workspace; ///< region of that name
  std::vector<Gap> gaps;
};

} // namespace espalier::rt
