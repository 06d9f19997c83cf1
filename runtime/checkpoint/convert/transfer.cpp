// Each parameter is assembled once: its boxes must add up, and repeated boxes are compared.
#include "runtime/checkpoint/convert/transfer.h"

#include "runtime/checkpoint/nearest.h"
#include "runtime/status.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace espalier::rt {
namespace {

/// A part of one parameter and the tensor that holds it.
struct Cover {
  const WeightSource *source;
  std::string name;
  PlacedPart part;
};

struct Recipe {
  std::vector<Cover> covers;  ///< disjoint
  std::vector<Cover> repeats; ///< copies of elements in `covers`
  std::string missing;        ///< the name of a missing tensor that would hold a part
  pb::DataType type = pb::F32;
};

uint64_t boxElements(const PlacedPart &part) {
  uint64_t elements = 1;
  for (int64_t size : part.sizes)
    elements *= static_cast<uint64_t>(size);
  return elements;
}

/// Returns the tensors that a holder lacks, except derived ones.
std::vector<const ForeignTensor *> missingTensors(const HeldTensors &holder, const std::set<std::string> &known) {
  std::vector<const ForeignTensor *> missing;
  for (const ForeignTensor &tensor : holder.tensors)
    if (!tensor.isDerived &&
        std::ranges::none_of(tensor.names, [&](const std::string &name) { return known.contains(name); }))
      missing.push_back(&tensor);
  return missing;
}

/// Returns the names that the tensors would have.
std::vector<std::string> namesOf(const std::vector<const ForeignTensor *> &tensors) {
  std::vector<std::string> names;
  for (const ForeignTensor *tensor : tensors)
    names.insert(names.end(), tensor->names.begin(), tensor->names.end());
  return names;
}

/// Collects recipes from the tensors that exist.
class Collector {
public:
  explicit Collector(const WeightModel &model) : model(model), recipes(model.parameters.size()) {}

  void add(const HeldTensors &holder) {
    std::set<std::string> known;
    for (const ForeignTensor &tensor : holder.tensors)
      for (const std::string &name : tensor.names)
        if (holder.source->tensors().contains(name)) {
          known.insert(name);
          if (!tensor.isDerived)
            add(*holder.source, name, tensor);
        }
    std::vector<const ForeignTensor *> missing = missingTensors(holder, known);
    for (const auto &[name, tensor] : holder.source->tensors())
      if (!known.contains(name))
        throw PlanError(fmt::format(
            "{}: tensor '{}' is not one of {}{}: `weights:` of the model file names the tensors that are read",
            holder.source->placeOf(name), name, model.name, nearestText(name, namesOf(missing))));
    for (const ForeignTensor *tensor : missing)
      for (const PlacedPart &part : tensor->parts)
        recipes[part.parameter].missing = tensor->names.front();
  }

  std::vector<Recipe> finish() {
    for (size_t i = 0; i < recipes.size(); ++i) {
      const WeightParameter &parameter = model.parameters[i];
      uint64_t held = 0;
      for (const Cover &cover : recipes[i].covers)
        held += boxElements(cover.part);
      if (held != parameter.elements())
        throw PlanError(fmt::format(
            "no tensor holds {} '{}' of {}{}", held > 0 ? "all of" : "parameter", parameter.name, model.name,
            recipes[i].missing.empty() ? "" : fmt::format("; '{}' is missing", recipes[i].missing)));
    }
    return std::move(recipes);
  }

private:
  void add(const WeightSource &source, const std::string &name, const ForeignTensor &tensor) {
    const ListedTensor &listed = source.tensors().at(name);
    std::string place = fmt::format("{}: tensor '{}'", source.placeOf(name), name);
    if (listed.shape != tensor.shape)
      throw PlanError(fmt::format("{} is {}, the model requires {}", place, listed.shape, tensor.shape));
    if (!listed.otherType.empty() || listed.type == pb::I32)
      throw PlanError(fmt::format("{} is of type {}; weights are F32, BF16 or F16: dequantise them first, as "
                                  "docs/from_huggingface.md shows",
                                  place, listed.otherType.empty() ? "I32" : listed.otherType));
    for (const PlacedPart &part : tensor.parts) {
      if (part.isEmpty())
        continue;
      Recipe &recipe = recipes[part.parameter];
      bool isFirst = recipe.covers.empty() && recipe.repeats.empty();
      if (!isFirst && recipe.type != listed.type)
        throw PlanError(fmt::format("{} is of type {}, other parts of '{}' of {}", place, safetensorsType(listed.type),
                                    model.parameters[part.parameter].name, safetensorsType(recipe.type)));
      recipe.type = listed.type;
      bool isRepeat = tensor.isTied || std::ranges::any_of(recipe.covers, [&](const Cover &cover) {
                        return cover.part.offsets == part.offsets && cover.part.sizes == part.sizes;
                      });
      (isRepeat ? recipe.repeats : recipe.covers).push_back({&source, name, part});
    }
  }

