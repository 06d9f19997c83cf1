// Our own checkpoints as conversions see them: whole parameters, one at a time.
#pragma once

#include "runtime/checkpoint/convert/layout.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/regular_file.h"

#include <functional>
#include <memory>

namespace espalier::rt {

/// The values of a checkpoint, whatever plan wrote it.
class NativeSource {
public:
  /// `path` is a checkpoint or a folder of them. Throws PlanError for one of another model, or damaged.
  NativeSource(const WeightModel &model, const std::filesystem::path &path);

  /// Of the parameter's elements.
  pb::DataType type(size_t parameter) const { return types[parameter]; }
  /// In row-major order, its checksums verified. The last one read is kept.
  std::shared_ptr<const std::vector<std::byte>> read(size_t parameter) const;

private:
  struct Place {
    const Shard *shard;
    const StoredPiece *stored;
  };
  void readPlace(const WeightParameter &parameter, const Place &place, std::span<std::byte> whole) const;

  const WeightModel &model;
  std::filesystem::path path;
  Manifest manifest;
  std::vector<std::vector<Place>> places;
  std::vector<pb::DataType> types;
  mutable std::shared_ptr<const std::vector<std::byte>> last;
  mutable size_t lastParameter = 0;
};

/// Gives the bytes of a parameter and says its type beforehand.
struct NewParameter {
  pb::DataType type = pb::F32;
  std::function<std::vector<std::byte>()> make;
  /// The elements of a box of it, of which its sources read little more; null where they are read whole.
  std::function<std::vector<std::byte>(std::span<const int64_t> offsets, std::span<const int64_t> sizes)> makeBox =
      nullptr;
};

/// Writes a checkpoint of parameters only, in the model's order, into a folder of checkpoints; returns its folder.
/// Nothing is left there where `make` or the disk fails.
std::filesystem::path writeNative(const WeightModel &model, const std::filesystem::path &folder,
                                  std::span<const NewParameter> parameters);

} // namespace espalier::rt
