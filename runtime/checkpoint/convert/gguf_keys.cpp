// The keys of a model. The section `weights: gguf_keys:` of a model file names llama.cpp's architecture, and for each
// key the key of config.json whose value it has.
#include "messages/json_reason.h"
#include "runtime/checkpoint/convert/gguf_file.h"
#include "runtime/checkpoint/convert/transfer.h"
#include "runtime/kernels/element.h"
#include "runtime/status.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

namespace espalier::rt {
namespace {

using Json = nlohmann::json;

const std::vector<NameRule> &keyRules(const ConvertedModel &model) {
  static const std::vector<NameRule> none;
  auto found = model.rules.find("gguf_keys");
  return found == model.rules.end() ? none : found->second;
}

/// Returns the value of a key of config.json, or null. transformers 5 has the keys of rotary positions in a map of
/// their own.
Json valueOf(const Json &config, const std::string &key) {
  if (config.contains(key))
    return config[key];
  for (const char *map : {"rope_parameters", "rope_scaling"})
    if (config.contains(map) && config[map].is_object() && config[map].contains(key))
      return config[map][key];
  if (key == "head_dim" && config.contains("hidden_size") && config.contains("num_attention_heads"))
    return config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>();
  return nullptr;
}

/// Adds the keys that rules describe: "u32 hidden_size", "f32 rope_theta". "only 1" asks for a value of config.json.
void addKeys(const ConvertedModel &model, const std::string &architecture, const Json &config, GgufKeys &keys) {
  for (const auto &[pattern, described] : keyRules(model)) {
    size_t space = described.find(' ');
    std::string type = described.substr(0, space), key = pattern;
    if (type == "only") {
      Json value = valueOf(config, key), wanted = Json::parse(described.substr(space + 1));
      if (value != wanted)
        throw PlanError(fmt::format("{} is {}, and llama.cpp computes {} with {} alone", key, value.dump(),
                                    architecture, wanted.dump()));
      continue;
    }
    Json value = type == "u32" || type == "f32" ? valueOf(config, described.substr(space + 1)) : Json();
    if (!value.is_number())
      continue;
    key.replace(0, std::string("{arch}").size(), architecture);
    if (type == "u32")
      keys.emplace_back(key, static_cast<uint32_t>(value.get<int64_t>()));
    else
      keys.emplace_back(key, value.get<float>());
  }
}

/// The factors by which Llama 3.1 slows down its rotary positions, as the tensor of llama.cpp.
WrittenTensor ropeFactors(const Json &scaling, const Json &config) {
  double base = valueOf(config, "rope_theta").get<double>(), factor = scaling.at("factor").get<double>();
  double low = scaling.at("low_freq_factor").get<double>(), high = scaling.at("high_freq_factor").get<double>();
  double context = scaling.at("original_max_position_embeddings").get<double>();
  auto width = valueOf(config, "head_dim").get<int64_t>();
  std::vector<float> factors;
  for (int64_t i = 0; i < width; i += 2) {
    double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(width));
    double length = 2 * std::numbers::pi / frequency, smooth = (context / length - low) / (high - low);
    factors.push_back(static_cast<float>(length < context / high  ? 1
                                         : length > context / low ? factor
                                                                  : 1 / ((1 - smooth) / factor + smooth)));
  }
  return {"rope_freqs.weight", pb::F32, {width / 2}, [factors] {
            std::vector<std::byte> bytes(factors.size() * sizeof(float));
            std::memcpy(bytes.data(), factors.data(), bytes.size());
            return bytes;
          }};
}

/// Adds the keys or the tensor of scaled rotary positions.
void addRopeScaling(const std::string &architecture, const Json &config, GgufKeys &keys,
                    std::vector<WrittenTensor> &tensors) {
  Json scaling = config.value("rope_scaling", Json());
  if (scaling.is_null())
    scaling = config.value("rope_parameters", Json());
  std::string type = scaling.is_object() ? scaling.value("rope_type", scaling.value("type", "default")) : "default";
  if (type == "default")
    return;
  std::string key = architecture + ".rope.scaling.";
  if (type == "llama3") {
    tensors.push_back(ropeFactors(scaling, config));
  } else if (type == "linear" || type == "yarn") {
    keys.emplace_back(key + "type", type);
    keys.emplace_back(key + "factor", scaling.at("factor").get<float>());
    if (type == "yarn")
      keys.emplace_back(key + "original_context_length",
                        static_cast<uint32_t>(scaling.at("original_max_position_embeddings").get<int64_t>()));
  } else {
    throw PlanError(fmt::format("rope_scaling of the type {} is not written, only linear, yarn and llama3 are", type));
  }
}

/// Adds 1 to weights of norms that count from 1, because llama.cpp's count from 0.
WrittenTensor plusOne(WrittenTensor tensor) {
  tensor.make = [type = tensor.type, make = tensor.make] {
    std::vector<std::byte> given = make();
    auto count = static_cast<int64_t>(given.size() / elementBytes(type));
    std::vector<std::byte> out(static_cast<size_t>(count) * sizeof(float));
    for (int64_t i = 0; i < count; ++i)
      storeElement(pb::F32, out.data(), i, loadElement(type, given.data(), i) + 1);
    return out;
  };
  tensor.type = pb::F32;
  return tensor;
}

} // namespace

