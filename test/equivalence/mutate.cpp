#include "test/equivalence/mutate.h"

#include <algorithm>
#include <array>
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

/// Returns whether a field does not describe data movement: settings, code, source locations, provenance, display text,
/// names and initial values of parameters. Also skips table offsets and kernel constants that affect only the results.
bool isSkipped(const FieldDescriptor *field) {
  static const std::set<std::string> names = {
      "Plan.settings",       "Plan.inputs",        "Plan.locations",          "Plan.identity",
      "Plan.checksum",       "Plan.guard_bytes",   "Plan.parameter_count",    "Plan.memory_limit_bytes",
      "Mesh.ranks_per_host", "Communicator.bytes", "Instruction.location",    "Plan.predicted_step_seconds",
      "Transfer.location",   "Parameter.name",     "Parameter.initialization"};
  return field->type() == FieldDescriptor::TYPE_BYTES ||
         names.count(field->containing_type()->name() + "." + field->name()) > 0;
}

/// Formats a message as one line.
std::string textOf(const Message &message) {
  bool isLong = message.ByteSizeLong() > 4000;
  return "  " + (isLong ? message.GetDescriptor()->name() + " of many fields" : message.ShortDebugString()) + "\n";
}

/// One entry of a field (or an empty field) and the ways to change it. Entries keep their addresses.
class Change {
public:
  Change(const std::vector<Site> &all, const Site &site, int entry)
      : all(all), site(site), entry(entry), kept(site.message->New()), reflection(*site.message->GetReflection()) {
    if (!isMessage())
      kept->CopyFrom(*site.message);
  }

  /// Returns the number of ways to change the entry.
  size_t ways() const { return shuffles() + others(); }
  /// Applies one way and describes it. Returns an empty string if the way has no effect.
  std::string apply(size_t way);
  void undo();

private:
  bool isMessage() const { return site.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE; }
  size_t shuffles() const { return isMessage() ? 3 : site.field->is_repeated() ? 2 : 0; }
  size_t others() const;
  std::string shuffle(size_t way);
  std::string setName(size_t other);
  std::string setNumber(size_t way);
  void move(int from, int to);

  const std::vector<Site> &all; ///< all sites of the same kind
  const Site &site;
  const int entry;
  std::unique_ptr<Message> kept; ///< the original field; for messages, the dropped entry
  const Reflection &reflection;
  std::function<void()> back; ///< for messages: restores the field
};

constexpr std::array numberChanges = {"+1", "-1", "doubled", "zero", "+64"};

size_t Change::others() const {
  switch (site.field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_MESSAGE:
    return 0;
  case FieldDescriptor::CPPTYPE_STRING:
    return entry < 0 ? all.size() : static_cast<size_t>(reflection.FieldSize(*site.message, site.field));
  case FieldDescriptor::CPPTYPE_BOOL:
    return 1;
  case FieldDescriptor::CPPTYPE_ENUM:
    return static_cast<size_t>(site.field->enum_type()->value_count());
  default:
    return numberChanges.size();
  }
}

std::string Change::apply(size_t way) {
  std::string how;
  if (way < shuffles())
    return shuffle(way);
  way -= shuffles();
  std::string bytes = site.message->SerializeAsString();
  how = site.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING ? setName(way) : setNumber(way);
  return site.message->SerializeAsString() == bytes ? "" : how;
}

void Change::undo() {
  if (!isMessage())
    reflection.SwapFields(site.message, kept.get(), {site.field});
  else if (back)
    back();
}

/// Moves an entry and shifts those between.
void Change::move(int from, int to) {
  for (int k = from; k != to; k += from < to ? 1 : -1)
    reflection.SwapElements(site.message, site.field, k, from < to ? k + 1 : k - 1);
}

/// Drops an entry, swaps it with the next, or duplicates it.
std::string Change::shuffle(size_t way) {
  int last = reflection.FieldSize(*site.message, site.field) - 1;
  if (way == 1) {
    if (entry == last)
      return "";
    back = [this] { move(entry, entry + 1); };
    back();
    return "swapped";
  }
  if (way == 2) {
    reflection.AddMessage(site.message, site.field)
        ->CopyFrom(reflection.GetRepeatedMessage(*site.message, site.field, entry));
    move(last + 1, entry + 1);
    back = [this, last] {
      move(entry + 1, last + 1);
      reflection.RemoveLast(site.message, site.field);
    };
    return "doubled";
  }
  move(entry, last);
  if (isMessage()) {
    kept.reset(reflection.ReleaseLast(site.message, site.field));
    back = [this, last] {
      reflection.AddAllocatedMessage(site.message, site.field, kept.release());
      move(last, entry);
    };
  } else {
    reflection.RemoveLast(site.message, site.field);
  }
  return "dropped";
}

