// Gated linear recurrences, position by position, with the state in registers. A block has some columns of one head of
// one run. Its warps are independent, because a column is within a warp.
#include "compiler/codegen/cuda/head_state.h"

#include "compiler/codegen/cuda/runs.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

class Recurrence : HeadState {
public:
  using HeadState::HeadState;

  /// Computes out.
  void compute() {
    StateRows state = begin(/*hasFactor=*/false);
    if (has("parts"))
      enter(state);
    loop(index(0), length, 1, [&](Expr t) {
      advance(state, t);
      setValue(dot(get(state), key("q", t)), "out", t);
    });
  }

  /// Computes out, and continues from a state that is replaced by the one after the tokens.
  void carry() {
    StateRows state = begin(/*hasFactor=*/false);
    Expr first = unit * (keyDim * valueDim), isContinued = wideAt(f, "positions", firstToken) > 0;
    std::vector<Expr> kept = loadMatrix("state", first, valueDim);
    for (size_t i = 0; i < kept.size(); ++i)
      state[i].set(select(isContinued, kept[i], 0));
    loop(index(0), length, 1, [&](Expr t) {
      Expr isToken = wideAt(f, "positions", firstToken + t) >= 0;
      when(isToken, [&] {
        advance(state, t);
        setValue(dot(get(state), key("q", t)), "out", t);
      });
      when(isToken == Expr(f, f.integer(0, 1)), [&] { setValue(zero(), "out", t); });
    });
    when(wideAt(f, "positions", firstToken) >= 0, [&] { storeMatrix(state, "state", first, valueDim); });
  }

  /// Computes the states before all chunks.
  void keepStates() {
    StateRows state = begin(/*hasFactor=*/false);
    if (has("parts"))
      enter(state);
    Expr chunks(f, f.scalar("chunks"));
    int64_t chunk = integerParameter(kernel, "chunk");
    loop(index(0), chunks, 1, [&](Expr number) {
      storeMatrix(state, "states", (unit * chunks + number) * (keyDim * valueDim), valueDim);
      loop(number * chunk, atMost((number + 1) * chunk, length), 1, [&](Expr t) { advance(state, t); });
    });
  }

  /// Computes what the run does to a state, or to the gradient of one.
  void computeBorders() {
    bool isBackward = has("backward");
    StateRows state = begin(!isBackward);
    loop(index(0), length, 1, [&](Expr i) {
      if (isBackward)
        goBack(state, length - 1 - i, value("v", length - 1 - i), nullptr);
      else
        advance(state, i);
    });
    storeMatrix(state, "borders", unit * (keyDim * columns), columns);
  }
};

Recurrence ofValues(KernelFunction &f, exec::KernelOp kernel) {
  return {f, kernel, integerParameter(kernel, "value_dim")};
}

} // namespace

template <> LogicalResult build<SpecialKernel::recurrence>(KernelFunction &f, exec::KernelOp kernel) {
  ofValues(f, kernel).compute();
  return success();
}

template <> LogicalResult build<SpecialKernel::recurrence_shard>(KernelFunction &f, exec::KernelOp kernel) {
  ofValues(f, kernel).compute();
  return success();
}

template <> LogicalResult build<SpecialKernel::recurrence_carried>(KernelFunction &f, exec::KernelOp kernel) {
  ofValues(f, kernel).carry();
  return success();
}

template <> LogicalResult build<SpecialKernel::chunk_states>(KernelFunction &f, exec::KernelOp kernel) {
  ofValues(f, kernel).keepStates();
  return success();
}

template <> LogicalResult build<SpecialKernel::chunk_states_shard>(KernelFunction &f, exec::KernelOp kernel) {
  ofValues(f, kernel).keepStates();
  return success();
}

template <> LogicalResult build<SpecialKernel::shard_states>(KernelFunction &f, exec::KernelOp kernel) {
  Recurrence(f, kernel, integerParameter(kernel, "columns")).computeBorders();
  return success();
}

} // namespace espalier::codegen::cuda
