// The digest is a hash of a text with one line per size, layer, parameter and op. The text omits properties that may
// change during training (dropout, sequence length) and those that a checkpoint replaces (initial values).
#include "compiler/link/describe_identity.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {

namespace {

constexpr std::string_view dropoutRate = "rate"; // attribute of the ops dropout and attention

std::string opText(const OpDescription &op) {
  std::string text = fmt::format("  {} {} -> {}", op.kind, op.inputs, op.outputs);
  for (const auto &[name, value] : op.numbers)
    if (name != dropoutRate)
      text += fmt::format(" {} {}", name, value);
  for (const auto &[name, value] : op.strings)
    text += fmt::format(" {} {}", name, value);
  return text + "\n";
}

std::string modelText(const ModelDescription &model) {
  std::string text;
  for (const auto &[name, size] : model.dims)
    if (name != "seq")
      text += fmt::format("{} {}\n", name, size);
  for (const SegmentRun &run : model.runs)
    text += fmt::format("{} x {}\n", run.kind, run.count);
  for (const SegmentDescription &segment : model.segments) {
    text += fmt::format("{}: {} -> {}\n", segment.kind, segment.streamIn, segment.streamOut);
    for (const ParameterDescription &parameter : segment.parameters)
      text += fmt::format("  {} {} {}{}\n", parameter.name, parameter.dims, parameter.tiedTo,
                          parameter.frozen ? " frozen" : "");
    for (const OpDescription &op : segment.ops)
      text += opText(op);
  }
  return text;
}

/// Returns the outputs of ops with dropout and their rates, as in "x 0.1, mixed 0.2", or "none".
std::string dropoutText(const ModelDescription &model) {
  std::vector<std::string> rates;
  for (const SegmentDescription &segment : model.segments)
    for (const OpDescription &op : segment.ops)
      if (auto rate = op.numbers.find(std::string(dropoutRate)); rate != op.numbers.end() && rate->second > 0)
        rates.push_back(fmt::format("{} {}", op.outputs.front(), rate->second));
  return rates.empty() ? "none" : fmt::format("{}", fmt::join(rates, ", "));
}

const char *typeName(DType type) {
  switch (type) {
  case DType::F32:
    return "f32";
  case DType::BF16:
    return "bf16";
  case DType::F16:
    return "f16";
  }
}

} // namespace

void describeIdentity(const RunConfig &run, rt::pb::Identity &out) {
  std::string text = modelText(run.model);
  auto hash = llvm::SHA256::hash(llvm::ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
  out.set_model(llvm::toHex(hash, /*LowerCase=*/true));
  bool areSingle = run.dtypes.gradients == DType::F32; // left out, so that older checkpoints have the same text
  out.set_types(fmt::format("parameters {}, compute {}{}{}", typeName(run.dtypes.parameters),
                            typeName(run.dtypes.compute), run.dtypes.masterWeights ? ", f32 masters" : "",
                            areSingle ? "" : fmt::format(", gradients {}", typeName(run.dtypes.gradients))));
  out.set_dropout(dropoutText(run.model));
}

} // namespace espalier
