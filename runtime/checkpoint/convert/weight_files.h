// Tensors by name, whatever holds them: what conversions read from and write to.
#pragma once

#include "runtime/checkpoint/safetensors.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace espalier::rt {

/// A tensor of another system as a file lists it.
struct ListedTensor {
  pb::DataType type = pb::F32;
  std::string otherType; ///< a type that is none of ours, "I64"; empty: `type` holds
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

/// Tensors of one or more files. Nothing but names and shapes is read before a tensor is asked for.
class WeightSource {
public:
  virtual ~WeightSource() = default;
  virtual const std::map<std::string, ListedTensor> &tensors() const = 0;
  /// The elements in row-major order, whatever strides the file has. Throws PlanError.
  virtual std::vector<std::byte> read(const std::string &name) const = 0;
  /// Whether a part of a tensor can be read alone: not where it has to be gathered by strides.
  virtual bool readsParts(const std::string &name) const = 0;
  /// Fills `bytes` with those from `begin` on, where it reads parts. A checksum is compared where all that it covers is
  /// read. Throws PlanError.
  virtual void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const = 0;
  /// The file that holds it, for errors.
  virtual std::string placeOf(const std::string &name) const = 0;
};

/// One safetensors file.
std::unique_ptr<WeightSource> openSafetensors(const std::filesystem::path &file);

/// Several files as one. Throws PlanError where a tensor is in two of them.
std::unique_ptr<WeightSource> joinSources(std::vector<std::unique_ptr<WeightSource>> sources);

/// A tensor to write: `make` gives its bytes when its turn comes.
struct WrittenTensor {
  std::string name;
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;
  std::function<std::vector<std::byte>()> make;
  uint64_t bytes() const { return tensorBytes(shape, type); }
};

/// Writes tensors in this order, one in memory at a time: the file is whole and on disk, or absent.
void writeSafetensorsInTurn(const std::filesystem::path &file, std::span<const WrittenTensor> tensors,
                            const std::map<std::string, std::string> &metadata);

} // namespace espalier::rt
