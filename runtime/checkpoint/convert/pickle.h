// Reads Python pickles of protocol 2 to 5 with an interpreter that calls nothing. It can build dicts and tensors. Every
// other object becomes an inert value that carries its name, its arguments and its state.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// The element type of a torch storage.
struct PickleElement {
  std::string name;   ///< "FloatStorage"
  uint64_t bytes = 0; ///< per element
};

/// The elements that tensors refer to.
struct PickleStorage {
  PickleElement element;
  std::string key;
  uint64_t count = 0;
};

/// A strided view of a storage.
struct PickleTensor {
  PickleStorage storage;
  uint64_t offset = 0; ///< in elements
  std::vector<int64_t> shape, strides;
  uint64_t elements() const;
};

struct PickleValue;
/// Values belong to their Pickle. One value may occur in several containers.
using PickleRef = const PickleValue *;

/// A value of a pickle.
struct PickleValue {
  enum class Kind {
    None,
    Bool,
    Integer,
    Float,
    Text,
    Sequence,
    Dict,
    Global,
    Storage,
    Tensor,
    Inert
  } kind = Kind::None;
  int64_t integer = 0; ///< also for Bool
  double number = 0;
  std::string text;                                   ///< for Global and Inert: the name of the object
  std::vector<PickleRef> items;                       ///< for Sequence: a list or tuple
  std::vector<std::pair<PickleRef, PickleRef>> pairs; ///< for Dict, in file order
  PickleRef arguments = nullptr, state = nullptr;     ///< of Inert: what it was made with, and what was set
  PickleTensor tensor;                                ///< for Storage, only `storage` is set

  /// Returns the value of a text key, or null.
  PickleRef find(const std::string &key) const;
};

/// A pickle that was read.
class Pickle {
public:
  /// Reads one pickle at the start of `bytes`. Throws PlanError, without a file name, if it is not a pickle, is
  /// truncated, or has tensors that exceed their storages.
  explicit Pickle(std::span<const std::byte> bytes);

  const PickleValue &root() const { return *theRoot; }
  /// Returns the size of the pickle in bytes.
  size_t size() const { return used; }
  /// Returns the storages of its tensors by key.
  const std::map<std::string, PickleStorage> &storages() const { return theStorages; }

private:
  friend class PickleReader;
  std::deque<PickleValue> values;
  std::map<std::string, PickleStorage> theStorages;
  PickleRef theRoot = nullptr;
  size_t used = 0;
};

} // namespace espalier::rt
