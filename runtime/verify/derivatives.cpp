// Rule L: what the subprograms of one call say of each other. Forward, what is recomputed, evaluation and backward name
// the same random bits, attentions, rotations and routes, each where it belongs.
#include "runtime/verify/call_trace.h"

#include <algorithm>
#include <array>

namespace espalier::rt::verify {
namespace {

/// A draw of random bits by a generated kernel.
struct Draw {
  const TraceStep *step;
  int64_t op;
};

/// One attention, forward or a part of its derivative: where its operands stand among the buffers of its step.
struct Attention {
  const TraceStep *step = nullptr;
  bool isForward = false;
  int64_t op = 0;
  std::vector<double> constants = {}; ///< scale, rate
  bool isCausal = false;
  int out = -1, lse = -1, cotangent = -1;
  std::array<int, 3> gradients = {-1, -1, -1}; ///< of q, k and v
};

class Derivatives {
public:
  Derivatives(const pb::Plan &plan, const Values &values, const pb::Call &call, PlanErrors &errors)
      : plan(plan), trace(plan, values, call), errors(errors) {}

  void check();

private:
  void checkDraws();
  void checkForwardDraws(const std::vector<Draw> &draws);
  void checkBackwardDraw(const Draw &draw, const std::vector<Draw> &forward);
  void findAttentions();
  void addCall(const TraceStep &step, const pb::LibraryCall &call);
  void addLaunch(const TraceStep &step, const pb::Launch &launch);
  void checkAttention(const Attention &attention);
  bool isAlike(const Attention &a, const Attention &b) const;
  void checkForward(const Attention &attention);
  void checkBackward(const Attention &attention);
  void checkRotations();
  void checkRoutes(const TraceStep &step);
  void checkWeights(const TraceStep &step);
  void checkGelu(const TraceStep &step);
  std::string_view shapeOf(const TraceStep &step) const;
  Parameters before(const Attention &attention, int operand) const {
    return trace.before(attention.step->uses[static_cast<size_t>(operand)]);
  }
  template <typename... Args> void add(const TraceStep &step, fmt::format_string<Args...> format, Args &&...args) {
    errors.add(fmt::format("{}: ", step.name) + fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  CallTrace trace;
  PlanErrors &errors;
  std::vector<Attention> attentions;
};

constexpr const char *operandNames[] = {"queries", "keys", "values"};

void Derivatives::check() {
  checkDraws();
  findAttentions();
  for (const Attention &attention : attentions)
    checkAttention(attention);
  checkRotations();
  for (const TraceStep &step : trace.steps()) {
    checkRoutes(step);
    checkGelu(step);
  }
}

/// What is drawn forward is drawn backward, where the derivative of the same place is made.
void Derivatives::checkDraws() {
  std::vector<Draw> forward, backward;
  for (const TraceStep &step : trace.steps())
    for (int64_t op : step.draws)
      (step.isCotangent ? backward : forward).push_back({&step, op});
  checkForwardDraws(forward);
  for (const Draw &draw : backward)
    checkBackwardDraw(draw, forward);
  for (const Draw &draw : forward)
    if (trace.hasGradients() && std::ranges::find(backward, draw.op, &Draw::op) == backward.end())
      add(*draw.step, "random bits of op {} are drawn here, and not again backward", draw.op);
}

/// What is recomputed draws again what the same place drew.
void Derivatives::checkForwardDraws(const std::vector<Draw> &draws) {
  for (size_t i = 0; i < draws.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (draws[i].op == draws[k].op && !areAkin(draws[i].step->before, draws[k].step->before))
        return add(*draws[i].step, "draws random bits of op {}, which are drawn elsewhere by {}", draws[i].op,
                   draws[k].step->name);
}

/// A kernel that makes cotangents may compute again what is forward besides.
void Derivatives::checkBackwardDraw(const Draw &draw, const std::vector<Draw> &forward) {
  bool isDrawn = false;
  for (const Draw &other : forward) {
    if (other.op != draw.op)
      continue;
    isDrawn = true;
    const Parameters &origin = other.step->before;
    bool isAgain = !draw.step->before.isEmpty() && areAkin(draw.step->before, origin);
    if (isAgain || areAkin(draw.step->behind, origin))
      return;
  }
  add(*draw.step, "draws random bits of op {}, which {}", draw.op,
      isDrawn ? "forward draws for another place" : "forward does not draw");
}

void Derivatives::findAttentions() {
  for (const TraceStep &step : trace.steps()) {
    if (step.instruction->has_call())
      addCall(step, step.instruction->call());
    else if (step.instruction->has_launch())
      addLaunch(step, step.instruction->launch());
  }
}

void Derivatives::addCall(const TraceStep &step, const pb::LibraryCall &call) {
  Attention found{.step = &step, .isForward = call.function() == pb::LibraryCall::ATTENTION_FORWARD};
  if (!found.isForward && call.function() != pb::LibraryCall::ATTENTION_BACKWARD)
    return;
  found.op = call.scalars().empty() ? 0 : call.scalars(0).constant();
  found.constants.assign(call.floats().begin(), call.floats().end());
  found.isCausal = call.causal();
  found.out = 3;
  found.lse = 4;
  if (!found.isForward) {
    found.cotangent = 5;
    found.gradients = {7, 8, 9};
  }
  attentions.push_back(found);
}

void Derivatives::addLaunch(const TraceStep &step, const pb::Launch &launch) {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  Attention found{.step = &step, .isForward = kernel.shape() == "attention_forward"};
  bool isOfKeys = kernel.shape() == "attention_key_gradient";
  bool isKnown = found.isForward || isOfKeys || kernel.shape() == "attention_query_gradient";
  if (!isKnown || step.uses.size() < (found.isForward ? 6 : 9))
    return;
  for (int i = 0; i < std::min(kernel.uses_size(), launch.scalars_size()); ++i)
    if (kernel.uses(i) == pb::Kernel::STREAM)
      found.op = launch.scalars(i).constant();
  if (found.isForward) { // q, k, v, step, out, lse
    found.out = 4;
    found.lse = 5;
  } else { // q, k, v, lse, dout, delta (of queries: out), step, then what is made
    found.lse = 3;
    found.cotangent = 4;
    found.gradients[isOfKeys ? 1 : 0] = 7;
    if (isOfKeys)
      found.gradients[2] = 8;
    else
      found.out = 5;
  }
  attentions.push_back(found);
}

void Derivatives::checkAttention(const Attention &attention) {
  for (int i = 0; i < 3; ++i)
    if (trace.isCotangent(attention.step->uses[static_cast<size_t>(i)]))
      add(*attention.step, "takes a cotangent for {}", operandNames[i]);
  if (attention.isForward)
    checkForward(attention);
  else
    checkBackward(attention);
}

/// Equal but for the rate, which evaluation has not.
bool Derivatives::isAlike(const Attention &a, const Attention &b) const {
  bool areTrained = trace.isTrained(*a.step) && trace.isTrained(*b.step);
  bool haveRates = areTrained || a.constants.size() != b.constants.size();
  auto end = [&](const Attention &of) { return of.constants.end() - (haveRates || of.constants.empty() ? 0 : 1); };
  return a.op == b.op && a.isCausal == b.isCausal &&
         std::equal(a.constants.begin(), end(a), b.constants.begin(), end(b));
}

/// The attentions of one op, in all subprograms, have queries, keys and values of the same parameters.
void Derivatives::checkForward(const Attention &attention) {
  bool isDerived = !trace.hasGradients() || !trace.isTrained(*attention.step);
  for (const Attention &other : attentions) {
    if (other.op != attention.op)
      continue;
    isDerived |= !other.isForward;
    if (!isAlike(attention, other))
      return add(*attention.step, "has another scale, rate or mask than {}", other.step->name);
    for (int i = 0; i < 3 && other.isForward; ++i)
      if (!isWithin(before(attention, i), before(other, i)))
        return add(*attention.step, "has other {} than {}", operandNames[i], other.step->name);
  }
  if (!isDerived)
    add(*attention.step, "attention {} has no derivative", attention.op);
}

/// The derivative of the attention that has left the sums which it reads.
void Derivatives::checkBackward(const Attention &attention) {
  const std::vector<ValueUse> &uses = attention.step->uses;
  auto use = [&](int index) { return uses[static_cast<size_t>(index)]; };
  auto [writer, place] = trace.writerOf(use(attention.lse));
  auto forward = std::ranges::find_if(
      attentions, [&, from = writer](const Attention &other) { return other.isForward && other.step == from; });
  if (forward == attentions.end() || forward->lse != place)
    return add(*attention.step, "reads sums of rows that no attention has left");
  if (!isAlike(attention, *forward))
    add(*attention.step, "is not the derivative of {}: they differ in op, scale, rate or mask", forward->step->name);
  bool isOther = attention.out >= 0 && use(attention.out) != forward->step->uses[static_cast<size_t>(forward->out)];
  if (isOther || !trace.isCotangent(use(attention.cotangent)))
    add(*attention.step, "takes other results or another cotangent than those of {}", forward->step->name);
  for (int i = 0; i < 3; ++i) {
    if (!isWithin(before(attention, i), before(*forward, i)))
      add(*attention.step, "has other {} than {}", operandNames[i], forward->step->name);
    if (int made = attention.gradients[static_cast<size_t>(i)]; made >= 0) {
      Parameters to = trace.goesTo(use(made)), from = trace.madeBy(use(i));
      if (!to.isEmpty() && !from.isEmpty() && to.weights != from.weights)
        add(*attention.step, "makes of the derivative of {} one of something else", operandNames[i]);
    }
  }
}

/// A cotangent is turned back, anything else forth; both by angles of one base.
void Derivatives::checkRotations() {
  std::map<double, std::vector<const TraceStep *>> bases;
  for (const TraceStep &step : trace.steps()) {
    const pb::LibraryCall &call = step.instruction->call();
    if (!step.instruction->has_call() || call.function() != pb::LibraryCall::ROPE)
      continue;
    bool isInverse = call.sizes(3) != 0, isBack = trace.isCotangent(step.uses[0]);
    if (isInverse != isBack && trace.hasGradients())
      add(step, "turns {} {}", isBack ? "a cotangent" : "what is no cotangent", isInverse ? "back" : "forth");
    bases[call.floats().empty() ? 0 : call.floats(0)].push_back(&step);
  }
  for (const auto &[base, steps] : bases)
    if (steps.size() == 1)
      add(*steps.front(), "is the only rotation with the base {}", base);
}

std::string_view Derivatives::shapeOf(const TraceStep &step) const {
  return step.instruction->has_launch()
             ? std::string_view(plan.kernels(static_cast<int>(step.instruction->launch().kernel())).shape())
             : std::string_view();
}

/// Experts' rows are moved by the ids and slots that a route has given, each in its place. A device makes slots of ids.
void Derivatives::checkRoutes(const TraceStep &step) {
  pb::LibraryCall::Function function = step.instruction->call().function();
  bool isCall = function == pb::LibraryCall::DISPATCH || function == pb::LibraryCall::COMBINE;
  bool isLaunch = shapeOf(step) == "combine" || shapeOf(step) == "find_rows";
  for (size_t i = 0; (isCall || isLaunch) && i < std::min<size_t>(step.uses.size(), 2); ++i) {
    auto [writer, place] = trace.writerOf(step.uses[i]);
    bool isOfCall = writer && writer->instruction->call().function() == pb::LibraryCall::ROUTE;
    bool isOfLaunch = writer && shapeOf(*writer) == (i == 0 ? "choose_experts" : "give_slots");
    if (isCall ? !isOfCall || place != static_cast<int>(i) + 1 : !isOfLaunch)
      add(step, "buffer {} holds no {} of a route", i, i == 0 ? "ids" : "slots");
  }
  if (isCall && trace.hasGradients())
    checkWeights(step);
}

/// Rows of experts are weighted on their way back, and so are cotangents on theirs; what each choice gets alone is not.
void Derivatives::checkWeights(const TraceStep &step) {
  auto isWeighted = [](const TraceStep &of) { return of.uses.size() == 5; };
  auto isWeightedDispatch = [&](const TraceStep &of) {
    return of.instruction->call().function() == pb::LibraryCall::DISPATCH && isWeighted(of) && trace.isCotangent(of.uses[2]);
  };
  const pb::LibraryCall &call = step.instruction->call();
  bool isBack = call.function() == pb::LibraryCall::COMBINE, isOfCotangent = trace.isCotangent(step.uses[2]);
  bool isAlone = call.sizes(6) != 0;
  if (isWeighted(step) ? isAlone || (!isBack && !isOfCotangent) : isBack && !isAlone && !isOfCotangent)
    add(step, "{} by a weight for each choice", isWeighted(step) ? "multiplies" : "does not multiply");
  else if (isBack && isWeighted(step) && std::ranges::none_of(trace.steps(), isWeightedDispatch))
    add(step, "weights rows, and nothing weights the cotangents of them");
}

/// Of a product with gelu backward takes gelu's operand, and the next product its result.
void Derivatives::checkGelu(const TraceStep &step) {
  constexpr int operandOfGelu = 4, resultOfGelu = 2; // among the buffers of BIAS_GELU
  const pb::LibraryCall &call = step.instruction->call();
  if (!step.instruction->has_call() || call.function() != pb::LibraryCall::MATMUL)
    return;
  auto isOf = [&](size_t buffer, int wanted) {
    auto [writer, place] = trace.writerOf(step.uses[buffer]);
    return writer && place == wanted && writer->instruction->call().epilogue() == pb::LibraryCall::BIAS_GELU;
  };
  if (isOf(0, operandOfGelu) || isOf(1, operandOfGelu))
    add(step, "multiplies by what is kept for the derivative of gelu");
  if (call.epilogue() == pb::LibraryCall::GELU_GRADIENT && isOf(3, resultOfGelu))
    add(step, "takes gelu's result for its operand");
}

} // namespace

void verifyDerivatives(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  Values values(plan, mesh);
  std::set<std::vector<uint32_t>> known; // layers that are alike run the same subprograms
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Call &call : stage.calls())
      if (known.insert({call.programs().begin(), call.programs().end()}).second)
        Derivatives(plan, values, call, errors).check();
}

} // namespace espalier::rt::verify
