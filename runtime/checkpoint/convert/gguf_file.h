// Reads GGUF, the file of llama.cpp. Counts and lengths are compared with the bytes that remain before memory is
// allocated.
#pragma once

#include "runtime/checkpoint/convert/gguf.h"
#include "runtime/checkpoint/regular_file.h"

namespace espalier::rt {

/// The value of a key.
struct GgufRead {
  std::optional<double> number; ///< also for a bool: 0 or 1
  std::string text;
  std::vector<double> numbers;    ///< of an array
  std::vector<std::string> texts; ///< of an array
  bool isList = false;
};

/// An open file. Only its head is in memory.
class GgufFile {
public:
  /// Throws PlanError if the file is cut or damaged, its tensors overlap, or one has a type that is not read.
  explicit GgufFile(const std::filesystem::path &path);

  struct Tensor {
    GgufType type = GgufType::F32;
    std::vector<int64_t> shape; ///< the slowest axis first
    uint64_t begin = 0, bytes = 0;
  };
  const std::map<std::string, GgufRead> &keys() const { return theKeys; }
  const std::map<std::string, Tensor> &tensors() const { return theTensors; }

  /// Returns the text of a key, or nothing.
  std::string text(const std::string &key) const;
  /// Returns the number of a key, if it has one.
  std::optional<double> number(const std::string &key) const;
  /// Returns the elements of a tensor of the file as f32, f16 or bf16; those of q8_0 as f32.
  std::vector<std::byte> read(const std::string &name) const;
  const RegularFile &file() const { return opened; }

private:
  RegularFile opened;
  std::map<std::string, GgufRead> theKeys;
  std::map<std::string, Tensor> theTensors;
};

/// Opens the tensors of a file as a source of weights. If `normsFromOne`, 1 is subtracted from weights of norms. The
/// table of scaled rotary positions is left out, because the config has its factors.
std::unique_ptr<WeightSource> openGguf(const std::filesystem::path &path, bool normsFromOne);

/// Returns `rope_scaling` of a config.json as JSON, or nothing if positions are not scaled. Throws PlanError for a form
/// that config.json does not have.
std::string ropeScalingOf(const GgufFile &file);

} // namespace espalier::rt
