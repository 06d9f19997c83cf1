// A layout is a set of strides: each dimension of a parameter has one stride on each side.
#include "runtime/checkpoint/convert/layout.h"

#include "runtime/status.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <numeric>

namespace espalier::rt {
namespace {

[[noreturn]] void refuse(const std::string &reason) { throw PlanError(reason); }

/// One loop of a copy: its trip count and the element strides on both sides.
struct Loop {
  uint64_t count = 1, ours = 0, other = 0;
};

/// Returns the loops of a part, outermost first. Adjacent loops that are contiguous on both sides are merged.
std::vector<Loop> loopsOf(const PlacedPart &part, std::span<const int64_t> sizes) {
  std::vector<Loop> loops;
  uint64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= static_cast<uint64_t>(sizes[i])) {
    Loop loop{static_cast<uint64_t>(part.sizes[i]), stride, part.strides[i]};
    if (loop.count == 1 && !loops.empty())
      continue;
    if (!loops.empty() && loop.ours == loops.back().count * loops.back().ours &&
        loop.other == loops.back().count * loops.back().other)
      loops.back().count *= loop.count;
    else
      loops.push_back(loop);
  }
  std::ranges::reverse(loops);
  return loops;
}

uint64_t firstOurs(const PlacedPart &part, std::span<const int64_t> sizes) {
  uint64_t first = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    first = first * static_cast<uint64_t>(sizes[i]) + static_cast<uint64_t>(part.offsets[i]);
  return first;
}

/// Two loops with crossing strides (a matrix transpose) are tiled to fit the cache.
constexpr uint64_t tile = 64;

template <typename Move>
void copyPlane(const Loop &outer, const Loop &inner, uint64_t ours, uint64_t other, const Move &move) {
  for (uint64_t row = 0; row < outer.count; row += tile)
    for (uint64_t column = 0; column < inner.count; column += tile)
      for (uint64_t i = row; i < std::min(row + tile, outer.count); ++i)
        for (uint64_t j = column; j < std::min(column + tile, inner.count); ++j)
          move(ours + i * outer.ours + j * inner.ours, other + i * outer.other + j * inner.other);
}

/// Calls `move(ours, other)` with the element offsets of every element of a part.
template <typename Move> void forEach(std::span<const Loop> loops, uint64_t ours, uint64_t other, const Move &move) {
  if (loops.size() == 2)
    return copyPlane(loops[0], loops[1], ours, other, move);
  if (loops.size() == 1)
    return copyPlane({}, loops[0], ours, other, move);
  if (loops.empty())
    return move(ours, other);
  for (uint64_t i = 0; i < loops[0].count; ++i)
    forEach(loops.subspan(1), ours + i * loops[0].ours, other + i * loops[0].other, move);
}

template <typename Element>
void copyPart(const PlacedPart &part, std::span<const int64_t> sizes, const std::byte *from, std::byte *to,
              bool isToOurs) {
  std::vector<Loop> loops = loopsOf(part, sizes);
  uint64_t first = firstOurs(part, sizes);
  if (loops.size() == 1 && loops[0].ours == 1 && loops[0].other == 1) {
    uint64_t source = isToOurs ? part.base : first, target = isToOurs ? first : part.base;
    std::memcpy(to + target * sizeof(Element), from + source * sizeof(Element), loops[0].count * sizeof(Element));
    return;
  }
  auto put = [&](uint64_t source, uint64_t target) {
    std::memcpy(to + target * sizeof(Element), from + source * sizeof(Element), sizeof(Element));
  };
  if (isToOurs)
    forEach(loops, first, part.base, [&](uint64_t ours, uint64_t other) { put(other, ours); });
  else
    forEach(loops, first, part.base, [&](uint64_t ours, uint64_t other) { put(ours, other); });
}

void copyPart(const PlacedPart &part, std::span<const int64_t> sizes, size_t bytes, const std::byte *from,
              std::byte *to, bool isToOurs) {
  if (part.isEmpty())
    return;
  if (bytes == 2)
    copyPart<uint16_t>(part, sizes, from, to, isToOurs);
  else
    copyPart<uint32_t>(part, sizes, from, to, isToOurs);
}

} // namespace

