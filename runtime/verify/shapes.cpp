// Rule K: the named dimensions of values, and their agreement with parameters, transfers and library calls.
#include "format/abi.h"
#include "format/functions.h"
#include "runtime/verify/dims.h"

#include <algorithm>
#include <map>

namespace espalier::rt::verify {
namespace {

class ShapeRule {
public:
  ShapeRule(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors)
      : plan(plan), mesh(mesh), shapes(plan, mesh), errors(errors) {}

  void check();

private:
  void checkValue(const pb::Value &value);
  void checkParameters(const pb::Bucket &bucket);
  void checkTransfer(const pb::Transfer &transfer);
  void checkExchange(const pb::Exchange &exchange);
  void checkSubprogram(const pb::Subprogram &subprogram);
  void checkCapacity(const pb::Instruction &instruction, const std::string &name);
  void checkScalars(const pb::Instruction &instruction, const std::string &name);
  void checkLaunch(const pb::Launch &launch, const std::string &name);
  void checkLocation(const pb::Instruction &instruction, const std::string &name);
  const pb::Value &valueOf(const pb::Buffer &buffer) const { return plan.values(static_cast<int>(buffer.value())); }
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  const Mesh &mesh;
  Shapes shapes;
  PlanErrors &errors;
  std::map<std::string, uint32_t> kernels;                          ///< by symbol
  std::map<std::pair<uint32_t, uint64_t>, std::vector<int>> pieces; ///< by root and first element
  std::optional<bool> isZigzag;                                     ///< the order of sequences that cp splits
  std::map<uint32_t, int64_t> capacities;              ///< slots per expert, by the value that holds the slots
  std::optional<std::pair<uint32_t, int64_t>> scalars; ///< the address of scalar slot 0: region and offset
};

void ShapeRule::check() {
  for (int i = 0; i < plan.kernels_size(); ++i)
    kernels[plan.kernels(i).symbol()] = static_cast<uint32_t>(i);
  for (int i = 0; i < plan.values_size(); ++i) {
    const pb::Value &value = plan.values(i);
    checkValue(value);
    if (value.whole() > 0)
      pieces[{value.whole() - 1, value.first()}].push_back(i);
  }
  for (const pb::Bucket &bucket : plan.buckets())
    checkParameters(bucket);
  for (const pb::Transfer &transfer : plan.transfers())
    checkTransfer(transfer);
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Exchange &exchange : stage.exchanges())
      checkExchange(exchange);
  for (const pb::Subprogram &subprogram : plan.subprograms())
    checkSubprogram(subprogram);
}

void ShapeRule::checkValue(const pb::Value &value) {
  if (value.dims().empty())
    return;
  std::vector<int64_t> sizes;
  uint32_t split = 0;
  bool isTwice = false;
  for (uint32_t number : value.dims()) {
    const pb::Dim &dim = plan.dims(static_cast<int>(number));
    uint32_t axes = mesh.divided(dim.split());
    sizes.push_back(static_cast<int64_t>(dim.size()));
    isTwice |= (split & axes) != 0;
    if (isSequenceOverContext(dim, mesh)) {
      if (isZigzag.value_or(value.zigzag()) != value.zigzag())
        add("value '{}': its sequence is in {} order, that of other values is not", value.name(),
            value.zigzag() ? "zigzag" : "contiguous");
      isZigzag = value.zigzag();
    }
    split |= axes;
  }
  if (int64_t elements = product(sizes); elements != static_cast<int64_t>(value.elements()))
    add("value '{}': has {} elements, its dims give {}", value.name(), value.elements(), elements);
  if (isTwice || (mesh.divided(value.partial()) & split))
    add("value '{}': is split twice over an axis, or split and partial", value.name());
  if (mesh.divided(value.split()) & ~split)
    add("value '{}': is split over {}, its dims over {}", value.name(), mesh.divided(value.split()), split);
}

/// Checks that the values of a parameter and of its gradient have the parameter's dims.
void ShapeRule::checkParameters(const pb::Bucket &bucket) {
  std::vector<uint32_t> roots = {(bucket.has_whole_stored() ? bucket.whole_stored() : bucket.stored()).value()};
  if (bucket.has_gradient())
    roots.push_back((bucket.has_whole_gradient() ? bucket.whole_gradient() : bucket.gradient()).value());
  for (const pb::Parameter &parameter : bucket.parameters())
    for (uint32_t root : roots) {
      auto found = pieces.find({root, parameter.first()});
      for (int number : found == pieces.end() ? std::vector<int>() : found->second) {
        const pb::Value &value = plan.values(number);
        bool isRight = value.dims().empty() || value.dims_size() == parameter.padded_shape_size();
        for (int d = 0; isRight && d < value.dims_size(); ++d) {
          const pb::Dim &dim = plan.dims(static_cast<int>(value.dims(d)));
          isRight = mesh.divided(dim.split()) == mesh.divided(parameter.split(d)) &&
                    static_cast<int64_t>(parameter.padded_shape(d)) ==
                        static_cast<int64_t>(dim.size()) * mesh.count(dim.split());
        }
        if (!isRight)
          add("bucket '{}', parameter '{}': its shape and splits are not the dims of value '{}'", bucket.name(),
              parameter.name(), value.name());
      }
    }
}

/// Checks that a transfer keeps the dims, except the one that it gathers or scatters. Bucket transfers have no dims to
/// check.
void ShapeRule::checkTransfer(const pb::Transfer &transfer) {
  bool isGather = transfer.kind() == pb::Transfer::ALL_GATHER,
       isScatter = transfer.kind() == pb::Transfer::REDUCE_SCATTER;
  for (int i = 0; i < std::min(transfer.from_size(), transfer.to_size()); ++i) {
    std::optional<Dims> from = shapes.of(transfer.from(i)), to = shapes.of(transfer.to(i));
    bool isMoved = transfer.kind() <= pb::Transfer::SHIFT && transfer.kind() != pb::Transfer::ALL_TO_ALL;
    if (!from || !to || !isMoved || valueOf(transfer.from(i)).resident())
      continue;
    const Dims &part = isGather ? *from : *to;
    Dims whole = isGather ? *to : *from;
    uint32_t axes = mesh.divided(plan.groups(static_cast<int>(transfer.group())).axes());
    bool isRight = whole == part;
    if (isGather || isScatter) {
      bool inParts = !whole.empty() && whole.front().name == "part";
      int64_t parts = inParts ? whole.front().size : 1;
      if (inParts)
        whole.erase(whole.begin());
      std::optional<Cut> cut = cutOf(whole, part);
      parts *= cut ? cut->parts : 1;
      // Parts of cp in zigzag order need a rearrangement, which their value announces.
      bool isOfChunks = (axes & CP) && areZigzag(part);
      bool hasOrder =
          inParts ? valueOf(isGather ? transfer.to(i) : transfer.from(i)).zigzag() == (isOfChunks || areZigzag(whole))
                  : !isOfChunks;
      isRight = hasOrder && cut && cut->axes == axes && parts == mesh.count(axes) && (inParts || cut->outer == 1);
    }
    if (!isRight)
      add("transfer '{}': makes {} of {}", transfer.name(), textOf(*to), textOf(*from));
  }
}

/// Checks that host staging buffers are sharded over samples and positions in the same way as their value.
void ShapeRule::checkExchange(const pb::Exchange &exchange) {
  const pb::Value &value = valueOf(exchange.buffer());
  if (value.dims().empty())
    return;
  int dims = std::min(value.dims_size(), 2);
  for (int d = 0; d < std::max(dims, exchange.split_size()); ++d) {
    uint32_t given = d < exchange.split_size() ? mesh.divided(exchange.split(d)) : 0;
    uint32_t wanted = d < dims ? mesh.divided(plan.dims(static_cast<int>(value.dims(d))).split()) : 0;
    if (given != wanted)
      add("exchange '{}': is split over {} along dimension {}, value '{}' over {}", exchange.name(), given, d,
          value.name(), wanted);
  }
}

void ShapeRule::checkSubprogram(const pb::Subprogram &subprogram) {
  for (int i = 0; i < subprogram.instructions_size(); ++i) {
    const pb::Instruction &instruction = subprogram.instructions(i);
    std::string name = instructionName(plan, subprogram, i);
    checkLocation(instruction, name);
    checkCapacity(instruction, name);
    checkScalars(instruction, name);
    if (instruction.has_launch()) {
      checkLaunch(instruction.launch(), name);
    } else if (instruction.has_call()) {
      if (std::string fault = faultOfProduct(plan, mesh, instruction.call()); !fault.empty())
        add("{}: {}", name, fault);
    }
  }
}

/// Returns the value of expert slots that an instruction assigns or uses, and the number of slots per expert that the
/// instruction assumes.
std::optional<std::pair<uint32_t, int64_t>> slotsOf(const pb::Plan &plan, const pb::Instruction &instruction) {
  if (instruction.has_call()) {
    const pb::LibraryCall &call = instruction.call();
    const FunctionSignature *row = findFunction(call.function());
    auto slots = row ? row->findOperand("slots") : std::nullopt,
         capacity = row ? row->findSize("capacity") : std::nullopt;
    if (slots && capacity)
      return std::pair(call.buffers(static_cast<int>(*slots)).value(), call.sizes(static_cast<int>(*capacity)));
  } else if (instruction.has_launch()) {
    const pb::Launch &launch = instruction.launch();
    const KernelSignature *row = findKernel(plan.kernels(static_cast<int>(launch.kernel())).shape());
    auto slots = row ? row->findOperand("slots") : std::nullopt,
         capacity = row ? row->findScalar("capacity") : std::nullopt;
    if (slots && capacity && static_cast<int>(*slots) < launch.buffers_size() &&
        static_cast<int>(*capacity) < launch.scalars_size())
      return std::pair(launch.buffers(static_cast<int>(*slots)).value(),
                       launch.scalars(static_cast<int>(*capacity)).constant());
  }
  return std::nullopt;
}

/// Checks that all instructions that assign or use expert slots assume the same capacity.
void ShapeRule::checkCapacity(const pb::Instruction &instruction, const std::string &name) {
  auto slots = slotsOf(plan, instruction);
  if (!slots)
    return;
  auto [known, isNew] = capacities.emplace(*slots);
  if (!isNew && known->second != slots->second)
    add("{}: goes by {} slots of an expert, '{}' has {}", name, slots->second,
        plan.values(static_cast<int>(slots->first)).name(), known->second);
}

/// Checks that all scalars have one address per slot. The host fills every slot, so no error would show if an
/// instruction wrote a copy at another address.
void ShapeRule::checkScalars(const pb::Instruction &instruction, const std::string &name) {
  const auto &buffers = instruction.has_launch() ? instruction.launch().buffers() : instruction.call().buffers();
  for (const pb::Buffer &buffer : buffers) {
    const pb::Value &value = valueOf(buffer);
    if (value.whole() == 0 || plan.values(static_cast<int>(value.whole()) - 1).name() != "scalars")
      continue;
    std::pair place(buffer.region(),
                    static_cast<int64_t>(buffer.offset() - value.first() * sizeof(Scalars::value_type)));
    if (scalars.value_or(place) != place)
      add("{}: '{}' is at {} of {}, apart from all other scalars", name, value.name(), buffer.offset(),
          plan.regions(static_cast<int>(buffer.region())));
    else
      scalars = place;
  }
}

void ShapeRule::checkLaunch(const pb::Launch &launch, const std::string &name) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  for (int i = 0; i < launch.buffers_size(); ++i) {
    const pb::Value &value = valueOf(launch.buffers(i));
    uint32_t slot = kernel.operands(i).slot();
    if (slot > 0 && (value.whole() == 0 || value.first() != slot - 1 ||
                     plan.values(static_cast<int>(value.whole()) - 1).elements() != ScalarSlotCount))
      add("{}: buffer {} holds '{}', it must hold slot {} of the scalars", name, i, value.name(), slot - 1);
  }
  if (std::string fault = faultOfSpace(plan, mesh, launch); !fault.empty())
    add("{}: {}", name, fault);
}

/// Checks that the location of a launch names the kernel that runs.
void ShapeRule::checkLocation(const pb::Instruction &instruction, const std::string &name) {
  if (plan.locations().empty() || !instruction.has_launch())
    return;
  auto given = kernels.find(plan.locations(static_cast<int>(instruction.location())).op());
  if (given != kernels.end() && given->second != instruction.launch().kernel())
    add("{}: runs {}", name, plan.kernels(static_cast<int>(instruction.launch().kernel())).symbol());
}

} // namespace

void verifyShapes(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) { ShapeRule(plan, mesh, errors).check(); }

} // namespace espalier::rt::verify
