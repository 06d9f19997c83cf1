// The samples of reference.py as a data set.
#pragma once

#include "runtime/dataset/dataset.h"

#include <span>

namespace espalier {

/// The samples of reference.py: token t of sample i is a formula, and the next token is the label.
class FormulaData : public rt::Dataset {
public:
  FormulaData() : Dataset(optionsOf()) {}
  int64_t sampleCount() const override { return 16; }
  void readTokens(int64_t i, std::span<int32_t> out) const override {
    for (int64_t t = 0; t < static_cast<int64_t>(out.size()); ++t)
      out[t] = static_cast<int32_t>((5 * i * i + 3 * t * t + 7 * i * t + 2 * i + t) % 19);
  }

private:
  static rt::DatasetOptions optionsOf() {
    rt::DatasetOptions options;
    options.seqLength = 8;
    return options;
  }
};

} // namespace espalier
