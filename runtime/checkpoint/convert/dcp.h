// Checkpoints of torch.distributed.checkpoint (DCP), which torchtitan writes and Megatron core calls torch_dist:
//
//   DIR/.metadata       a pickle of the names, shapes and chunks of all tensors
//   DIR/__0_0.distcp    chunks as torch.save writes them, one after another
//
// The pickle is read without executing it. Only weights are read.
#pragma once

#include "runtime/checkpoint/convert/weight_files.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

namespace espalier::rt {

/// Returns the folder with the file .metadata: the path, or the newest iteration of a folder of Megatron. Returns
/// nothing if there is none.
std::optional<std::filesystem::path> dcpFolderAt(const std::filesystem::path &path);

/// Opens the tensors of a folder with a file .metadata, of any number of writers. Throws PlanError if the metadata are
/// damaged. A tensor whose chunks do not cover it is an error when it is read.
std::unique_ptr<WeightSource> openDcp(const std::filesystem::path &folder);

/// Writes a folder with one file of chunks, completely or not at all, with one tensor in memory at a time. Throws
/// PlanError.
void writeDcpFolder(const std::filesystem::path &folder, std::span<const WrittenTensor> tensors);

/// Returns the tensors of a source whose names begin with `prefix`, without the prefix, if `isTaken` takes these names.
std::unique_ptr<WeightSource> withoutPrefix(std::shared_ptr<const WeightSource> source, const std::string &prefix,
                                            const std::function<bool(const std::string &name)> &isTaken);

/// Returns a source in which tensors of Megatron core that hold all `layers` layers, `layers.X` with the layer as first
/// dimension, are the tensors `layers.0.X` and so on.
std::unique_ptr<WeightSource> withoutStackedLayers(std::unique_ptr<WeightSource> source, int64_t layers);

} // namespace espalier::rt
