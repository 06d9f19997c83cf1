#include "compiler/import/huggingface/gguf_config.h"

#include "compiler/import/huggingface/hf_json.h"
#include "compiler/import/huggingface/hf_rules.h"
#include "compiler/import/model/expression.h"
#include "compiler/import/yaml/config_files.h"
#include "messages/plan_error.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {
namespace {

/// Keys behind the name of the architecture that have no key of config.json: ropeScaling has their values, or the model
/// does not use them.
constexpr std::array inertKeys = {"vocab_size", "feed_forward_length", "rope.scaling.factor",
                                  "rope.scaling.original_context_length", "rope.scaling.finetuned"};

/// Keys of config.json that say whether a tensor is there, in models that have them.
struct KeyOfTensor {
  const char *key, *tensor;
  bool isThere; ///< the value of the key if the tensor is there
};
constexpr KeyOfTensor keysOfTensors[] = {{"tie_word_embeddings", "output.weight", false},
                                         {"attention_bias", "blk.0.attn_q.bias", true},
                                         {"use_bias", "blk.0.attn_q.bias", true},
                                         {"mlp_bias", "blk.0.ffn_gate.bias", true}};

/// The values of llama.cpp for keys of config.json that a file does not give. Gemma 2 divides by the root of the width
/// of a head, and with 46 layers (27B) by that of the hidden width of a head.
constexpr std::pair<const char *, const char *> assumedKeys[] = {
    {"head_dim", "hidden_size / num_attention_heads"},
    {"num_key_value_heads", "num_attention_heads"},
    {"query_pre_attn_scalar", "head_dim + (hidden_size / num_attention_heads - head_dim) * "
                              "max(0, 1 - (num_hidden_layers - 46) * (num_hidden_layers - 46))"}};

/// The sections of a model file.
struct Rules {
  const YamlNode *keys = nullptr; ///< gguf_keys
  HfRules hf;
};

/// Writes the config.json of one file.
class Config {
public:
  Config(const std::string &file, const GgufModel &model) : file(file), model(model) {}

  std::string text() {
    Rules rules = findRules();
    config = {{"architectures", {rules.hf.architecture}},
              {"model_type", rules.hf.modelTypes.front()},
              {"torch_dtype", model.dtype}};
    takeKeys(rules);
    takeRest(rules);
    requireKnown();
    if (!model.ropeScaling.empty())
      config["rope_scaling"] = Json::parse(model.ropeScaling);
    return config.dump(2) + "\n";
  }

private:
  [[noreturn]] void refuse(const std::string &why) const { throw rt::PlanError(fmt::format("{}: {}", file, why)); }

  std::optional<double> numberAt(const std::string &key) const {
    auto found = model.numbers.find(key);
    return found == model.numbers.end() ? std::nullopt : std::optional(found->second);
  }
  /// Returns the key of the file for a pattern such as "{arch}.block_count"; empty for other entries.
  std::string keyOf(const std::string &pattern) const {
    constexpr std::string_view arch = "{arch}";
    return pattern.starts_with(arch) ? model.architecture + pattern.substr(arch.size()) : "";
  }

  /// Finds the model file. One architecture of llama.cpp may be several models, with experts and without.
  Rules findRules() {
    std::vector<std::string> folders = configFolders(file, {}), names;
    std::optional<Rules> found;
    for (const std::string &modelFile : modelFiles(folders)) {
      Diagnostics ignored;
      std::optional<Architecture> candidate = loadArchitecture(modelFile, ignored, folders);
      std::optional<HfRules> hf = candidate ? readHfRules(*candidate) : std::nullopt;
      const YamlNode *weights = hf ? candidate->root->find("weights") : nullptr;
      const YamlNode *keys = weights ? weights->find("gguf_keys") : nullptr;
      const YamlNode *entry = keys ? keys->find(candidate->name) : nullptr;
      if (!entry)
        continue;
      std::string name = entry->text.substr(0, entry->text.find(' '));
      names.push_back(name);
      const YamlNode *experts = keys->find("{arch}.expert_count");
      bool hasExperts = numberAt(model.architecture + ".expert_count").value_or(0) > 0;
      bool isNewOrNamesake = !found || candidate->name == name;
      if (name == model.architecture && hasExperts == (experts != nullptr) && isNewOrNamesake) {
        found = {keys, std::move(*hf)};
        root = candidate->root;
      }
    }
    std::ranges::sort(names);
    names.erase(std::ranges::unique(names).begin(), names.end());
    if (!found)
      refuse(fmt::format("no model file is for llama.cpp's architecture '{}'{}, there are {}: `weights: gguf_keys:` "
                         "names it",
                         model.architecture,
                         std::ranges::count(names, model.architecture) > 0 ? " with its number of experts" : "",
                         fmt::join(names, ", ")));
    return *found;
  }