uint64_t WeightParameter::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), uint64_t(1),
                         [](uint64_t product, int64_t size) { return product * static_cast<uint64_t>(size); });
}

bool WeightParameter::isNamed(const std::string &word) const {
  size_t dot = word.find('.');
  return dot == std::string::npos ? local == word
                                  : local == word.substr(dot + 1) && name.starts_with(word.substr(0, dot + 1));
}

const WeightParameter *WeightModel::find(const std::string &word, int64_t layer) const {
  auto found = std::ranges::find_if(
      parameters, [&](const WeightParameter &each) { return each.layer == layer && each.isNamed(word); });
  return found == parameters.end() ? nullptr : &*found;
}

uint64_t WeightModel::parameterCount() const {
  uint64_t count = 0;
  for (const WeightParameter &parameter : parameters)
    count += parameter.elements();
  return count;
}

bool PlacedPart::isEmpty() const { return std::ranges::count(sizes, 0) > 0; }

Layout::Layout(std::string_view text) { parse(text); }

Layout::Layout(std::span<const std::string> dims) {
  for (const std::string &dim : dims)
    axes.push_back({{dim, false}});
}

void Layout::parse(std::string_view text) {
  bool isGroup = false, hasParts = false;
  size_t splits = 0;
  for (size_t at = 0; at < text.size();) {
    char c = text[at];
    if (c == ' ') {
      ++at;
    } else if (c == '(' && !isGroup) {
      isGroup = true;
      axes.emplace_back();
      ++at;
    } else if (c == ')' && isGroup) {
      isGroup = false;
      ++at;
    } else if (c == '|' && isGroup && !hasParts) {
      hasParts = true;
      axes.back().push_back({});
      ++at;
    } else {
      size_t end = std::min(text.find_first_of(" ()|*~", at), text.size());
      if (end == at)
        refuse(fmt::format("'{}' is not a layout: '{}' does not belong at {}", text, c, at + 1));
      Token token{std::string(text.substr(at, end - at)), end < text.size() && text[end] == '*'};
      token.alternates = end < text.size() && text[end] == '~';
      at = end + token.isSplit + token.alternates;
      splits += token.isSplit;
      if (!isGroup)
        axes.emplace_back();
      if (!isGroup && token.dim == "1")
        continue; // an axis of one element
      axes.back().push_back(std::move(token));
    }
  }
  if (isGroup || axes.empty() || splits > 1)
    refuse(fmt::format("'{}' is not a layout: axes such as (heads* | head_dim) hidden, at most one * and one |", text));
}

int64_t Layout::Extents::of(const std::string &dim) const {
  auto found = dims->find(dim);
  if (found == dims->end())
    refuse(fmt::format("the model has no dimension '{}'", dim));
  return dim == "vocab" && vocab > 0 ? vocab : found->second;
}

int Layout::splitAxis() const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (std::ranges::any_of(axes[i], &Token::isSplit))
      return static_cast<int>(i);
  return -1;
}

bool Layout::isAxis(size_t axis, const std::string &dim) const {
  return axis < axes.size() && axes[axis].size() == 1 && axes[axis].front().dim == dim;
}