  const WeightModel &model;
  std::vector<Recipe> recipes;
};

void requireRepeat(const WeightParameter &parameter, const Recipe &recipe, const Cover &repeat, bool isEqual) {
  if (!isEqual)
    throw PlanError(fmt::format("{}: tensor '{}' differs from {}, and the model has one parameter for both: '{}'",
                                repeat.source->placeOf(repeat.name), repeat.name, recipe.covers.front().name,
                                parameter.name));
}

std::vector<std::byte> make(const WeightParameter &parameter, const Recipe &recipe) {
  size_t bytes = elementBytes(recipe.type);
  std::vector<std::byte> values(parameter.elements() * bytes);
  for (const Cover &cover : recipe.covers)
    takePart(cover.part, parameter.sizes, bytes, cover.source->read(cover.name), values);
  for (const Cover &repeat : recipe.repeats) {
    std::vector<std::byte> again = values;
    takePart(repeat.part, parameter.sizes, bytes, repeat.source->read(repeat.name), again);
    requireRepeat(parameter, recipe, repeat, again == values);
  }
  return values;
}

/// The largest gap between rows that is read along: one page, which the system reads anyway.
constexpr uint64_t smallHole = 4096;

struct Box {
  std::span<const int64_t> offsets, sizes;
};

/// Returns the intersection of a part with a box of its parameter, with offsets relative to the box.
PlacedPart clipped(PlacedPart part, const Box &box) {
  for (size_t i = 0; i < part.sizes.size(); ++i) {
    int64_t first = std::max(part.offsets[i], box.offsets[i]);
    int64_t end = std::min(part.offsets[i] + part.sizes[i], box.offsets[i] + box.sizes[i]);
    part.base += static_cast<uint64_t>(first - part.offsets[i]) * part.strides[i];
    part.offsets[i] = first - box.offsets[i];
    part.sizes[i] = std::max<int64_t>(0, end - first);
  }
  return part;
}

/// Reads a part that lies in a box: in one read from its first to its last element, or row by row if the gap between
/// rows is large.
void takeRows(const Cover &from, PlacedPart part, std::span<const int64_t> sizes, size_t bytes,
              std::span<std::byte> box) {
  uint64_t reach = 1; // elements from the first to the last
  size_t outer = 0;   // the dimension with the largest stride
  for (size_t i = 0; i < part.sizes.size(); ++i) {
    reach += static_cast<uint64_t>(part.sizes[i] - 1) * part.strides[i];
    bool isOuter = part.sizes[i] > 1 && (part.sizes[outer] == 1 || part.strides[i] > part.strides[outer]);
    outer = isOuter ? i : outer;
  }
  auto rows = part.sizes.empty() ? 1 : static_cast<uint64_t>(part.sizes[outer]);
  if (rows > 1) {
    uint64_t step = part.strides[outer], row = reach - (rows - 1) * step;
    if (step * bytes >= row * bytes + smallHole) {
      part.sizes[outer] = 1;
      for (uint64_t i = 0; i < rows; ++i, ++part.offsets[outer], part.base += step)
        takeRows(from, part, sizes, bytes, box);
      return;
    }
  }
  std::vector<std::byte> read(reach * bytes);
  from.source->readPart(from.name, part.base * bytes, read);
  part.base = 0;
  takePart(part, sizes, bytes, read, box);
}

std::vector<std::byte> makeBox(const WeightParameter &parameter, const Recipe &recipe, const Box &box) {
  size_t bytes = elementBytes(recipe.type);
  std::vector<std::byte> values(tensorBytes({box.sizes.begin(), box.sizes.end()}, recipe.type));
  auto take = [&](const Cover &cover, std::span<std::byte> to) {
    if (PlacedPart part = clipped(cover.part, box); !part.isEmpty())
      takeRows(cover, std::move(part), box.sizes, bytes, to);
  };
  for (const Cover &cover : recipe.covers)
    take(cover, values);
  for (const Cover &repeat : recipe.repeats) {
    std::vector<std::byte> again = values;
    take(repeat, again);
    requireRepeat(parameter, recipe, repeat, again == values);
  }
  return values;
}

bool readsParts(const Recipe &recipe) {
  auto reads = [](const Cover &cover) { return cover.source->readsParts(cover.name); };
  return std::ranges::all_of(recipe.covers, reads) && std::ranges::all_of(recipe.repeats, reads);
}

std::vector<std::byte> make(const WeightModel &model, const NativeSource &source, const ForeignTensor &tensor) {
  size_t size = elementBytes(source.type(tensor.parts.front().parameter));
  std::vector<std::byte> bytes(tensorBytes(tensor.shape, source.type(tensor.parts.front().parameter)));
  for (const PlacedPart &part : tensor.parts)
    givePart(part, model.parameters[part.parameter].sizes, size, *source.read(part.parameter), bytes);
  if (tensor.realRows < 0 || tensor.realRows == tensor.shape.front())
    return bytes;
  // Padding rows repeat the last row of the whole parameter.
  auto whole = source.read(tensor.parts.front().parameter);
  size_t row = bytes.size() / static_cast<size_t>(tensor.shape.front());
  for (int64_t i = tensor.realRows; i < tensor.shape.front(); ++i)
    std::memcpy(bytes.data() + i * row, whole->data() + whole->size() - row, row);
  return bytes;
}

} // namespace