  /// Sets a key of config.json. Two keys of the file may give one, and must then agree.
  void set(const std::string &key, const Json &value, const std::string &from) {
    if (config.contains(key) && config[key] != value)
      refuse(fmt::format("{} is {}, and {} is {} by another key; the model has one of them", from, hfText(value), key,
                         hfText(config[key])));
    config[key] = value;
  }

  static bool hasSize(const Rules &rules, const std::string &key) {
    return std::ranges::any_of(rules.hf.sizes,
                               [&](const HfSize &size) { return std::ranges::count(size.places(), key) > 0; });
  }

  /// Takes the keys with numbers, and the values that a model must have.
  void takeKeys(const Rules &rules) {
    for (const YamlEntry &rule : rules.keys->entries) {
      std::string described = rule.value->isScalar() ? rule.value->text : "", key = keyOf(rule.key);
      size_t space = described.find(' ');
      std::string type = described.substr(0, space), to = space == std::string::npos ? "" : described.substr(space + 1);
      if (type == "only")
        config[rule.key] = Json::parse(to);
      known.insert(key);
      std::optional<double> number = numberAt(key);
      if (!number || (type != "u32" && type != "f32"))
        continue;
      if (type == "u32" && !(*number >= 0 && *number <= UINT32_MAX)) // a file may store it as another type
        refuse(fmt::format("{} is {}, and a number of 32 bits is wanted", key, *number));
      Json value = type == "u32" ? Json(static_cast<int64_t>(*number))
                                 : Json(std::stod(fmt::format("{}", static_cast<float>(*number))));
      set(to, value, key);
    }
    if (!config.contains("vocab_size"))
      config["vocab_size"] = model.vocab;
  }

  /// Takes what follows from the tensors and from other keys.
  void takeRest(const Rules &rules) {
    for (const auto &[key, tensor, isThere] : keysOfTensors)
      if (hasSize(rules, key))
        config[key] = model.tensors.contains(tensor) == isThere;
    for (const auto &[key, expression] : assumedKeys)
      if (hasSize(rules, key) && !config.contains(key))
        if (std::optional<double> value = valueOf(expression))
          config[key] = static_cast<int64_t>(*value);
    std::optional<double> head = valueOf("hidden_size / num_attention_heads");
    if (config.contains("head_dim") && !hasSize(rules, "head_dim") && config["head_dim"] == head.value_or(0))
      config.erase("head_dim"); // transformers has no key of it, and it has the value that follows
  }

  std::optional<double> valueOf(const std::string &text) const {
    return evaluateExpression(text,
                              [&](const std::string &name, bool &isKnown) -> std::optional<double> {
                                isKnown = true;
                                return config.contains(name) && config[name].is_number()
                                           ? std::optional(config[name].get<double>())
                                           : std::nullopt;
                              })
        .value;
  }

  /// Refuses keys of the architecture that say what the model file does not read.
  void requireKnown() const {
    std::string prefix = model.architecture + ".";
    auto isRead = [&](const std::string &key) {
      return !key.starts_with(prefix) || known.contains(key) ||
             std::ranges::count(inertKeys, key.substr(prefix.size())) > 0;
    };
    for (const auto &[key, value] : model.numbers)
      if (!isRead(key) && value != 0)
        refuse(fmt::format("{} is {}, and the model file of {} does not read it", key, value,
                           config["model_type"].get<std::string>()));
    for (const std::string &key : model.lists)
      if (key.starts_with(prefix))
        refuse(fmt::format("{} is a list, and layers of one kind are read", key));
  }

  const std::string &file;
  const GgufModel &model;
  YamlPtr root; ///< holds `Rules::keys`
  Json config;
  std::set<std::string> known; ///< keys of the file
};

} // namespace

std::string ggufConfigText(const std::string &file, const GgufModel &model) { return Config(file, model).text(); }

} // namespace espalier
