#include "runtime/checkpoint/convert/text_model.h"

#include "messages/counted.h"
#include "runtime/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace espalier::rt {
namespace {

/// Prefixes of the text model, and what stands for them in the text model alone.
constexpr std::pair<std::string_view, std::string_view> prefixes[] = {
    {"model.language_model.", "model."}, {"language_model.", ""}, {"model.text_model.", "model."}};

bool hasPrefix(const std::string &name) {
  return std::ranges::any_of(prefixes, [&](auto &prefix) { return name.starts_with(prefix.first); });
}

/// Returns the name in the text model alone, or an empty text for a tensor of another part.
std::string textName(const std::string &name) {
  for (const auto &[prefix, own] : prefixes)
    if (name.starts_with(prefix))
      return std::string(own) + name.substr(prefix.size());
  return name.starts_with("lm_head.") ? name : "";
}

class TextModelSource : public WeightSource {
public:
  explicit TextModelSource(std::unique_ptr<WeightSource> given) : whole(std::move(given)) {
    for (const auto &[name, tensor] : whole->tensors()) {
      std::string own = textName(name);
      if (own.empty())
        continue;
      if (!names.emplace(own, name).second)
        throw PlanError(fmt::format("{}: tensors '{}' and '{}' are the same of the text model", whole->placeOf(name),
                                    names.at(own), name));
      listed.emplace(own, tensor);
    }
  }
  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  std::vector<std::byte> read(const std::string &name) const override { return whole->read(names.at(name)); }
  bool readsParts(const std::string &name) const override { return whole->readsParts(names.at(name)); }
  void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const override {
    whole->readPart(names.at(name), begin, bytes);
  }
  std::string placeOf(const std::string &name) const override {
    auto found = names.find(name);
    return whole->placeOf(found == names.end() ? name : found->second);
  }

private:
  std::unique_ptr<WeightSource> whole;
  std::map<std::string, std::string> names; ///< in the text model -> in the files
  std::map<std::string, ListedTensor> listed;
};

/// Returns the part of the model that a tensor belongs to: "vision_tower" of "model.vision_tower.layers.0.weight".
std::string partOf(const std::string &name) {
  size_t begin = name.starts_with("model.") ? std::string_view("model.").size() : 0;
  return name.substr(begin, name.find('.', begin) - begin);
}

} // namespace

std::unique_ptr<WeightSource> textModelOf(std::unique_ptr<WeightSource> whole, std::string &note) {
  std::set<std::string> parts;
  size_t skipped = 0;
  for (const auto &[name, tensor] : whole->tensors())
    if (textName(name).empty()) {
      parts.insert(partOf(name));
      ++skipped;
    }
  if (std::ranges::none_of(whole->tensors(), [](auto &entry) { return hasPrefix(entry.first); }))
    return whole;
  note = fmt::format("the text model is read; {} of {} left out", counted(skipped, "tensor"),
                     parts.empty() ? "other parts" : fmt::format("{}", fmt::join(parts, ", ")));
  return std::make_unique<TextModelSource>(std::move(whole));
}

} // namespace espalier::rt
