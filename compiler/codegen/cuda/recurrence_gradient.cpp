// The derivative of a recurrence. A block has some columns of one head of one run, and goes over its chunks from the
// last to the first, three times over the positions of each chunk:
//   forward:  e_t, from the state S before the chunk
//   backward: G_t = G + q_t dout_t^T, du_t = G_t^T k_t, dv_t = beta_t du_t, G = exp(decay_t) (G_t - k_t dv_t^T)
//   forward:  dq_t = S_t dout_t, and dk_t = G_t u_t - S'_t dv_t, of which the backward pass has stored the first term
// d_t, the gradient of each column's decay, is the sum over a row of G * S. It follows from that at the chunk's border
// by d_{t+1} = d_t - q_t dq_t + k_t (G_t u_t + S'_t dv_t). Sums over the columns of several blocks, and over the heads
// of a group, are those of join_gradients.
#include "compiler/codegen/cuda/head_state.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

class RecurrenceGradient : HeadState {
public:
  RecurrenceGradient(KernelFunction &f, exec::KernelOp kernel)
      : HeadState(f, kernel, integerParameter(kernel, "value_dim")), chunk(integerParameter(kernel, "chunk")),
        warps(f.geometry.getThreads() / 32), thread(f, f.threadIndex()), warp(f, f.warpIndex()), lane(f, f.laneIndex()),
        isRowThread(thread < layout.padded()), decay(zero()) {}

  void build() {
    StateRows gradient = begin(/*hasFactor=*/false), state = begin(/*hasFactor=*/false);
    if (has("parts"))
      loop(index(0), count - 1 - ownRun, 1, [&](Expr i) { pass(gradient, count - 1 - i, /*isBackward=*/true); });
    Expr chunks(f, f.scalar("chunks"));
    loop(index(0), chunks, 1, [&](Expr i) {
      Expr number = chunks - 1 - i, first = number * chunk, end = atMost(first + chunk, length);
      Expr border = (unit * chunks + number) * (keyDim * valueDim);
      enterChunk(state, border);
      loop(first, end, 1, [&](Expr t) { storeValue(advance(state, t), errorAt(t - first)); });
      loop(first, end, 1, [&](Expr later) { differentiateState(gradient, first + end - 1 - later, first); });
      enterChunk(state, border);
      beginDecay(state, gradient);
      loop(first, end, 1, [&](Expr t) { differentiateKeys(state, t, first); });
      if (!isByColumn)
        storeDecays(first, end);
    });
  }

private:
  // Floats of shared memory: e and dv of the chunk, terms of the warps in two slots, sums of the decay's gradient.
  int64_t columnsPerBlock() const { return f.geometry.getColumnsPerBlock(); }
  int64_t firstSlot() const { return 2 * chunk * columnsPerBlock(); }
  int64_t firstBeta() const { return firstSlot() + 2 * warps * layout.padded(); }
  int64_t firstDecay() const { return firstBeta() + warps; }
  Expr shared(Expr offset) const { return sharedAt(f, offset * 4); }
  /// All lanes of a column store the same number here, so each reads what it stored itself.
  Expr errorAt(Expr row) const { return shared(narrow(row) * columnsPerBlock() + thread / layout.lanes); }
  Expr valueGradientAt(Expr row) const {
    return shared(narrow(row) * columnsPerBlock() + thread / layout.lanes + chunk * columnsPerBlock());
  }
  Expr load(Expr place) const { return loadValue(place, f32); }

  void enterChunk(StateRows &state, Expr border) {
    std::vector<Expr> before = loadMatrix("states", border, valueDim);
    for (size_t i = 0; i < before.size(); ++i)
      state[i].set(before[i]);
  }

  /// Sums the rows of a warp over its columns, and stores the sums to a slot. Lanes exchange halves, so that each ends
  /// with the sums of different rows.
  void storeRowSums(std::vector<Expr> rows, int64_t slot) {
    Expr row = firstRow;
    for (int64_t mask = 16; mask >= layout.lanes; mask /= 2) {
      size_t half = rows.size() / 2;
      Expr isUpper = (lane & mask) != 0;
      for (size_t i = 0; i < half; ++i) {
        Expr sent = select(isUpper, rows[i], rows[i + half]), kept = select(isUpper, rows[i + half], rows[i]);
        rows[i] = kept + Expr(f, f.shuffleXor(sent.get(), static_cast<int>(mask)));
      }
      rows.resize(half);
      row = row + select(isUpper, Expr(f, f.integer(static_cast<int64_t>(half))), 0);
    }
    for (size_t i = 0; i < rows.size(); ++i)
      storeValue(rows[i], shared(warp * layout.padded() + row +
                                 (firstSlot() + slot * warps * layout.padded() + static_cast<int64_t>(i))));
  }
  /// Returns the sum over the warps for the row of the thread.
  Expr rowSum(int64_t slot) const {
    Expr sum = zero();
    for (int64_t i = 0; i < warps; ++i)
      sum = sum + load(shared(thread + (firstSlot() + (slot * warps + i) * layout.padded())));
    return sum;
  }

