#include "compiler/codegen/cuda/head_state.h"

#include "compiler/codegen/cuda/runs.h"

using namespace mlir;

namespace espalier::codegen::cuda {

HeadState::HeadState(KernelFunction &f, exec::KernelOp kernel, int64_t columns)
    : f(f), kernel(kernel), parameters(*kernel.getParameters()), element(typeParameter(kernel, "type")),
      f32(f.b.getF32Type()), i32(f.b.getI32Type()), keyDim(integerParameter(kernel, "key_dim")),
      valueDim(integerParameter(kernel, "value_dim")), columns(columns), layout(keyDim), hasDelta(has("delta")),
      isByColumn(has("by_column")), own(has("zigzag") ? 2 : 1), heads(f, f.scalar("heads")),
      group(f, f.scalar("group")), allHeads(heads * group), length(Expr(f, f.scalar("seq")) / own),
      unit(f, f.blockBegin()), head(unit % allHeads), run(unit / allHeads), firstToken(run * length), count(index(own)),
      ownRun(index(0)), part(Expr(f, f.laneIndex()) % layout.lanes),
      column(Expr(f, f.blockY()) * f.geometry.getColumnsPerBlock() + Expr(f, f.threadIndex()) / layout.lanes),
      firstRow(part * layout.rows), isColumn(column < columns) {
  if (has("parts"))
    count = Expr(f, f.scalar("borders"));
  else if (has("columns"))
    count = atLeast(Expr(f, f.scalar("WHOLE_SEQUENCE")) / length, index(1));
  if (has("columns"))
    ownRun = runNumber(f, run, own, length, count);
}

StateRows HeadState::begin(bool hasFactor) const {
  StateRows state;
  for (int64_t i = 0; i < layout.rows; ++i) {
    Expr first = zero(), one(f, f.number(1));
    if (hasFactor)
      first = select(hasDelta ? column - valueDim == firstRow + i : column >= valueDim, one, first);
    state.emplace_back(first);
  }
  return state;
}

std::vector<Expr> HeadState::get(const StateRows &rows) {
  std::vector<Expr> values;
  for (const Variable &row : rows)
    values.push_back(row.get());
  return values;
}

std::vector<Expr> HeadState::key(StringRef operand, Expr t) const {
  bool ofDecay = operand == "decay", isPadded = layout.padded() != keyDim;
  Type type = ofDecay ? f32 : element;
  auto width = isPadded ? 1 : static_cast<int>(integerParameter(kernel, "width"));
  Expr row = (firstToken + t) * (ofDecay ? allHeads : heads) + (ofDecay ? head : head / group);
  std::vector<Expr> values;
  for (int64_t i = 0; i < layout.rows; i += width) {
    Expr n = firstRow + i, isRow = n < keyDim, at = isPadded ? select(isRow, n, 0) : n;
    for (Expr x : loadElements(elementAt(buffer(operand), row * keyDim + wide(at), type), type, width))
      values.push_back(isPadded ? select(isRow, x, 0) : x);
  }
  return values;
}

Expr HeadState::value(StringRef operand, Expr t) const {
  Expr isValue = column < valueDim,
       at = ((firstToken + t) * allHeads + head) * valueDim + wide(select(isValue, column, 0));
  return select(isValue, loadElements(elementAt(buffer(operand), at, element), element, 1).front(), 0);
}

void HeadState::setValue(Expr x, StringRef operand, Expr t) const {
  Expr at = ((firstToken + t) * allHeads + head) * valueDim + wide(column);
  when((part == 0) & (column < valueDim),
       [&] { storeElements({x}, elementAt(buffer(operand), at, element), element); });
}

Expr HeadState::number(StringRef operand, Expr t) const {
  return loadValue(elementAt(buffer(operand), (firstToken + t) * allHeads + head, f32), f32);
}

Expr HeadState::isReset(Expr t) const { return wideAt(f, "visible_from", firstToken + t) >= ownRun * length + t; }

std::vector<Expr> HeadState::fades(Expr t) const {
  std::vector<Expr> decays = isByColumn ? key("decay", t) : std::vector<Expr>{number("decay", t)};
  for (Expr &decay : decays) {
    decay = Expr(f, f.exp(decay.get()));
    if (has("visible_from"))
      decay = select(isReset(t), 0, decay);
  }
  decays.resize(static_cast<size_t>(layout.rows), decays.front());
  return decays;
}

Expr HeadState::dot(const std::vector<Expr> &a, const std::vector<Expr> &b) const {
  Expr sum = a[0] * b[0];
  for (size_t i = 1; i < a.size(); ++i)
    sum = sum + a[i] * b[i];
  return {f, f.reduceWarp(sum.get(), Reduction::Add, static_cast<int>(layout.lanes))};
}

Expr HeadState::advance(StateRows &state, Expr t) const {
  std::vector<Expr> k = key("k", t), fade = fades(t), faded = get(state);
  for (size_t i = 0; i < faded.size(); ++i)
    faded[i] = faded[i] * fade[i];
  Expr e = value("v", t);
  if (hasDelta)
    e = e - dot(faded, k);
  Expr u = number("beta", t) * e;
  for (size_t i = 0; i < faded.size(); ++i)
    state[i].set(faded[i] + k[i] * u);
  return e;
}

void HeadState::goBack(StateRows &gradient, Expr t, Expr dout,
                       const std::function<void(const std::vector<Expr> &, Expr)> &visit) const {
  std::vector<Expr> q = key("q", t), k = key("k", t), fade = fades(t), after = get(gradient);
  for (size_t i = 0; i < after.size(); ++i)
    after[i] = after[i] + q[i] * dout;
  Expr du = hasDelta || visit ? dot(after, k) : zero(), de = number("beta", t) * du;
  if (visit)
    visit(after, du);
  for (size_t i = 0; i < after.size(); ++i)
    gradient[i].set((hasDelta ? after[i] - k[i] * de : after[i]) * fade[i]);
}

void HeadState::pass(StateRows &state, Expr ofRun, bool isBackward) const {
  int64_t all = valueDim + (hasDelta ? keyDim : 1);
  Expr matrix = ((run / own * count + ofRun) * allHeads + head) * keyDim;
  std::vector<Expr> next = isBackward ? loadMatrix("ends", matrix * valueDim, valueDim)
                                      : loadMatrix("borders", matrix * all, all),
                    before = get(state);
  auto factor = [&](Expr n, Expr m) {
    Expr isThere = (n < keyDim) & (m < keyDim), at = matrix * all + wide(select(isThere, n * all + m + valueDim, 0));
    return select(isThere, loadValue(elementAt(buffer("borders"), at, f32), f32), 0);
  };
  Expr none(f, f.integer(0));
  if (!hasDelta) {
    for (int64_t i = 0; i < layout.rows; ++i) {
      Expr n = firstRow + i, isRow = n < keyDim, at = matrix * all + wide(select(isRow, n, 0) * all + valueDim);
      Expr ofRow = loadValue(elementAt(buffer("borders"), at, f32), f32);
      state[i].set(next[i] + select(isRow, ofRow, 0) * before[i]);
    }
    return;
  }
  for (int64_t i = 0; i < layout.rows; ++i)
    state[i].set(next[i]);
  // Lanes of a column hold different rows, so each of them sums the terms of its rows for all rows of the result.
  loop(none, Expr(f, f.integer(layout.lanes)), 1, [&](Expr ofLane) {
    for (int64_t i = 0; i < layout.rows; ++i) {
      std::vector<Expr> factors;
      for (int64_t j = 0; j < layout.rows; ++j) {
        Expr n = ofLane * layout.rows + i, m = firstRow + j;
        factors.push_back(isBackward ? factor(m, n) : factor(n, m));
      }
      Expr sum = dot(factors, before);
      state[i].set(select(part == ofLane, state[i].get() + sum, state[i].get()));
    }
  });
}

void HeadState::enter(StateRows &state) const {
  loop(index(0), ownRun, 1, [&](Expr earlier) { pass(state, earlier, /*isBackward=*/false); });
}

std::vector<Expr> HeadState::loadMatrix(StringRef operand, Expr first, int64_t stride) const {
  std::vector<Expr> values;
  for (int64_t i = 0; i < layout.rows; ++i) {
    Expr n = firstRow + i, isThere = isColumn & (n < keyDim);
    Expr at = first + wide(select(isThere, n * stride + column, 0));
    values.push_back(select(isThere, loadValue(elementAt(buffer(operand), at, f32), f32), 0));
  }
  return values;
}

void HeadState::storeMatrix(const StateRows &state, StringRef operand, Expr first, int64_t stride) const {
  for (int64_t i = 0; i < layout.rows; ++i) {
    Expr n = firstRow + i;
    when(isColumn & (n < keyDim),
         [&] { storeValue(state[i].get(), elementAt(buffer(operand), first + wide(n * stride + column), f32)); });
  }
}

} // namespace espalier::codegen::cuda
