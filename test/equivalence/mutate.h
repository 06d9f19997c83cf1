// Changes one field of a plan but keeps the plan well-formed. Such mutants model compiler faults and corrupted bytes.
#pragma once

#include "format/plan.pb.h"

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace espalier {

/// A change: its kind ("Buffer.offset +1"), its location ("launch row, buffers 2"), and the message before and after,
/// one line each.
struct Mutant {
  std::string kind, place, change;
  /// Whether the change affects only what a kernel computes from its inputs, and no access or order of accesses.
  /// Examples: swapped operands of equal type and shape, a dropped optional factor, another epilogue with equal
  /// operands, a random-stream id, a constant. The verifier does not prove these, so the equivalence suite compares
  /// results.
  bool isMathematics = false;
};

/// The possible changes of a plan: the fields that describe data movement, by message and field. The plan must stay at
/// its address.
class Mutations {
public:
  /// Considers only fields with `part` in their names.
  explicit Mutations(rt::pb::Plan &plan, const std::string &part = "");

  /// Changes one random field of the plan. Each field of the schema is equally likely, however often it occurs.
  /// Returns nothing if the change has no effect.
  std::optional<Mutant> apply(std::mt19937 &random) const;

  /// Makes each change of each field, one at a time. `fields` restricts the fields, for example to "Block.actions".
  void forEach(const std::function<void(const Mutant &)> &visit, const std::vector<std::string> &fields = {}) const;

  struct Site {
    google::protobuf::Message *message;
    const google::protobuf::FieldDescriptor *field;
    std::string place;
    bool isNumber = false; ///< whether the field is part of an affine number that only affects arithmetic
  };

private:
  void collect(google::protobuf::Message &message, const std::string &name, const std::string &outer,
               bool isNumber = false);
  bool isMathematics(const Site &site, int entry, const std::string &how) const;
  bool areAlike(const rt::pb::Buffer &a, const rt::pb::Buffer &b) const;
  std::string placeOf(const google::protobuf::Message &message, const std::string &outer) const;

  const rt::pb::Plan &plan;
  std::map<std::string, std::vector<Site>> sites;
};

} // namespace espalier
