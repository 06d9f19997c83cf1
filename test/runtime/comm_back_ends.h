// The back ends of communicators, each as a way to run N ranks at once, and operands that all of them can move.
#pragma once

#include "runtime/comm/comm.h"

#include <functional>
#include <numeric>
#include <optional>
#include <ostream>

namespace espalier::rt {

using Rank = std::function<void(Communicator &)>;

struct BackEnd {
  const char *name;
  /// Why it cannot run here; empty if it can.
  std::string (*lacks)();
  /// Runs `rank` on each of `ranks` ranks and returns the first failure that a rank reported. What a rank expects in
  /// vain fails the test on every back end.
  std::optional<Failure> (*run)(int ranks, const Rank &rank);
};

inline void PrintTo(const BackEnd &backEnd, std::ostream *out) { *out << backEnd.name; }

/// Those of this test program: a suite that takes half a minute is a program of its own.
std::span<const BackEnd> backEnds();

/// OpenMPI's: runs the test at hand anew under mpirun, where only the ranks of this one call live.
std::string mpiLacks();
std::optional<Failure> runMpi(int ranks, const Rank &rank);

/// Operands of a rank: they last as long as the ranks' world.
template <typename T> std::span<T> operands(Communicator &comm, size_t count) {
  return {reinterpret_cast<T *>(comm.allocate(count * sizeof(T))), count};
}

/// The ranks 0 to ranks - 1.
inline std::vector<int> allOf(int ranks) {
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

} // namespace espalier::rt
