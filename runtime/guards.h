// Checked plans (Plan.guard_bytes): the free bytes after each buffer hold a pattern. An instruction that changes the
// pattern has written past the end of a buffer.
#pragma once

#include "format/mesh.h"
#include "format/plan.pb.h"
#include "runtime/device/device.h"

#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// The guards of one rank. Guards of workspace buffers are filled and checked during the buffers' live ranges, as the
/// plan lists them. Bytes of the rest of the arena that nothing uses are gaps, filled once.
class Guards {
public:
  /// Fills the gaps of the rank's arena.
  Guards(const pb::Plan &plan, const Mesh &mesh, int rank, Device &device);

  /// Fills the guards of buffers whose live range begins at an instruction of a subprogram. Called before the
  /// instruction. `bases` are the starts of the call's regions.
  void open(int subprogram, int instruction, std::span<const Place> bases) const;

  /// Checks the guards; called after the instruction. Throws std::runtime_error with the damaged byte and the buffer
  /// before it.
  void check(int subprogram, int instruction, std::span<const Place> bases) const;

private:
  struct Gap {
    uint64_t begin, end;
    std::string owner; ///< the buffer before the gap
  };
  void checkGap(uint64_t begin, uint64_t end, const std::string &owner) const;

  const pb::Plan &plan;
  Device &device;
  const uint32_t workspace; ///< the region named "workspace"
  std::vector<Gap> gaps;
};

} // namespace espalier::rt