GgufRules ggufRules(const ConvertedModel &model) {
  GgufRules rules;
  bool rotatesNeighbours = false; // else the halves of a head, as we do
  for (const auto &[name, value] : keyRules(model)) {
    rules.normsFromOne |= name == "norms" && value == "from 1";
    if (name != model.model.name)
      continue; // the entry of a model that this one is like
    size_t space = value.find(' ');
    rules.architecture = value.substr(0, space);
    rotatesNeighbours = value.substr(space + 1) == "neighbours";
  }
  if (rules.architecture.empty())
    throw PlanError(
        fmt::format("{}: `weights: gguf_keys:` has no entry {}, so its name in llama.cpp is not known; --to hf "
                    "writes a folder that llama.cpp's convert_hf_to_gguf.py may read",
                    model.place, model.model.name));
  if (auto found = model.rules.find("gguf"); found != model.rules.end())
    rules.tensors = found->second;
  for (NameRule &rule : rules.tensors)
    if (!rotatesNeighbours)
      std::erase(rule.second, '~');
  return rules;
}

std::string ropeScalingOf(const GgufFile &file) {
  std::string key = file.text("general.architecture") + ".rope.", type = file.text(key + "scaling.type");
  auto number = [&](const std::string &name, double otherwise) { return file.number(key + name).value_or(otherwise); };
  auto refuse = [&](const std::string &why) {
    throw PlanError(fmt::format("{}: {}", file.file().path().string(), why));
  };
  if (auto table = file.tensors().find("rope_freqs.weight"); table != file.tensors().end()) {
    if (table->second.type != GgufType::F32)
      refuse("rope_freqs.weight is not of the type F32");
    std::vector<std::byte> bytes = file.read(table->first);
    int64_t count = table->second.shape.back();
    auto factorAt = [&](int64_t i) { return loadElement(pb::F32, bytes.data(), i); };
    // The published factors of Llama 3.1 and later. The last position is slowed down by the whole factor.
    Json scaling = {{"rope_type", "llama3"},
                    {"factor", factorAt(count - 1)},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}};
    std::vector<std::byte> wanted =
        ropeFactors(scaling, {{"rope_theta", number("freq_base", 10000)}, {"head_dim", 2 * count}}).make();
    for (int64_t i = 0; i < count; ++i)
      if (float own = factorAt(i), other = loadElement(pb::F32, wanted.data(), i);
          !(std::abs(own - other) <= 1e-5F * other))
        refuse("rope_freqs.weight slows positions down otherwise than Llama 3.1 does, and only that is read");
    return scaling.dump();
  }
  if (type.empty() || type == "none")
    return "";
  Json scaling = {{"rope_type", type}, {"factor", number("scaling.factor", 1)}};
  double length = number("scaling.original_context_length", 0);
  if (!(length >= 0 && length <= INT32_MAX)) // a file may store it as any type
    refuse(fmt::format("rope.scaling.original_context_length is {}", length));
  if (type == "yarn")
    scaling["original_max_position_embeddings"] = static_cast<int64_t>(length);
  else if (type != "linear")
    refuse(fmt::format("rope.scaling.type is {}, and linear, yarn and Llama 3's are read", type));
  return scaling.dump();
}

void convertToGguf(const ConvertedModel &model, const std::filesystem::path &source,
                   const std::filesystem::path &target, const std::string &config, const std::vector<SideFile> &files,
                   GgufType type) {
  GgufRules rules = ggufRules(model);
  NameMap names(model.model, rules.tensors, fmt::format("{}: weights: gguf", model.place));
  NativeSource native(model.model, source);
  std::vector<ForeignTensor> foreign = names.tensors({0, model.model.layers, true, true, {}}, 0, {});
  std::vector<WrittenTensor> tensors = tensorsOf(names, native, foreign, /*writesTied=*/false);
  GgufKeys keys = {{"general.architecture", rules.architecture}};
  try {
    Json json = Json::parse(config);
    addKeys(model, rules.architecture, json, keys);
    addRopeScaling(rules.architecture, json, keys, tensors);
    for (WrittenTensor &tensor : tensors)
      if (rules.normsFromOne && tensor.name.ends_with("norm.weight"))
        tensor = plusOne(std::move(tensor));
    for (auto &key : ggufTokenizer(files, json.at("vocab_size").get<int64_t>()))
      keys.push_back(std::move(key));
  } catch (const Json::exception &problem) {
    throw PlanError(fmt::format("config.json: {}", jsonReason(problem)));
  }
  writeGguf(target, std::move(keys), tensors, type);
}

} // namespace espalier::rt
