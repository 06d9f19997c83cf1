// Binds the dims of a row, operand by operand. An operand can be bound if the length of at most one of its dims is
// unknown.
#include "runtime/verify/signatures.h"

#include <algorithm>

namespace espalier::rt::verify {

/// Returns how many dimensions a dim denotes, or nothing if this is not known yet.
std::optional<size_t> DimBinding::lengthOf(const SignatureDim &dim) const {
  if (!dim.flag.empty()) {
    auto flag = flags.find(dim.flag);
    return flag == flags.end() ? std::nullopt : std::optional<size_t>(flag->second ? 1 : 0);
  }
  if (!dim.isMany)
    return 1;
  auto meaning = meanings.find(dim.name);
  return meaning == meanings.end() ? std::nullopt : std::optional(meaning->second.dims.size());
}

bool DimBinding::isReady(const Bound &operand) const {
  return std::ranges::count_if(operand.row->dims, [&](const SignatureDim &dim) { return !lengthOf(dim); }) <= 1;
}

std::string DimBinding::bind() {
  std::vector<const Bound *> left;
  for (const Bound &operand : operands)
    left.push_back(&operand);
  while (!left.empty()) {
    auto next = std::ranges::find_if(left, [&](const Bound *operand) { return isReady(*operand); });
    if (next == left.end()) // the row is ambiguous; functions_test checks that no row is
      return fmt::format("buffer {} holds {}, whose dims nothing tells apart", left[0]->buffer, textOf(left[0]->dims));
    if (std::string fault = bind(**next); !fault.empty())
      return fault;
    left.erase(next);
  }
  return faultOfWhole();
}

std::string DimBinding::bind(const Bound &operand) {
  size_t known = 0;
  const SignatureDim *open = nullptr; // the dim of unknown length
  for (const SignatureDim &dim : operand.row->dims) {
    known += lengthOf(dim).value_or(0);
    open = lengthOf(dim) ? open : &dim;
  }
  size_t rest = operand.dims.size() < known ? 0 : operand.dims.size() - known;
  bool fits = operand.dims.size() == known + (open ? rest : 0);
  if (open && !open->flag.empty()) {
    fits = fits && rest <= 1;
    flags[open->flag] = rest == 1;
  }
  if (!fits)
    return fmt::format("buffer {} holds {}, not the dims of {}", operand.buffer, textOf(operand.dims),
                       operand.row->name);
  auto at = operand.dims.begin();
  for (const SignatureDim &dim : operand.row->dims) {
    auto end = at + static_cast<int64_t>(lengthOf(dim).value_or(rest));
    if (std::string fault = bind(dim, Dims(at, end), operand); !fault.empty())
      return fault;
    at = end;
  }
  return "";
}

std::string DimBinding::bind(const SignatureDim &dim, const Dims &found, const Bound &operand) {
  if (dim.isOne())
    return elementsOf(found) == 1
               ? ""
               : fmt::format("buffer {} holds {}, not one row", operand.buffer, textOf(operand.dims));
  if (!dim.flag.empty() && found.empty())
    return "";
  if (dim.name == "part" && found.front().name != "part")
    return fmt::format("buffer {} holds {}, no parts of a sum", operand.buffer, textOf(operand.dims));
  auto [known, isNew] = meanings.emplace(dim.name, Meaning{found, &operand});
  if (!isNew && known->second.dims != found)
    return fmt::format("buffers {} and {} hold {} and {}", known->second.from->buffer, operand.buffer,
                       textOf(known->second.from->dims), textOf(operand.dims));
  return "";
}

/// Checks sizes with an initial value and sizes in `whole`. A size with an initial value denotes the same dimension as
/// that value, or for the unsharded one, unless the size is in `whole`. Sizes in `whole` are not sharded.
std::string DimBinding::faultOfWhole() const {
  for (const NumberSignature &size : function.sizes) {
    auto ours = meanings.find(size.name), other = meanings.find(size.initial);
    if (ours == meanings.end() || other == meanings.end() || ours->second.dims == other->second.dims ||
        function.isWhole(size.name))
      continue;
    const Dim &dim = ours->second.dims.front(), &part = other->second.dims.front();
    if (dim != Dim{part.name, shapes.whole(part), 0})
      return fmt::format("buffer {} holds {}, neither the {} of buffer {} nor the whole of it",
                         ours->second.from->buffer, textOf(ours->second.from->dims), size.initial,
                         other->second.from->buffer);
  }
  for (const std::string &name : function.whole)
    if (auto meaning = meanings.find(name); meaning != meanings.end())
      for (const Dim &dim : meaning->second.dims)
        if (dim.split)
          return fmt::format("buffer {} holds {}, whose {} must not be split", meaning->second.from->buffer,
                             textOf(meaning->second.from->dims), name);
  return "";
}

bool DimBinding::isSplit(const std::string &name) const {
  auto meaning = meanings.find(name);
  return meaning != meanings.end() &&
         std::ranges::any_of(meaning->second.dims, [](const Dim &dim) { return dim.split; });
}

std::string DimBinding::faultOfSlots(const std::vector<int64_t> &sizes) const {
  if (function.slots.empty())
    return "";
  const std::string &tokens = function.slots[0], &slots = function.slots[1];
  if (!isSplit(tokens) && !isSplit(slots))
    return "";
  auto ofTokens = meanings.find(tokens), ofSlots = meanings.find(slots);
  auto splitOf = [](const Meaning &meaning) { return meaning.dims.front().split; };
  int64_t count = sizes[*function.findSize(tokens)], room = sizes[*function.findSize(slots)];
  bool areAlike = ofSlots == meanings.end() ||
                  (ofTokens != meanings.end() && splitOf(ofSlots->second) == splitOf(ofTokens->second));
  if (count == room && areAlike)
    return "";
  return fmt::format("has {} slots{} for the {} tokens of a rank, whose {} must not be split", room,
                     areAlike ? "" : ", which are split otherwise,", count, tokens);
}

std::optional<int64_t> DimBinding::sizeOf(const std::string &name, bool inBytes) const {
  if (auto flag = flags.find(name); flag != flags.end())
    return flag->second;
  auto meaning = meanings.find(name);
  if (meaning == meanings.end())
    return std::nullopt;
  const auto &[dims, from] = meaning->second;
  bool isBytes = inBytes && from->row->type == 'b' && from->row->dims.back().name == name;
  return elementsOf(dims) * (isBytes ? from->width : 1);
}

} // namespace espalier::rt::verify
