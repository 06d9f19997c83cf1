#include "compiler/import/megatron/hybrid_pattern.h"

#include <fmt/format.h>

namespace espalier {

std::string_view hybridKind(char letter) {
  switch (letter) {
  case 'M':
    return "mamba";
  case '*':
    return "attention";
  case '-':
    return "mlp";
  case 'E':
    return "moe";
  default:
    return "";
  }
}

/// Returns the reason why a character of a pattern is not supported, or an empty string.
static std::string faultOf(char letter) {
  if (letter == '|' || !hybridKind(letter).empty())
    return "";
  switch (letter) {
  case 'G':
    return "gated delta nets (G) are layers of qwen3_next and qwen3_5 only; import the config.json of such a model";
  case 'D':
    return "sparse attention (D) is in layers of deepseek_v32 only; import the config.json of such a model";
  case '[':
  case ']':
    return "layers are not fused in pairs; leave out the brackets";
  default:
    return fmt::format("'{}' is no layer, wanted M (Mamba-2), * (attention), - (MLP), E (experts), or | between stages",
                       letter);
  }
}

/// Returns the letters of a segment's mixer and of its MLP or experts.
static std::string partsOf(const SegmentDescription &segment) {
  std::string mixers, mlp;
  bool hasConvolution = false;
  for (const OpDescription &op : segment.ops) {
    auto delta = op.numbers.find("delta");
    hasConvolution |= op.kind == "causal_conv";
    if (op.kind == "attention")
      mixers += "*";
    else if (op.kind == "recurrence")
      mixers += delta != op.numbers.end() && delta->second != 0 ? "G" : "M";
  }
  for (const ParameterDescription &parameter : segment.parameters)
    for (const std::string &dim : parameter.dims)
      if (dim == "expert" || (mlp.empty() && dim.starts_with("ffn")))
        mlp = dim == "expert" ? "E" : "-";
  bool isKnown = mixers.size() < 2 && (!mixers.empty() || !hasConvolution);
  return isKnown ? mixers + mlp : "";
}

std::vector<std::string> hybridParts(const ModelDescription &model) {
  std::vector<std::string> parts;
  for (const SegmentDescription &segment : model.segments)
    parts.push_back(partsOf(segment));
  return parts;
}

HybridPattern readHybridPattern(const std::string &text) {
  HybridPattern pattern;
  size_t end = text.find('/');
  if (text.find_first_not_of('/', end) != std::string::npos && end != std::string::npos)
    pattern.fault =
        fmt::format("nemotron_h has no modules that predict further tokens; leave out '{}'", text.substr(end));
  pattern.chunkSizes.push_back(0);
  for (char letter : text.substr(0, end)) {
    if (pattern.fault.empty())
      pattern.fault = faultOf(letter);
    if (letter == '|') {
      pattern.chunkSizes.push_back(0);
    } else {
      pattern.letters += letter;
      ++pattern.chunkSizes.back();
    }
  }
  if (pattern.letters.empty() && pattern.fault.empty())
    pattern.fault = "the pattern has no layers";
  return pattern;
}

} // namespace espalier