/// Replaces the name by the name of another entry.
std::string Change::setName(size_t other) {
  if (entry < 0)
    reflection.SetString(site.message, site.field, reflection.GetString(*all[other].message, site.field));
  else
    reflection.SetRepeatedString(site.message, site.field, entry,
                                 reflection.GetRepeatedString(*site.message, site.field, static_cast<int>(other)));
  return "of another";
}

template <typename Number> Number otherNumber(Number number, size_t way) {
  return static_cast<Number>(std::array<Number, 5>{number + 1, number - 1, number * 2, 0, number + 64}[way]);
}

std::string Change::setNumber(size_t way) {
  Message *message = site.message;
  const FieldDescriptor *field = site.field;
  auto set = [&](auto get, auto put, auto getAt, auto putAt) {
    if (entry < 0)
      (reflection.*put)(message, field, otherNumber((reflection.*get)(*message, field), way));
    else
      (reflection.*putAt)(message, field, entry, otherNumber((reflection.*getAt)(*message, field, entry), way));
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
    const auto &value = *field->enum_type()->value(static_cast<int>(way));
    entry < 0 ? reflection.SetEnum(message, field, &value) : reflection.SetRepeatedEnum(message, field, entry, &value);
    return value.name();
  }
  default:
    break;
  }
  return numberChanges[way];
}

int entriesOf(const Site &site) {
  return site.field->is_repeated() ? site.message->GetReflection()->FieldSize(*site.message, site.field) : 1;
}

/// Returns whether no address and no number of terms depends on a scalar of a launch or call.
bool isNumber(const pb::Plan &plan, const Message &message, int scalar) {
  if (const auto *launch = dynamic_cast<const pb::Launch *>(&message)) {
    const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch->kernel()));
    pb::Kernel::Scalar use = scalar < kernel.uses_size() ? kernel.uses(scalar) : pb::Kernel::SIZE;
    return use == pb::Kernel::NUMBER || use == pb::Kernel::DIVISOR || use == pb::Kernel::STREAM;
  }
  const auto *call = dynamic_cast<const pb::LibraryCall *>(&message);
  return call && scalar == 0 && // the random stream
         (call->function() == pb::LibraryCall::ATTENTION_FORWARD ||
          call->function() == pb::LibraryCall::ATTENTION_BACKWARD);
}

} // namespace

Mutations::Mutations(rt::pb::Plan &plan, const std::string &part) : plan(plan) {
  collect(plan, "Plan", "");
  std::erase_if(sites, [&](const auto &entry) { return entry.first.find(part) == std::string::npos; });
  if (sites.empty())
    throw std::invalid_argument("no field of the plan has '" + part + "' in its name");
}

/// Returns the location of a message, if it has one.
std::string Mutations::placeOf(const Message &message, const std::string &outer) const {
  if (const auto *launch = dynamic_cast<const pb::Launch *>(&message))
    return "launch " + plan.kernels(static_cast<int>(launch->kernel())).shape();
  if (const auto *call = dynamic_cast<const pb::LibraryCall *>(&message))
    return pb::LibraryCall::Function_Name(call->function());
  if (const auto *transfer = dynamic_cast<const pb::Transfer *>(&message))
    return pb::Transfer::Kind_Name(transfer->kind());
  if (const auto *kernel = dynamic_cast<const pb::Kernel *>(&message))
    return "kernel " + kernel->shape();
  return outer;
}

/// Returns whether two buffers hold tensors of one type and shape.
bool Mutations::areAlike(const pb::Buffer &a, const pb::Buffer &b) const {
  const pb::Value &left = plan.values(static_cast<int>(a.value())), &right = plan.values(static_cast<int>(b.value()));
  return left.type() == right.type() && a.bytes() == b.bytes() && std::ranges::equal(left.dims(), right.dims());
}

