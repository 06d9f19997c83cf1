// The list of the datasets of a blend, as options and run files spell it.
#pragma once

#include <string>
#include <vector>

namespace espalier::rt {

/// One dataset of a blend: its relative weight, and the path for openDataset. In a list without weights, all are 0.
struct BlendPart {
  double weight;
  std::string path;
};

/// Parses Megatron's list form: WEIGHT PATH WEIGHT PATH ..., or PATH PATH ... if no word in the place of a weight is a
/// number. Throws DataError if only some weights are numbers, a weight is not above 0, or a path is missing or empty.
std::vector<BlendPart> parseBlend(const std::vector<std::string> &words);

/// Returns whether the parts have weights. Parts without weights are drawn in proportion to their samples.
bool isWeighted(const std::vector<BlendPart> &parts);

} // namespace espalier::rt
