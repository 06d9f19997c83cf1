// Writes pickles of protocol 2 with the opcodes that torch.save uses, so that any release can read them, also with
// weights_only.
#pragma once

#include "runtime/checkpoint/convert/weight_files.h"
#include "runtime/comm/comm.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <string>
#include <vector>

namespace espalier::rt {

/// Appends opcodes.
class PickleWriter {
public:
  PickleWriter() { text = "\x80\x02"; }

  void name(const std::string &name) {
    text.push_back('X');
    put(name.size(), 4);
    text += name;
  }
  void whole(int64_t value) {
    bool isShort = value >= 0 && value <= std::numeric_limits<int32_t>::max();
    text += isShort ? "J" : "\x8a\x08";
    put(static_cast<uint64_t>(value), isShort ? 4 : 8);
  }
  void real(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    text.push_back('G');
    for (int byte = 8; byte-- > 0;) // big-endian
      text.push_back(static_cast<char>(bits >> (8 * byte)));
  }
  void none() { text += "N"; }
  void no() { text += "\x89"; }
  /// Writes a name of a module: a class, or a value.
  void global(const std::string &module, const std::string &name) { text += fmt::format("c{}\n{}\n", module, name); }
  void beginDict() { text += "}("; }
  void endDict() { text += "u"; }
  void beginList() { text += "]("; }
  void endList() { text += "e"; }
  void beginTuple() { text += "("; }
  void endTuple() { text += "t"; }
  /// Calls the global before a tuple of arguments.
  void call() { text += "R"; }
  /// Begins an object of a class. Its state follows, and then setState().
  void object(const std::string &module, const std::string &name) {
    global(module, name);
    text += ")\x81";
  }
  void setState() { text += "b"; }
  void tensor(const WrittenTensor &tensor, size_t number) {
    uint64_t elements = tensor.bytes() / elementBytes(tensor.type);
    text += "ctorch._utils\n_rebuild_tensor_v2\n((";
    name("storage");
    text += fmt::format("ctorch\n{}\n", storageName(tensor.type));
    name(std::to_string(number));
    name("cpu");
    whole(static_cast<int64_t>(elements));
    text += "tQ"; // the five items that identify the storage
    whole(0);
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    for (size_t i = strides.size(); i-- > 1;)
      strides[i - 1] = strides[i] * std::max<int64_t>(1, tensor.shape[i]);
    sizes(tensor.shape);
    sizes(strides);
    text += "\x89"                          // requires_grad is False
            "ccollections\nOrderedDict\n)R" // no backward hooks
            "tR";
  }
  std::string finish() { return text + "."; }

private:
  void put(uint64_t value, int width) {
    for (int byte = 0; byte < width; ++byte)
      text.push_back(static_cast<char>(value >> (8 * byte)));
  }
  void sizes(const std::vector<int64_t> &values) {
    text += "(";
    for (int64_t value : values)
      whole(value);
    text += "t";
  }
  static const char *storageName(pb::DataType type) {
    return type == pb::BF16 ? "BFloat16Storage" : type == pb::F16 ? "HalfStorage" : "FloatStorage";
  }

  std::string text;
};

} // namespace espalier::rt