  /// Returns the index of the block's numbers at position `t` in what join_gradients sums.
  Expr partAt(Expr t) const {
    Expr tokens = Expr(f, f.scalar("batch")) * Expr(f, f.scalar("seq"));
    return (wide(Expr(f, f.blockY())) * tokens + firstToken + t) * allHeads + head;
  }
  Expr partOfRow(StringRef operand, Expr t) const {
    return elementAt(buffer(operand), partAt(t) * keyDim + wide(thread), f32);
  }
  void whenRow(const std::function<void()> &body) const { when(thread < keyDim, body); }

  void differentiateState(StateRows &gradient, Expr t, Expr first) {
    Expr e = load(errorAt(t - first)), beta = number("beta", t);
    goBack(gradient, t, value("dout", t), [&](const std::vector<Expr> &after, Expr du) {
      std::vector<Expr> ofKey;
      for (Expr row : after)
        ofKey.push_back(row * (beta * e));
      storeRowSums(ofKey, 0);
      Expr ofBeta = du * e;
      for (int64_t mask = 16; mask >= layout.lanes; mask /= 2)
        ofBeta = ofBeta + Expr(f, f.shuffleXor(ofBeta.get(), static_cast<int>(mask)));
      storeValue(ofBeta, shared(warp + firstBeta())); // all lanes store the same number
      storeValue(beta * du, valueGradientAt(t - first));
      setValue(beta * du, "dv", t);
    });
    f.barrier();
    whenRow([&] { storeValue(rowSum(0), partOfRow("dk_parts", t)); });
    when(warp == 0, [&] { // all lanes store the same number
      Expr sum = zero();
      for (int64_t i = 0; i < warps; ++i)
        sum = sum + load(shared(Expr(f, f.integer(firstBeta() + i))));
      storeValue(sum, elementAt(buffer("dbeta_parts"), partAt(t), f32));
    });
    f.barrier();
  }

  void beginDecay(const StateRows &state, const StateRows &gradient) {
    std::vector<Expr> products;
    for (size_t i = 0; i < state.size(); ++i)
      products.push_back(state[i].get() * gradient[i].get());
    storeRowSums(products, 0);
    f.barrier();
    when(isRowThread, [&] { decay.set(rowSum(0)); });
    f.barrier();
  }

  void differentiateKeys(StateRows &state, Expr t, Expr first) {
    std::vector<Expr> k = key("k", t), fade = fades(t), ofQuery, ofKey;
    Expr u = number("beta", t) * load(errorAt(t - first)), dv = load(valueGradientAt(t - first));
    Expr dout = value("dout", t);
    for (size_t i = 0; i < k.size(); ++i) {
      Expr faded = state[i].get() * fade[i], after = faded + k[i] * u;
      ofKey.push_back(faded * dv);
      ofQuery.push_back(after * dout);
      state[i].set(after);
    }
    storeRowSums(ofQuery, 0);
    if (hasDelta)
      storeRowSums(ofKey, 1);
    f.barrier();
    when(isRowThread, [&] { differentiateRow(t, first); });
    f.barrier();
  }

  /// Stores the gradients of the thread's row of a key.
  void differentiateRow(Expr t, Expr first) {
    Expr dq = rowSum(0), ofFaded = hasDelta ? rowSum(1) : zero(), own = decay.get();
    if (has("visible_from"))
      own = select(isReset(t), 0, own);
    decay.set(own);
    whenRow([&] {
      auto loadKey = [&](StringRef operand) {
        Expr row = (firstToken + t) * heads + head / group;
        return loadElements(elementAt(buffer(operand), row * keyDim + wide(thread), element), element, 1).front();
      };
      Expr ofState = load(partOfRow("dk_parts", t));
      storeValue(dq, partOfRow("dq_parts", t));
      storeValue(ofState - ofFaded, partOfRow("dk_parts", t));
      if (isByColumn)
        storeValue(own, partOfRow("ddecay_parts", t));
      decay.set(own - loadKey("q") * dq + loadKey("k") * (ofState + ofFaded));
    });
    if (isByColumn)
      return;
    Expr ofWarp(f, f.reduceWarp(own.get(), Reduction::Add));
    storeValue(ofWarp, shared(narrow(t - first) * (layout.padded() / 32) + warp + firstDecay()));
  }