std::vector<NewParameter> parametersOf(const NameMap &names, std::vector<HeldTensors> holders) {
  const WeightModel &model = names.model();
  Collector collector(model);
  for (const HeldTensors &holder : holders)
    collector.add(holder);
  std::vector<Recipe> recipes = collector.finish();
  std::vector<NewParameter> parameters;
  for (size_t i = 0; i < recipes.size(); ++i) {
    auto recipe = std::make_shared<const Recipe>(std::move(recipes[i]));
    const WeightParameter *parameter = &model.parameters[i];
    NewParameter &made = parameters.emplace_back();
    made.type = recipe->type;
    made.make = [parameter, recipe] { return make(*parameter, *recipe); };
    if (readsParts(*recipe))
      made.makeBox = [parameter, recipe](std::span<const int64_t> offsets, std::span<const int64_t> sizes) {
        return makeBox(*parameter, *recipe, {offsets, sizes});
      };
  }
  return parameters;
}

std::vector<WrittenTensor> tensorsOf(const NameMap &names, const NativeSource &source,
                                     std::span<const ForeignTensor> tensors, bool writesTied) {
  const WeightModel &model = names.model();
  std::vector<WrittenTensor> written;
  for (const ForeignTensor &tensor : tensors) {
    if (tensor.isDerived || !tensor.isWritten || (tensor.isTied && !writesTied))
      continue;
    pb::DataType type = source.type(tensor.parts.front().parameter);
    for (const PlacedPart &part : tensor.parts)
      if (source.type(part.parameter) != type)
        throw PlanError(fmt::format("'{}' and '{}' are of two types and cannot be one tensor '{}'",
                                    model.parameters[tensor.parts.front().parameter].name,
                                    model.parameters[part.parameter].name, tensor.names.front()));
    written.push_back(
        {tensor.names.front(), type, tensor.shape, [&model, &source, tensor] { return make(model, source, tensor); }});
  }
  return written;
}

} // namespace espalier::rt
