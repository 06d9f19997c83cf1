// Changes of one field of a plan that leave it well-formed: what a fault of the compiler, or of a byte, would look
// like.
#pragma once

#include "runtime/plan.pb.h"

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace espalier {

/// A change: its kind, "Buffer.offset +1" for example, and the message before and after it, a line each.
struct Mutant {
  std::string kind, change;
};

/// What can be changed of a plan: the fields that say how data moves, by message and field. The plan keeps its place.
class Mutations {
public:
  /// Of fields with `part` in their names.
  explicit Mutations(rt::pb::Plan &plan, const std::string &part = "");

  /// Changes one field of the plan; every field of the schema is as likely as any other, however often it occurs. None
  /// where the change that was drawn changes nothing.
  std::optional<Mutant> apply(std::mt19937 &random) const;

  /// Drops, doubles and swaps with the next each entry of the fields, "Block.actions" for example, one at a time. They
  /// may not lie inside each other.
  void forEachEntry(const std::vector<std::string> &fields, const std::function<void(const Mutant &)> &visit) const;

  struct Site {
    google::protobuf::Message *message;
    const google::protobuf::FieldDescriptor *field;
  };

private:
  void collect(google::protobuf::Message &message, const std::string &name);

  std::map<std::string, std::vector<Site>> sites;
};

} // namespace espalier
