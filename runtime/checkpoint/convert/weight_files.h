// Tensors by name, independent of the file format: the sources and outputs of conversions.
#pragma once

#include "runtime/checkpoint/safetensors.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace espalier::rt {

/// A tensor as a file of another system lists it.
struct ListedTensor {
  pb::DataType type = pb::F32;
  std::string otherType; ///< a type that we do not support, as "I64"; empty: `type` is valid
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

/// The tensors of one or more files. Only names and shapes are read until a tensor is requested.
class WeightSource {
public:
  virtual ~WeightSource() = default;
  /// Returns the tensors by name.
  virtual const std::map<std::string, ListedTensor> &tensors() const = 0;
  /// Returns the elements in row-major order for any strides in the file. Throws PlanError.
  virtual std::vector<std::byte> read(const std::string &name) const = 0;
  /// Returns whether parts of a tensor can be read separately; false if its elements must be gathered by strides.
  virtual bool readsParts(const std::string &name) const = 0;
  /// Fills `bytes` from byte `begin` on, if readsParts(). A checksum is verified if all of its bytes are read. Throws
  /// PlanError.
  virtual void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const = 0;
  /// Returns the file that holds the tensor, for error messages.
  virtual std::string placeOf(const std::string &name) const = 0;
};

/// Opens one safetensors file.
std::unique_ptr<WeightSource> openSafetensors(const std::filesystem::path &file);

/// Presents several files as one. Throws PlanError if a tensor is in two of them.
std::unique_ptr<WeightSource> joinSources(std::vector<std::unique_ptr<WeightSource>> sources);

/// A tensor to write. `make` returns its bytes when the tensor is written.
struct WrittenTensor {
  std::string name;
  pb::DataType type = pb::F32;
  std::vector<int64_t> shape;
  std::function<std::vector<std::byte>()> make;
  uint64_t bytes() const { return tensorBytes(shape, type); }
};

/// Writes tensors in this order, one in memory at a time. The file is written completely or not at all.
void writeSafetensorsInTurn(const std::filesystem::path &file, std::span<const WrittenTensor> tensors,
                            const std::map<std::string, std::string> &metadata);

} // namespace espalier::rt
