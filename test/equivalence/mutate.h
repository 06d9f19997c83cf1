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

/// A change: its kind, "Buffer.offset +1" for example, where it lies, "launch row, buffers 2", and the message before
/// and after it, a line each.
struct Mutant {
  std::string kind, place, change;
  /// Whether it leaves every access and the order of all of them as they are, and changes only what a kernel computes
  /// from what it reads: operands of equal type and shape in each other's place, an optional factor that is left out, a
  /// random-stream id, a constant. The verifier does not prove these; the equivalence suite compares their results.
  bool isMathematics = false;
};

/// What can be changed of a plan: the fields that say how data moves, by message and field. The plan keeps its place.
class Mutations {
public:
  /// Of fields with `part` in their names.
  explicit Mutations(rt::pb::Plan &plan, const std::string &part = "");

  /// Changes one field of the plan; every field of the schema is as likely as any other, however often it occurs. None
  /// where the change that was drawn changes nothing.
  std::optional<Mutant> apply(std::mt19937 &random) const;

  /// Changes each field in each way, one at a time, of the fields named, "Block.actions" for example, or of all.
  void forEach(const std::function<void(const Mutant &)> &visit, const std::vector<std::string> &fields = {}) const;

  struct Site {
    google::protobuf::Message *message;
    const google::protobuf::FieldDescriptor *field;
    std::string place;
    bool isNumber = false; ///< of an affine number that enters the arithmetic alone
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