/// Returns whether the change affects only results. The plan must already have the change `how` in `entry` of the site.
bool Mutations::isMathematics(const Site &site, int entry, const std::string &how) const {
  const std::string &field = site.field->name();
  bool isSwap = how == "swapped";
  if (site.isNumber)
    return true;
  if (const auto *launch = dynamic_cast<const pb::Launch *>(site.message))
    return isSwap && ((field == "buffers" && areAlike(launch->buffers(entry), launch->buffers(entry + 1))) ||
                      (field == "scalars" && isNumber(plan, *launch, entry) && isNumber(plan, *launch, entry + 1)));
  const auto *call = dynamic_cast<const pb::LibraryCall *>(site.message);
  if (!call)
    return false;
  bool movesRows = call->function() == pb::LibraryCall::DISPATCH || call->function() == pb::LibraryCall::COMBINE;
  if (field == "buffers")
    return (isSwap && areAlike(call->buffers(entry), call->buffers(entry + 1))) ||
           (how == "dropped" && movesRows && call->buffers_size() == 4 && entry == 3);       // the weights
  bool isForm = field == "sizes" && call->function() == pb::LibraryCall::ROPE && entry >= 3; // inverse, rotary, order
  bool isWindow = field == "sizes" && entry == 6;                                            // attention's
  // The two epilogues that read a matrix: the addend, or the operand of gelu.
  bool isEpilogue = field == "epilogue" &&
                    (call->epilogue() == pb::LibraryCall::ADD || call->epilogue() == pb::LibraryCall::GELU_GRADIENT);
  bool isHeld =
      call->function() == pb::LibraryCall::SQUARED_NORM || call->function() == pb::LibraryCall::UPDATE_SCALARS;
  return isForm || isWindow || isEpilogue || (!isHeld && (field == "floats" || field == "causal"));
}

/// Collects the sites of a message. `name` is the message, or the owner of an affine number. `number` is true if the
/// message is a number that only affects arithmetic.
void Mutations::collect(Message &message, const std::string &name, const std::string &outer, bool number) {
  const Reflection &reflection = *message.GetReflection();
  const auto &descriptor = *message.GetDescriptor();
  std::string place = placeOf(message, outer);
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor *field = descriptor.field(i);
    bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    bool isAbsent = field->is_repeated() ? reflection.FieldSize(message, field) == 0
                                         : field->has_presence() && !reflection.HasField(message, field);
    if (isSkipped(field) || isAbsent)
      continue;
    if (field->is_repeated() || !isMessage)
      sites[name + "." + field->name()].push_back({&message, field, place, number});
    if (!isMessage)
      continue;
    std::string inner = field->message_type()->name();
    if (inner == "Affine")
      inner = name + "." + field->name();
    for (int k = 0; field->is_repeated() && k < reflection.FieldSize(message, field); ++k)
      collect(*reflection.MutableRepeatedMessage(&message, field, k), inner,
              place.empty() ? "" : fmt::format("{}, {} {}", place, field->name(), k),
              field->name() == "scalars" && isNumber(plan, message, k));
    if (!field->is_repeated())
      collect(*reflection.MutableMessage(&message, field), inner, place);
  }
}

std::optional<Mutant> Mutations::apply(std::mt19937 &random) const {
  auto kind = std::next(sites.begin(), static_cast<int>(random() % sites.size()));
  const std::vector<Site> &all = kind->second;
  const Site &site = all[random() % all.size()];
  std::string before = textOf(*site.message);
  int entry = static_cast<int>(random() % static_cast<unsigned>(entriesOf(site)));
  Change change(all, site, site.field->is_repeated() ? entry : -1);
  std::string how = change.apply(random() % change.ways());
  if (how.empty())
    return std::nullopt;
  return Mutant{kind->first + " " + how, site.place, before + textOf(*site.message), isMathematics(site, entry, how)};
}

void Mutations::forEach(const std::function<void(const Mutant &)> &visit,
                        const std::vector<std::string> &fields) const {
  for (const auto &[name, all] : sites) {
    if (!fields.empty() && std::find(fields.begin(), fields.end(), name) == fields.end())
      continue;
    for (const Site &site : all) {
      std::string before = textOf(*site.message);
      int entries = entriesOf(site);
      for (int entry = 0; entry < entries; ++entry)
        for (size_t way = 0, ways = 1; way < ways; ++way) {
          Change change(all, site, site.field->is_repeated() ? entry : -1);
          ways = change.ways();
          std::string how = change.apply(way);
          std::string place = site.field->is_repeated() && !site.place.empty()
                                  ? fmt::format("{}, {} {}", site.place, site.field->name(), entry)
                                  : site.place;
          if (!how.empty())
            visit({name + " " + how, place, before + textOf(*site.message), isMathematics(site, entry, how)});
          change.undo();
        }
    }
  }
}

} // namespace espalier
