#include "compiler/import/huggingface/hf_json.h"

#include "messages/json_reason.h"

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>

namespace espalier {

namespace {

constexpr int mostLevels = 8;

const std::set<std::string> inertKeys = {"_name_or_path",
                                         "_attn_implementation_autoset",
                                         "architectures",
                                         "auto_map",
                                         "bos_token_id",
                                         "eos_token_id",
                                         "gradient_checkpointing",
                                         "id2label",
                                         "is_llama_config",
                                         "label2id",
                                         "max_length",
                                         "model_type",
                                         "num_labels",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "output_past",
                                         "pad_token_id",
                                         "return_dict",
                                         "task_specific_params",
                                         "transformers.js_config",
                                         "transformers_version",
                                         "use_cache"};

/// Numbers that Python writes and JSON lacks.
constexpr std::pair<std::string_view, double> pythonNumbers[] = {
    {"Infinity", std::numeric_limits<double>::infinity()},
    {"-Infinity", -std::numeric_limits<double>::infinity()},
    {"NaN", std::numeric_limits<double>::quiet_NaN()}};
constexpr char mark = '\1'; ///< begins the string that stands for such a number

std::string markedText(std::string_view name) { return fmt::format("\"\\u{:04x}{}\"", int{mark}, name); }

/// Returns the text with Python's numbers as marked strings.
std::string withMarks(std::string_view text) {
  std::string marked;
  bool isQuoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    auto number =
        std::ranges::find_if(pythonNumbers, [&](auto &each) { return text.substr(at).starts_with(each.first); });
    if (!isQuoted && number != std::end(pythonNumbers)) {
      marked += markedText(number->first);
      at += number->first.size() - 1;
      continue;
    }
    isQuoted ^= text[at] == '"';
    marked += text[at];
    if (isQuoted && text[at] == '\\' && at + 1 < text.size())
      marked += text[++at];
  }
  return marked;
}

/// Replaces marked strings by their numbers, and the objects that transformers 5 writes instead.
void replaceMarks(Json &value) {
  if (value.is_structured())
    for (Json &item : value)
      replaceMarks(item);
  for (auto [name, number] : pythonNumbers)
    if (value == mark + std::string(name) || value == Json{{"__float__", name}})
      value = number;
}

/// Replaces numbers that JSON lacks by marked strings.
void markNumbers(Json &value) {
  if (value.is_structured())
    for (Json &item : value)
      markNumbers(item);
  if (double number = value.is_number_float() ? value.get<double>() : 0; !std::isfinite(number))
    value = mark + std::string(std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
}

} // namespace

/// Converts the letters of Nemotron-H's layers to the list that newer files have. The list determines the number of
/// layers. Keeps a pattern with another letter, which is then an unknown key.
static void listLayers(Json &config) {
  static const std::map<char, const char *> kinds = {{'M', "mamba"}, {'*', "attention"}, {'-', "mlp"}, {'E', "moe"}};
  const Json *pattern = valueAt(config, "hybrid_override_pattern");
  if (pattern && pattern->is_string() && !config.contains("layers_block_type")) {
    Json list = Json::array();
    for (char letter : pattern->get<std::string>()) {
      auto kind = kinds.find(letter);
      if (kind == kinds.end())
        return;
      list.push_back(kind->second);
    }
    config["layers_block_type"] = list;
    config.erase("hybrid_override_pattern");
  }
  if (const Json *list = valueAt(config, "layers_block_type"); list && list->is_array())
    config["num_hidden_layers"] = list->size();
}

std::string readHfConfig(const std::string &text, Json &config) {
  try {
    config = Json::parse(withMarks(text), [](int depth, Json::parse_event_t, Json &) {
      if (depth > mostLevels)
        throw Json::other_error::create(501, "nested too deep", nullptr);
      return true;
    });
  } catch (const Json::exception &problem) {
    return fmt::format("is no JSON: {}", rt::jsonReason(problem));
  }
  replaceMarks(config);
  listLayers(config);
  return config.is_object() ? "" : "a config.json is an object";
}

std::string hfText(Json value, int indent) {
  markNumbers(value);
  std::string text = value.dump(indent);
  for (const auto &each : pythonNumbers)
    boost::replace_all(text, markedText(each.first), each.first);
  return text;
}

Json::json_pointer pointerTo(std::string path) {
  std::ranges::replace(path, '.', '/');
  return Json::json_pointer("/" + path);
}

const Json *valueAt(const Json &config, const std::string &path) {
  const Json *value = &config;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('.', begin), path.size());
    auto found = value->is_object() ? value->find(path.substr(begin, end - begin)) : value->end();
    if (!value->is_object() || found == value->end())
      return nullptr;
    value = &*found;
    begin = end + 1;
  }
  return value;
}

Json listOf(const std::vector<std::string> &items) {
  Json list = Json::array();
  for (const std::string &item : items)
    list.push_back(std::ranges::all_of(item, [](char c) { return c >= '0' && c <= '9'; }) ? Json(std::stoll(item))
                                                                                          : Json(item));
  return list;
}

Json expandedPairs(const Json &value) {
  Json list = Json::array();
  for (const Json &pair : value.is_array() ? value : Json::array({nullptr})) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_array() || !pair[1].is_number_unsigned() || pair[1] > 10000)
      return nullptr;
    for (int i = 0; i < pair[1]; ++i)
      list.insert(list.end(), pair[0].begin(), pair[0].end());
  }
  return list;
}

std::string scalar(const Json &value) { return value.is_string() ? value.get<std::string>() : hfText(value); }

std::string dtypeOf(const Json &config) {
  for (const char *key : {"dtype", "torch_dtype"})
    if (const Json *value = valueAt(config, key); value && value->is_string())
      return value->get<std::string>();
  return "float32";
}

Json textConfigOf(const Json &config) {
  const Json *inner = valueAt(config, "text_config");
  if (!inner || !inner->is_object())
    return config;
  Json text = *inner;
  for (const char *key : {"dtype", "torch_dtype", "tie_word_embeddings"})
    if (const Json *outer = valueAt(config, key); outer && !outer->is_null())
      text[key] = *outer;
  return text;
}

std::string quantizationFault(const Json &config) {
  for (const Json &of : {config, textConfigOf(config)})
    if (const Json *quantized = valueAt(of, "quantization_config"); quantized && !quantized->is_null()) {
      const Json *method = valueAt(*quantized, "quant_method");
      if (method && (*method == "mxfp4" || *method == "fp8")) // conversions decode the weights
        continue;
      return fmt::format("the weights are quantised{}; dequantise them first: "
                         "AutoModelForCausalLM.from_pretrained(DIR, dtype=torch.bfloat16).dequantize()"
                         ".save_pretrained(OUT) in Python, and import OUT (docs/from_huggingface.md)",
                         method ? fmt::format(" ({})", scalar(*method)) : "");
    }
  return "";
}

bool isInertHfKey(const std::string &key) { return inertKeys.contains(key) || key.starts_with("unsloth_"); }

} // namespace espalier
