// What a run reads: the plan says it, the command line overrides it.
#pragma once

#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"
#include "runtime/plan.pb.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace espalier::rt {

/// Unset (empty, -1, false) leaves what the plan says.
struct DataOptions {
  std::vector<std::string> words; ///< what parseBlend takes: one path, or weight path weight path ...
  std::string split;              ///< weights of training, validation and test
  int64_t eodToken = -1;          ///< the id that ends a document
  bool eodMaskLoss = false;       ///< no loss where the input is the end of a document
  bool resetPositionIds = false;  ///< positions restart behind it
};

/// Opens a part of the data of a run. `samples` is how many the run may read: a blend is laid out for as many. Throws
/// PlanError where neither side names data or the model lacks an input that an option is for, and DataError.
std::unique_ptr<Dataset> openRunData(const pb::Plan &plan, const DataOptions &options, Split split, int64_t samples);

/// Whether a stage of the plan takes an input of this name.
bool hasInput(const pb::Plan &plan, const std::string &name);

/// What training reads, in words: equal where the samples are, wherever the files lie. Throws DataError.
std::string describeTrainingData(const pb::Plan &plan, const DataOptions &options, SampleOrder order);

} // namespace espalier::rt