  /// Sums the gradients of the chunk's decays over the warps of rows.
  void storeDecays(Expr first, Expr end) {
    for (int64_t row = 0; row < chunk; row += f.geometry.getThreads()) {
      Expr at = atMost(thread + row, narrow(end - first) - 1),
           sum = zero(); // threads behind the last position repeat it
      for (int64_t i = 0; i < layout.padded() / 32; ++i)
        sum = sum + load(shared(at * (layout.padded() / 32) + (firstDecay() + i)));
      storeValue(sum, elementAt(buffer("ddecay_parts"), partAt(first + wide(at)), f32));
    }
    f.barrier();
  }

  const int64_t chunk, warps;
  const Expr thread, warp, lane, isRowThread;
  Variable decay; ///< the gradient of the decay of the thread's row
};

} // namespace

int64_t recurrenceGradientSharedBytes(int64_t keyDim, int64_t chunk, int64_t threads) {
  StateLayout layout(keyDim);
  int64_t warps = threads / 32, columns = warps * layout.columnsPerWarp();
  return 4 * (2 * chunk * columns + 2 * warps * layout.padded() + warps + chunk * layout.padded() / 32);
}

template <> LogicalResult build<SpecialKernel::recurrence_gradient>(KernelFunction &f, exec::KernelOp kernel) {
  RecurrenceGradient(f, kernel).build();
  return success();
}

template <> LogicalResult build<SpecialKernel::recurrence_gradient_shard>(KernelFunction &f, exec::KernelOp kernel) {
  RecurrenceGradient(f, kernel).build();
  return success();
}

/// Sums over the blocks of columns, and dq and dk over the heads of a group.
static LogicalResult joinGradients(KernelFunction &f, exec::KernelOp kernel) {
  Type f32 = f.b.getF32Type(), element = typeParameter(kernel, "type");
  int64_t keyDim = integerParameter(kernel, "key_dim"), threads = f.geometry.getThreads();
  auto at = [&](StringRef size) { return Expr(f, f.scalar(size)); };
  Expr begin(f, f.blockBegin()), rows = Expr(f, f.blockEnd()) - begin, thread = wide(Expr(f, f.threadIndex()));
  Expr group = at("group"), allRows = at("batch") * at("seq") * at("heads"), none(f, f.integer(0, 64));
  /// Joins rows of `columns` numbers, each the sum of `heads` rows and of all tiles.
  auto join = [&](StringRef parts, StringRef result, Type type, Expr perRow, int64_t columns, Expr heads) {
    loop(thread, rows * perRow * columns, threads, [&](Expr i) {
      Expr row = begin * perRow + i / columns, column = i % columns;
      Variable sum(Expr(f, f.number(0)));
      loop(none, heads, 1, [&](Expr head) {
        loop(none, at("tiles"), 1, [&](Expr tile) {
          Expr place = ((tile * allRows * group) + row * heads + head) * columns + column;
          sum.set(sum.get() + loadValue(elementAt(Expr(f, f.buffer(parts)), place, f32), f32));
        });
      });
      storeElements({sum.get()}, elementAt(Expr(f, f.buffer(result)), row * columns + column, type), type);
    });
  };
  Expr one(f, f.integer(1, 64));
  join("dq_parts", "dq", element, one, keyDim, group);
  join("dk_parts", "dk", element, one, keyDim, group);
  join("ddecay_parts", "ddecay", f32, group, kernel.getParameters()->contains("by_column") ? keyDim : 1, one);
  join("dbeta_parts", "dbeta", f32, group, 1, one);
  return success();
}

template <> LogicalResult build<SpecialKernel::join_gradients>(KernelFunction &f, exec::KernelOp kernel) {
  return joinGradients(f, kernel);
}

template <> LogicalResult build<SpecialKernel::join_gradients_shard>(KernelFunction &f, exec::KernelOp kernel) {
  return joinGradients(f, kernel);
}

} // namespace espalier::codegen::cuda
