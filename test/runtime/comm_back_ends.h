// The communicator back ends, each with a way to run N ranks at once, and operands that all of them can transfer.
#pragma once

#include "runtime/comm/comm.h"

#include <functional>
#include <numeric>
#include <optional>
#include <ostream>

namespace espalier::rt {

/// The work of one rank.
using Rank = std::function<void(Communicator &)>;

/// A communicator back end under test.
struct BackEnd {
  const char *name;
  /// Returns why the back end cannot run here; empty if it can.
  std::string (*lacks)();
  /// Runs `rank` on each of `ranks` ranks and returns the first failure that a rank reported. A failed expectation of
  /// a rank fails the test on every back end.
  std::optional<Failure> (*run)(int ranks, const Rank &rank);
};

inline void PrintTo(const BackEnd &backEnd, std::ostream *out) { *out << backEnd.name; }

/// Returns the back ends of this test program. Each slow back end has its own test program.
std::span<const BackEnd> backEnds();

/// OpenMPI's back end: reruns the current test under mpirun, where only the ranks of this one call exist.
std::string mpiLacks();
std::optional<Failure> runMpi(int ranks, const Rank &rank);

/// Returns operands of a rank, which live as long as the ranks' world.
template <typename T> std::span<T> operands(Communicator &comm, size_t count) {
  return {reinterpret_cast<T *>(comm.allocate(count * sizeof(T))), count};
}

/// Returns the ranks 0 to ranks - 1.
inline std::vector<int> allOf(int ranks) {
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

} // namespace espalier::rt
