// The data of a run: the plan defines the data, and the command line overrides the plan.
#pragma once

#include "format/plan.pb.h"
#include "runtime/dataset/dataset.h"
#include "runtime/dataset/sampler.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace espalier::rt {

/// Command-line options for data. Unset options (empty, -1, false) keep the plan's setting.
struct DataOptions {
  std::vector<std::string> words; ///< arguments of parseBlend: one path, or weight path weight path ...
  std::string split;              ///< weights of the training, validation and test splits
  int64_t eodToken = -1;          ///< the token id that ends a document
  bool eodMaskLoss = false;       ///< masks the loss where the input is the end of a document
  bool resetPositionIds = false;  ///< restarts positions after the end of a document
};

/// Opens a split of the run's data. `samples` is the number of samples that the run may read; a blend is laid out for
/// this number. Throws PlanError if no data is named, or if the model lacks an input that an option needs. Throws
/// DataError if the data cannot be read.
std::unique_ptr<Dataset> openRunData(const pb::Plan &plan, const DataOptions &options, Split split, int64_t samples);

/// Returns the paths of the run's data, without weights. Empty if the data are not named.
std::vector<std::string> dataPaths(const pb::Plan &plan, const DataOptions &options);

/// Returns whether a stage of the plan has an input of this name.
bool hasInput(const pb::Plan &plan, const std::string &name);

/// Returns a text that identifies the training samples. The text does not depend on the location of the files. Throws
/// DataError.
std::string describeTrainingData(const pb::Plan &plan, const DataOptions &options, SampleOrder order);

/// Returns digests of the indexes that describeTrainingData does not cover completely. Throws DataError.
std::string describeIndexes(const pb::Plan &plan, const DataOptions &options);

} // namespace espalier::rt
