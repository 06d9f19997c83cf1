// Our own checkpoints as conversions see them: whole parameters, one at a time.
#pragma once

#include "runtime/checkpoint/convert/layout.h"
#include "runtime/checkpoint/kept_files.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/regular_file.h"

#include <functional>
#include <memory>

namespace espalier::rt {

/// The values of a checkpoint, independent of the plan that wrote it.
class NativeSource {
public:
  /// `path` is a checkpoint or a folder of them. Values of parameters of `others`, which may be null, are passed over.
  /// Throws PlanError if the checkpoint is damaged or of another model.
  NativeSource(const WeightModel &model, const std::filesystem::path &path, const WeightModel *others = nullptr);
  virtual ~NativeSource() = default;

  /// Returns the type of the parameter's elements.
  pb::DataType type(size_t parameter) const { return types[parameter]; }
  /// Returns the values in row-major order after verifying checksums. The last parameter read is cached.
  virtual std::shared_ptr<const std::vector<std::byte>> read(size_t parameter) const;

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

/// A parameter to write: `make` returns its bytes, `type` is known before.
struct NewParameter {
  pb::DataType type = pb::F32;
  std::function<std::vector<std::byte>()> make;
  /// Returns the elements of a box and reads little more than these. Null if the sources can only be read whole.
  std::function<std::vector<std::byte>(std::span<const int64_t> offsets, std::span<const int64_t> sizes)> makeBox =
      nullptr;
};

/// Writes a checkpoint without optimizer state, in the model's order, into a folder of checkpoints. Returns its folder.
/// It keeps the files `kept`. Leaves nothing behind if `make` or the disk fails.
std::filesystem::path writeNative(const WeightModel &model, const std::filesystem::path &folder,
                                  std::span<const NewParameter> parameters, const std::vector<SideFile> &kept = {});

} // namespace espalier::rt
