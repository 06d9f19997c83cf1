#include "test/equivalence/mutate.h"

#include <fmt/format.h>
#include <google/protobuf/reflection.h>
#include <map>
#include <set>
#include <vector>

namespace espalier {
namespace {

namespace pb = rt::pb;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

/// A field of some message of the plan.
struct Site {
  Message *message;
  const FieldDescriptor *field;
};

/// What says nothing about how data moves: settings, text, code, provenance, what people read; where a table goes by
/// numbers, constants of kernels and the grid that their code is written for, which only the numbers that come out can
/// tell.
bool isSkipped(const FieldDescriptor *field) {
  static const std::set<std::string> names = {"Plan.version",         "Plan.settings",
                                              "Plan.inputs",          "Plan.locations",
                                              "Plan.identity",        "Plan.checksum",
                                              "Plan.parameter_count", "Plan.memory_limit_bytes",
                                              "Plan.guard_bytes",     "Mesh.ranks_per_host",
                                              "Instruction.location", "Transfer.location",
                                              "Communicator.bytes",   "Plan.predicted_step_seconds",
                                              "Object.geometry"};
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING || field->containing_type()->name() == "Initialization")
    return true;
  return names.count(field->containing_type()->name() + "." + field->name()) > 0;
}

class Mutation {
public:
  Mutation(pb::Plan &plan, std::mt19937 &random) : plan(plan), random(random) {}

  std::string apply();

private:
  void collect(Message &message, const std::string &name);
  size_t below(size_t bound) { return bound ? random() % bound : 0; }
  std::string shuffle(const Site &site);
  std::string change(const Site &site, int index);
  template <typename Number> Number otherNumber(Number number, std::string &how);

  pb::Plan &plan;
  std::mt19937 &random;
  std::map<std::string, std::vector<Site>> sites; ///< by message and field
};

/// `name`: of the message, and of an affine number whose it is.
void Mutation::collect(Message &message, const std::string &name) {
  const Reflection &reflection = *message.GetReflection();
  const auto &descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor *field = descriptor.field(i);
    bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    bool isAbsent = field->is_repeated() ? reflection.FieldSize(message, field) == 0
                                         : field->has_presence() && !reflection.HasField(message, field);
    if (isSkipped(field) || isAbsent)
      continue;
    if (field->is_repeated() || !isMessage)
      sites[name + "." + field->name()].push_back({&message, field});
    if (!isMessage)
      continue;
    std::string inner = field->message_type()->name();
    if (inner == "Affine")
      inner = name + "." + field->name();
    for (int k = 0; field->is_repeated() && k < reflection.FieldSize(message, field); ++k)
      collect(*reflection.MutableRepeatedMessage(&message, field, k), inner);
    if (!field->is_repeated())
      collect(*reflection.MutableMessage(&message, field), inner);
  }
}

std::string Mutation::apply() {
  collect(plan, "Plan");
  auto kind = std::next(sites.begin(), static_cast<int>(below(sites.size())));
  const Site &site = kind->second[below(kind->second.size())];
  bool isMessage = site.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  std::string how;
  if (site.field->is_repeated() && (isMessage || below(2)))
    how = shuffle(site);
  else
    how =
        change(site, site.field->is_repeated()
                         ? static_cast<int>(below(site.message->GetReflection()->FieldSize(*site.message, site.field)))
                         : -1);
  return how.empty() ? "" : kind->first + " " + how;
}

/// Drops, doubles or swaps an entry with its neighbour.
std::string Mutation::shuffle(const Site &site) {
  const Reflection &reflection = *site.message->GetReflection();
  int size = reflection.FieldSize(*site.message, site.field), i = static_cast<int>(below(size));
  auto swap = [&](int a, int b) { reflection.SwapElements(site.message, site.field, a, b); };
  bool isMessage = site.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  switch (below(isMessage ? 3 : 2)) {
  case 0:
    for (int k = i; k + 1 < size; ++k)
      swap(k, k + 1);
    reflection.RemoveLast(site.message, site.field);
    return "dropped";
  case 1:
    if (i + 1 == size)
      return "";
    swap(i, i + 1);
    return "swapped";
  default:
    reflection.AddMessage(site.message, site.field)
        ->CopyFrom(reflection.GetRepeatedMessage(*site.message, site.field, i));
    for (int k = size; k > i + 1; --k)
      swap(k, k - 1);
    return "doubled";
  }
}

template <typename Number> Number Mutation::otherNumber(Number number, std::string &how) {
  switch (below(5)) {
  case 0:
    how = "+1";
    return number + 1;
  case 1:
    how = "-1";
    return number - 1;
  case 2:
    how = "doubled";
    return number * 2;
  case 3:
    how = "zero";
    return 0;
  default:
    how = "+64";
    return number + 64;
  }
}

std::string Mutation::change(const Site &site, int index) {
  const Reflection &reflection = *site.message->GetReflection();
  Message *message = site.message;
  const FieldDescriptor *field = site.field;
  std::string how;
  auto set = [&](auto get, auto put, auto getAt, auto putAt) {
    if (index < 0)
      (reflection.*put)(message, field, otherNumber((reflection.*get)(*message, field), how));
    else
      (reflection.*putAt)(message, field, index, otherNumber((reflection.*getAt)(*message, field, index), how));
  };
  switch (field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    set(&Reflection::GetInt32, &Reflection::SetInt32, &Reflection::GetRepeatedInt32, &Reflection::SetRepeatedInt32);
    break;
  case FieldDescriptor::CPPTYPE_UINT32:
    set(&Reflection::GetUInt32, &Reflection::SetUInt32, &Reflection::GetRepeatedUInt32, &Reflection::SetRepeatedUInt32);
    break;
  case FieldDescriptor::CPPTYPE_INT64:
    set(&Reflection::GetInt64, &Reflection::SetInt64, &Reflection::GetRepeatedInt64, &Reflection::SetRepeatedInt64);
    break;
  case FieldDescriptor::CPPTYPE_UINT64:
    set(&Reflection::GetUInt64, &Reflection::SetUInt64, &Reflection::GetRepeatedUInt64, &Reflection::SetRepeatedUInt64);
    break;
  case FieldDescriptor::CPPTYPE_DOUBLE:
    set(&Reflection::GetDouble, &Reflection::SetDouble, &Reflection::GetRepeatedDouble, &Reflection::SetRepeatedDouble);
    break;
  case FieldDescriptor::CPPTYPE_BOOL:
    reflection.SetBool(message, field, !reflection.GetBool(*message, field));
    return "negated";
  case FieldDescriptor::CPPTYPE_ENUM: {
    const auto &values = *field->enum_type();
    reflection.SetEnum(message, field, values.value(static_cast<int>(below(values.value_count()))));
    return "another";
  }
  default:
    break;
  }
  return how;
}

} // namespace

std::string mutate(rt::pb::Plan &plan, std::mt19937 &random) { return Mutation(plan, random).apply(); }

} // namespace espalier
