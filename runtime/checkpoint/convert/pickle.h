// Python's pickles, protocol 2, read by an interpreter that calls nothing: it knows how dicts and tensors are built,
// and whatever else a pickle asks for becomes a value that carries its name and does nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// The elements of a storage: a type of torch.
struct PickleElement {
  std::string name;   ///< "FloatStorage"
  uint64_t bytes = 0; ///< of one
};

struct PickleStorage {
  PickleElement element;
  std::string key;
  uint64_t count = 0;
};

struct PickleTensor {
  PickleStorage storage;
  uint64_t offset = 0; ///< in elements
  std::vector<int64_t> shape, strides;
  uint64_t elements() const;
};

struct PickleValue;
/// Values belong to their Pickle; the same one may be in several places.
using PickleRef = const PickleValue *;

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
  int64_t integer = 0; ///< Bool, too
  double number = 0;
  std::string text;                                   ///< Global, Inert: what it asks for
  std::vector<PickleRef> items;                       ///< Sequence: lists and tuples
  std::vector<std::pair<PickleRef, PickleRef>> pairs; ///< Dict, in its order
  PickleTensor tensor;                                ///< Storage: its storage only

  /// The value of a text key, or null.
  PickleRef find(const std::string &key) const;
};

class Pickle {
public:
  /// Reads one pickle at the start of `bytes`. Throws PlanError, without a place, for what is no pickle, is cut off or
  /// has tensors that their storages cannot hold.
  explicit Pickle(std::span<const std::byte> bytes);

  const PickleValue &root() const { return *theRoot; }
  /// Bytes of the pickle.
  size_t size() const { return used; }
  /// What its tensors lie in, by key.
  const std::map<std::string, PickleStorage> &storages() const { return theStorages; }

private:
  friend class PickleReader;
  std::deque<PickleValue> values;
  std::map<std::string, PickleStorage> theStorages;
  PickleRef theRoot = nullptr;
  size_t used = 0;
};

} // namespace espalier::rt
