#include "compiler/import/huggingface/hf_json.h"

#include <algorithm>
#include <fmt/format.h>
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

} // namespace

Json parseHfConfig(const std::string &text) {
  return Json::parse(text, [](int depth, Json::parse_event_t, Json &) {
    if (depth > mostLevels)
      throw Json::other_error::create(501, "nested too deep", nullptr);
    return true;
  });
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

std::string scalar(const Json &value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

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
