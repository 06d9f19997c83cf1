// A stage's list of actions, played on summaries: one rank stands for all of the stage.
#pragma once

#include "runtime/verify/summary.h"

#include <array>

namespace espalier::rt::verify {

/// Room for a region: one offset per slot.
struct Place {
  int64_t base = 0, stride = 0, bytes = 0;
  int64_t at(uint32_t slot) const { return base + slot * stride; }
  Span span(uint32_t slot, int64_t begin, int64_t end) const { return {at(slot) + begin, at(slot) + end, 0}; }
};

/// Families of values at a stage. Numbers are micro-batches, of parameters and their state versions.
enum Family : uint32_t { Nothing, Parameter, State, Inputs, Streams, Cotangents, Saved };

/// Where a call has its part of a parameter: begins relative to the resident regions.
struct Holding {
  uint32_t parameter = 0;
  std::string name;
  int64_t elements = 0, padded = 0; ///< of this rank; with what the last shares reach beyond
  int64_t stored = 0, gradient = 0, state = 0;
  int64_t width = 0;                      ///< bytes of a stored element
  int64_t stateElements = 0, tensors = 0; ///< elements of each tensor of the state, and how many there are
  Axes partial = 0;                       ///< over which its gradient is summed
  uint32_t terms = 0;                     ///< of a complete gradient
};

/// What a region of a call means: a family and its place.
struct Meaning {
  uint32_t family = Nothing, place = 0;
};

enum class Role { Forward, Backward, Reduce, Norm, Update };
constexpr int roleCount = 5;

struct CallView {
  std::string name;
  std::vector<Place> places; ///< by region
  std::vector<Meaning> meanings;
  std::vector<Holding> holdings;
  std::array<const Summary *, roleCount> summaries = {};
};

/// A line of streams to or from a neighbour.
struct Line {
  bool isSend = false;
  Place place;
  Meaning meaning;
};

struct ActionView {
  enum Kind { Load, Run, Start, Wait, Agree };
  Kind kind = Run;
  Role role = Role::Forward;
  int line = 0;
  uint32_t microBatch = 0, slot = 0;
};

/// Resident regions and the scalars that the play knows.
struct Regions {
  int parameters = 0, gradients = 0, state = 0, scalars = 0, inputs = 0, workspace = 0;
  std::vector<int> sums; ///< scalars that are summed until AGREE
};

struct StageView {
  bool isTraining = true;
  int64_t arenaBytes = 0;
  uint32_t microBatches = 1;
  Regions regions;
  Place inputs;
  std::vector<Span> inputBuffers; ///< within `inputs`
  std::array<Line, 4> lines;
  std::vector<CallView> calls;
  std::vector<ActionView> actions;
  std::string name;
  std::function<std::string(int action)> actionName;
};

void playStage(const StageView &stage, const std::vector<std::string> &regionNames, PlanErrors &errors);

} // namespace espalier::rt::verify
