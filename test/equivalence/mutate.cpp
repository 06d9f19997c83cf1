#include "test/equivalence/mutate.h"

#include <fmt/format.h>
#include <google/protobuf/reflection.h>
#include <memory>
#include <set>
#include <stdexcept>

namespace espalier {
namespace {

namespace pb = rt::pb;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Site = Mutations::Site;

/// What says nothing about how data moves: settings, code, places in files, provenance, what people read, names and
/// initial values of parameters; where a table goes by numbers and constants of kernels, which only the numbers that come
/// out can tell.
bool isSkipped(const FieldDescriptor *field) {
  static const std::set<std::string> names = {
      "Plan.settings",       "Plan.inputs",         "Plan.locations",          "Plan.identity",
      "Plan.checksum",       "Plan.guard_bytes",    "Plan.parameter_count",    "Plan.memory_limit_bytes",
      "Mesh.ranks_per_host", "Communicator.bytes",  "Instruction.location",    "Plan.predicted_step_seconds",
      "Transfer.location",   "Parameter.name",      "Parameter.initialization"};
  return field->type() == FieldDescriptor::TYPE_BYTES ||
         names.count(field->containing_type()->name() + "." + field->name()) > 0;
}

/// A line of a report.
std::string textOf(const Message &message) {
  bool isLong = message.ByteSizeLong() > 4000;
  return "  " + (isLong ? message.GetDescriptor()->name() + " of many fields" : message.ShortDebugString()) + "\n";
}

/// Drops (0), swaps with its neighbour (1) or doubles (2) entry i; says how.
std::string shuffle(const Site &site, int i, size_t how) {
  const Reflection &reflection = *site.message->GetReflection();
  int size = reflection.FieldSize(*site.message, site.field);
  auto swap = [&](int a, int b) { reflection.SwapElements(site.message, site.field, a, b); };
  switch (how) {
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

/// A change of one field.
struct Change {
  std::mt19937 &random;
  const std::vector<Site> &all; ///< those of its kind
  const Site &site;

  std::string apply();

private:
  size_t below(size_t bound) { return bound ? random() % bound : 0; }
  std::string setName(int index);
  std::string setNumber(int index);
  template <typename Number> Number otherNumber(Number number, std::string &how);
};

std::string Change::apply() {
  const FieldDescriptor *field = site.field;
  int size = field->is_repeated() ? site.message->GetReflection()->FieldSize(*site.message, field) : 0;
  bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (field->is_repeated() && (isMessage || below(2))) {
    int entry = static_cast<int>(below(size));
    return shuffle(site, entry, below(isMessage ? 3 : 2));
  }
  int index = field->is_repeated() ? static_cast<int>(below(size)) : -1;
  return field->cpp_type() == FieldDescriptor::CPPTYPE_STRING ? setName(index) : setNumber(index);
}

/// The name of another one.
std::string Change::setName(int index) {
  const Site &other = all[below(all.size())];
  const Reflection &reflection = *site.message->GetReflection();
  if (index < 0)
    reflection.SetString(site.message, site.field, reflection.GetString(*other.message, site.field));
  else
    reflection.SetRepeatedString(site.message, site.field, index,
                                 reflection.GetRepeatedString(*other.message, site.field, static_cast<int>(below(
                                     reflection.FieldSize(*other.message, site.field)))));
  return "of another";
}

template <typename Number> Number Change::otherNumber(Number number, std::string &how) {
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

std::string Change::setNumber(int index) {
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

Mutations::Mutations(rt::pb::Plan &plan, const std::string &part) {
  collect(plan, "Plan");
  std::erase_if(sites, [&](const auto &entry) { return entry.first.find(part) == std::string::npos; });
  if (sites.empty())
    throw std::invalid_argument("no field of the plan has '" + part + "' in its name");
}

/// `name`: of the message, and of an affine number whose it is.
void Mutations::collect(Message &message, const std::string &name) {
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

std::optional<Mutant> Mutations::apply(std::mt19937 &random) const {
  auto kind = std::next(sites.begin(), static_cast<int>(random() % sites.size()));
  const std::vector<Site> &all = kind->second;
  const Site &site = all[random() % all.size()];
  std::string bytes = site.message->SerializeAsString(), before = textOf(*site.message);
  std::string how = Change{random, all, site}.apply();
  if (site.message->SerializeAsString() == bytes)
    return std::nullopt;
  return Mutant{kind->first + " " + how, before + textOf(*site.message)};
}

void Mutations::forEachEntry(const std::vector<std::string> &fields,
                             const std::function<void(const Mutant &)> &visit) const {
  for (const std::string &field : fields)
    for (const Site &site : sites.at(field)) {
      std::unique_ptr<Message> kept(site.message->New());
      kept->CopyFrom(*site.message);
      for (int i = 0; i < kept->GetReflection()->FieldSize(*kept, site.field); ++i)
        for (size_t how = 0; how < 3; ++how) {
          std::string done = shuffle(site, i, how);
          if (!done.empty())
            visit({field + " " + done, fmt::format("  entry {} of\n{}", i, textOf(*kept))});
          site.message->CopyFrom(*kept);
        }
    }
}

} // namespace espalier