Layout::Placed Layout::place(const WeightModel &model, std::span<const size_t> parameters, const Extents &extents,
                             const LayoutSplit &split, const std::map<std::string, int64_t> &bound) const {
  Placed placed;
  placed.shape.resize(axes.size());
  for (size_t index : parameters) {
    PlacedPart part{index, {}, model.parameters[index].sizes, 0, {}};
    part.offsets.resize(part.sizes.size());
    part.strides.resize(part.sizes.size());
    placed.parts.push_back(std::move(part));
  }
  auto sizeOf = [&](const Token &token) {
    int64_t extent = extents.of(token.dim);
    if (token.isSplit && extent % split.tp != 0)
      refuse(fmt::format("{} {} does not divide by tp {}", token.dim, extent, split.tp));
    return token.isSplit ? extent / split.tp : extent;
  };
  std::vector<size_t> found(parameters.size());
  struct Alternating {
    size_t dim;
    uint64_t stride; // between an element of the first half and its neighbour of the second half
  };
  std::map<size_t, Alternating> alternating; // by part
  /// Sets the stride of a dimension of one part. Returns false if the part has no such dimension.
  auto put = [&](size_t number, const Token &token, uint64_t stride) {
    PlacedPart &part = placed.parts[number];
    const WeightParameter &parameter = model.parameters[part.parameter];
    auto place = std::ranges::find(parameter.dims, token.dim);
    if (place == parameter.dims.end())
      return false;
    size_t dim = static_cast<size_t>(place - parameter.dims.begin());
    part.strides[dim] = token.alternates ? 2 * stride : stride;
    if (token.alternates)
      alternating[number] = {dim, stride};
    if (token.isSplit) {
      int64_t size = sizeOf(token);
      part.offsets[dim] = std::min(size * split.rank, part.sizes[dim]);
      part.sizes[dim] = std::min(size, part.sizes[dim] - part.offsets[dim]);
    }
    ++found[number];
    return true;
  };
  uint64_t inner = 1; // elements per step along the axis
  for (size_t i = axes.size(); i-- > 0;) {
    const Axis &axis = axes[i];
    auto bar = std::ranges::find(axis, std::string(), &Token::dim);
    uint64_t stride = inner, total = bar == axis.end() ? 1 : 0;
    for (size_t number = 0; bar != axis.end() && number < placed.parts.size(); ++number) {
      uint64_t size = 1;
      for (auto token = axis.end(); token != bar + 1;)
        if (--token; put(number, *token, inner * size))
          size *= static_cast<uint64_t>(sizeOf(*token));
      placed.parts[number].base += inner * total;
      total += size;
    }
    stride *= total;
    for (auto token = bar; token != axis.begin();) {
      --token;
      for (size_t number = 0; number < placed.parts.size(); ++number)
        if (!put(number, *token, stride))
          refuse(fmt::format("'{}' has no dimension '{}'", model.parameters[parameters[number]].name, token->dim));
      stride *= static_cast<uint64_t>(sizeOf(*token));
    }
    placed.shape[i] = static_cast<int64_t>(stride / inner);
    inner = stride;
  }
  for (size_t number = 0; number < parameters.size(); ++number) {
    PlacedPart &part = placed.parts[number];
    const WeightParameter &parameter = model.parameters[part.parameter];
    for (const auto &[dim, index] : bound)
      if (auto place = std::ranges::find(parameter.dims, dim); place != parameter.dims.end()) {
        part.offsets[place - parameter.dims.begin()] = index;
        part.sizes[place - parameter.dims.begin()] = 1;
        ++found[number];
      }
    if (found[number] != parameter.dims.size())
      refuse(
          fmt::format("a layout names each of the {} dimensions of '{}' once", parameter.dims.size(), parameter.name));
  }
  for (auto [number, halves] : alternating) {
    PlacedPart second = placed.parts[number];
    int64_t &size = placed.parts[number].sizes[halves.dim];
    if (size % 2 != 0)
      refuse(fmt::format("'{}' has {} columns, whose halves cannot alternate", model.parameters[second.parameter].name,
                         size));
    size /= 2;
    second.sizes[halves.dim] = second.offsets[halves.dim] = size;
    second.base += halves.stride;
    placed.parts.push_back(std::move(second));
  }
  return placed;
}

void takePart(const PlacedPart &part, std::span<const int64_t> sizes, size_t bytes, std::span<const std::byte> other,
              std::span<std::byte> ours) {
  copyPart(part, sizes, bytes, other.data(), ours.data(), /*isToOurs=*/true);
}

void givePart(const PlacedPart &part, std::span<const int64_t> sizes, size_t bytes, std::span<const std::byte> ours,
              std::span<std::byte> other) {
  copyPart(part, sizes, bytes, ours.data(), other.data(), /*isToOurs=*/false);
}

} // namespace espalier::rt
