#include "compiler/profile/like_kinds.h"

#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>

using namespace mlir;

namespace espalier {

namespace {

/// The key of the window in a model file, and the name of the attribute of attention.
constexpr const char *windowName = "window";

/// Returns the window of all attention in a segment. A window of the whole sequence is none, which is 0. Returns
/// nothing if the segment has no attention, or attention of several windows.
std::optional<int64_t> windowOf(const SegmentDescription &segment, int64_t positions) {
  std::optional<int64_t> window;
  for (const OpDescription &op : segment.ops) {
    if (op.kind != "attention")
      continue;
    auto given = op.numbers.find(windowName);
    auto own = given == op.numbers.end() ? int64_t(0) : static_cast<int64_t>(given->second);
    own = own < positions ? std::max<int64_t>(own, 0) : 0;
    if (window.value_or(own) != own)
      return std::nullopt;
    window = own;
  }
  return window;
}

bool areAlike(const ParameterDescription &a, const ParameterDescription &b) {
  return a.name == b.name && a.dims == b.dims && a.decay == b.decay && a.frozen == b.frozen && a.isF32 == b.isF32 &&
         a.signRate == b.signRate && a.tiedTo.empty() && b.tiedTo.empty() && a.adapterA == b.adapterA &&
         a.adapterB == b.adapterB && a.isAdapter == b.isAdapter;
}

bool areAlike(const OpDescription &a, const OpDescription &b) {
  auto numbers = [](const OpDescription &op) {
    std::map<std::string, double> others = op.numbers;
    if (op.kind == "attention")
      others.erase(windowName);
    return others;
  };
  return a.kind == b.kind && a.inputs == b.inputs && a.outputs == b.outputs && a.strings == b.strings &&
         numbers(a) == numbers(b);
}

/// Returns whether two segments differ only in their windows and the initial values of their parameters.
bool areAlike(const SegmentDescription &a, const SegmentDescription &b) {
  auto alike = [](const auto &one, const auto &other) { return areAlike(one, other); };
  return a.streamIn == b.streamIn && a.streamOut == b.streamOut &&
         std::ranges::equal(a.parameters, b.parameters, alike) && std::ranges::equal(a.ops, b.ops, alike);
}

void setWindow(ModuleOp module, StringRef kind, int64_t window) {
  OpBuilder b(module.getContext());
  for (auto function : module.getOps<func::FuncOp>())
    if (function.getName().split('.').first == kind)
      function.walk([&](Operation *op) {
        if (!isa<model::AttentionOp, model::AttentionGradOp>(op))
          return;
        if (window > 0)
          op->setAttr(windowName, b.getI64IntegerAttr(window));
        else
          op->removeAttr(windowName);
      });
}

} // namespace

LikeKinds::LikeKinds(const RunConfig &run) : reduced(run) {
  if (!run.optimizer.rateGroups.empty()) // a group may have parameters of one of the kinds
    return;
  const ModelDescription &model = run.model;
  auto found = model.dims.find("seq");
  int64_t positions = found == model.dims.end() ? 0 : found->second;
  for (const SegmentDescription &segment : model.segments) {
    std::optional<int64_t> window = windowOf(segment, positions);
    if (!window || segment.kind == model.runs.front().kind || segment.kind == model.runs.back().kind)
      continue;
    for (const SegmentDescription &earlier : model.segments) {
      if (&earlier == &segment)
        break;
      if (windows.count(earlier.kind) && !builtKinds.count(earlier.kind) && areAlike(earlier, segment)) {
        builtKinds[segment.kind] = earlier.kind;
        order.push_back(segment.kind);
        break;
      }
    }
    windows[segment.kind] = *window;
  }
  std::erase_if(reduced.model.segments,
                [&](const SegmentDescription &segment) { return builtKinds.count(segment.kind) > 0; });
  reduced.model.runs.clear();
  for (const SegmentRun &layers : model.runs) {
    const std::string &kind = builtFor(layers.kind);
    if (!reduced.model.runs.empty() && reduced.model.runs.back().kind == kind)
      reduced.model.runs.back().count += layers.count;
    else
      reduced.model.runs.push_back({kind, layers.count});
  }
}

const std::string &LikeKinds::builtFor(const std::string &kind) const {
  auto like = builtKinds.find(kind);
  return like == builtKinds.end() ? kind : like->second;
}

void LikeKinds::visit(ModuleOp module, const std::string &built,
                      const std::function<void(const std::string &)> &visit) const {
  visit(built);
  bool isChanged = false;
  for (const std::string &kind : order) {
    if (builtFor(kind) != built)
      continue;
    setWindow(module, built, windows.at(kind));
    visit(kind);
    isChanged = true;
  }
  if (isChanged)
    setWindow(module, built, windows.at(built));
}

} // namespace espalier
