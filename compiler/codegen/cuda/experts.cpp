// Chooses experts per token and moves token rows to the experts and back, like runtime/kernels/experts.cpp:
// - choose_experts: each choice is the best score after the previous choice; ties go to the lower expert;
// - give_slots: numbers the choices of an expert in a sample, in order;
// - find_rows: inverts the slots: for each slot of an expert, the choice and token that has it;
// - dispatch: each slot loads its row or is 0, so every row is written once;
// - combine: each token sums the rows of its choices in order.
#include "compiler/codegen/cuda/special_kernels.h"

#include <climits>
#include <limits>

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Loads the i32 at `index` of a buffer.
Expr integerAt(KernelFunction &f, unsigned buffer, Expr index) {
  return loadValue(elementAt(Expr(f, f.buffer(buffer)), index, f.b.getI32Type()), f.b.getI32Type());
}

void setInteger(Expr value, KernelFunction &f, unsigned buffer, Expr index) {
  storeValue(value, elementAt(Expr(f, f.buffer(buffer)), index, f.b.getI32Type()));
}

/// Returns the iteration of the extent that the thread's warp processes.
Expr warpIteration(KernelFunction &f) { return Expr(f, f.blockBegin()) + wide(Expr(f, f.warpIndex())); }

/// Iterates over the experts of a token, best first. The lanes of a warp share the experts.
class Choice {
public:
  Choice(KernelFunction &f, Type element, Expr token)
      : f(f), element(element), experts(narrow(Expr(f, f.scalar(RouteExperts)))), lane(f, f.laneIndex()),
        first(token * Expr(f, f.scalar(RouteExperts))), lastScore(Expr(f, f.number(infinity))),
        last(Expr(f, f.integer(-1))) {}

  Expr next() {
    Variable score(Expr(f, f.number(-infinity))), expert(Expr(f, f.integer(none)));
    auto take = [&](Expr isBetter, Expr otherScore, Expr other) {
      score.set(select(isBetter, otherScore, score.get()));
      expert.set(select(isBetter, other, expert.get()));
    };
    loop(lane, experts, 32, [&](Expr candidate) {
      Expr loaded(f, f.load(f.buffer(0), (first + wide(candidate)).get(), element));
      Expr given = select(loaded == loaded, loaded, -infinity); // NaN comes last
      Expr isLeft = (given < lastScore.get()) | ((given == lastScore.get()) & (candidate > last.get()));
      take(isLeft & ((given > score.get()) | (expert.get() == none)), given, candidate);
    });
    for (int mask = 16; mask > 0; mask /= 2) {
      Expr otherScore(f, f.shuffleXor(score.get().get(), mask)), other(f, f.shuffleXor(expert.get().get(), mask));
      Expr isLower = (otherScore == score.get()) & (other < expert.get());
      take((otherScore > score.get()) | isLower, otherScore, other);
    }
    lastScore.set(score.get());
    last.set(expert.get());
    return expert.get();
  }

private:
  static constexpr int64_t none = INT_MAX;
  KernelFunction &f;
  Type element;
  Expr experts, lane, first;
  Variable lastScore, last;
};

/// Code shared by find_rows, dispatch and combine.
class Moves {
public:
  Moves(KernelFunction &f, exec::KernelOp kernel)
      : f(f), hasChoice(kernel.getParameters()->contains("by_choice")),
        hasWeights(kernel.getParameters()->contains("weights")), batch(at(MoveBatch)), seq(at(MoveSeq)),
        tokens(batch * seq), hidden(at(MoveHidden)) {}

  Expr at(MoveScalar which) { return {f, f.scalar(which)}; }

  KernelFunction &f;
  const bool hasChoice, hasWeights;
  const Expr batch, seq, tokens, hidden;
};

/// Code shared by dispatch and combine: a warp loads, weighs and stores rows in pieces of `width` elements.
class Rows : public Moves {
public:
  Rows(KernelFunction &f, exec::KernelOp kernel)
      : Moves(f, kernel), from(typeParameter(kernel, "x")), to(typeParameter(kernel, "y")),
        width(static_cast<int>(integerParameter(kernel, "width"))), kernel(kernel) {}

  /// Runs `body` with the first columns of the lane's pieces.
  void forEachPiece(const std::function<void(Expr)> &body) {
    loop(Expr(f, f.laneIndex()) * width, narrow(hidden), 32 * width, body);
  }
  std::vector<Expr> load(unsigned buffer, Expr row, Expr column) {
    return loadElements(elementAt(Expr(f, f.buffer(buffer)), row * hidden + wide(column), from), from, width);
  }
  void store(const std::vector<Expr> &values, unsigned buffer, Expr row, Expr column) {
    storeElements(values, elementAt(Expr(f, f.buffer(buffer)), row * hidden + wide(column), to), to);
  }
  /// Returns the weight of a choice; 1 without weights.
  Expr weight(unsigned buffer, Expr at) {
    return hasWeights ? Expr(f, f.load(f.buffer(buffer), at.get(), typeParameter(kernel, "weights"))) : Expr(1);
  }

  const Type from, to;
  const int width;

private:
  exec::KernelOp kernel;
};

} // namespace

/// Buffers: scores, ids. Scalars: see RouteScalar. Extent: tokens, one warp each.
LogicalResult buildChooseExperts(KernelFunction &f, exec::KernelOp kernel) {
  Expr token = warpIteration(f), tokens(f, f.extent());
  when(token < tokens, [&] {
    Choice experts(f, typeParameter(kernel, "scores"), token);
    loop(Expr(f, f.integer(0, 64)), Expr(f, f.scalar(RouteChoices)), 1, [&](Expr choice) {
      Expr expert = experts.next();
      when(Expr(f, f.laneIndex()) == 0, [&] { setInteger(expert, f, 1, choice * tokens + token); });
    });
  });
  return success();
}

/// Buffers: ids, slots. Scalars: see RouteScalar. Extent: samples of all experts, one warp each.
LogicalResult buildGiveSlots(KernelFunction &f, exec::KernelOp) {
  constexpr int unrolled = 8; // number of loads in flight
  Expr batch(f, f.scalar(RouteBatch)), seq(f, f.scalar(RouteSeq)), unit = warpIteration(f), lane(f, f.laneIndex());
  when(unit < Expr(f, f.extent()), [&] {
    Expr expert = narrow(unit / batch), sample = unit % batch, capacity = narrow(Expr(f, f.scalar(RouteCapacity)));
    Expr lanesBefore = (Expr(f, f.integer(1)) << lane) - 1;
    Variable taken(Expr(f, f.integer(0)));
    loop(Expr(f, f.integer(0, 64)), Expr(f, f.scalar(RouteChoices)), 1, [&](Expr choice) {
      Expr first = (choice * batch + sample) * seq;
      loop(Expr(f, f.integer(0, 64)), seq, 32 * unrolled, [&](Expr begin) {
        std::vector<Expr> isMine;
        for (int i = 0; i < unrolled; ++i) {
          Expr position = begin + wide(lane) + 32 * i;
          isMine.push_back((integerAt(f, 0, first + atMost(position, seq - 1)) == expert) & (position < seq));
        }
        for (int i = 0; i < unrolled; ++i) {
          Expr mine(f, f.ballot(isMine[i].get()));
          Expr slot = taken.get() + Expr(f, f.countOnes((mine & lanesBefore).get()));
          when(isMine[i],
               [&] { setInteger(select(slot < capacity, slot, -1), f, 1, first + begin + wide(lane) + 32 * i); });
          taken.set(taken.get() + Expr(f, f.countOnes(mine.get())));
        }
      });
    });
  });
  return success();
}

/// Buffers: ids, slots, places (i32 [experts, batch, capacity], -1 for empty slots). Scalars: see MoveScalar. Extent:
/// samples of all experts, one block each.
LogicalResult buildFindRows(KernelFunction &f, exec::KernelOp kernel) {
  Moves moves(f, kernel);
  Expr unit(f, f.blockBegin()), expert = narrow(unit / moves.batch), sample = unit % moves.batch;
  Expr capacity = moves.at(MoveCapacity), thread = wide(Expr(f, f.threadIndex()));
  int64_t threads = f.geometry.getThreads();
  loop(thread, capacity, threads, [&](Expr slot) { setInteger(Expr(f, f.integer(-1)), f, 2, unit * capacity + slot); });
  f.barrier();
  loop(Expr(f, f.integer(0, 64)), moves.at(MoveChoices), 1, [&](Expr choice) {
    loop(thread, moves.seq, threads, [&](Expr position) {
      Expr at = (choice * moves.batch + sample) * moves.seq + position, slot = wide(integerAt(f, 1, at));
      when((integerAt(f, 0, at) == expert) & (slot >= 0) & (slot < capacity),
           [&] { setInteger(narrow(at), f, 2, unit * capacity + slot); });
    });
  });
  return success();
}

/// Buffers: places, rows of tokens, optional weights, rows of experts. Scalars: see MoveScalar. Extent: rows of
/// experts, one warp each.
LogicalResult buildDispatch(KernelFunction &f, exec::KernelOp kernel) {
  Rows rows(f, kernel);
  unsigned result = rows.hasWeights ? 3 : 2;
  Expr row = warpIteration(f);
  when(row < Expr(f, f.extent()), [&] {
    Expr place = integerAt(f, 0, row), at = wide(place);
    when(place >= 0, [&] {
      Expr token = rows.hasChoice ? at : at % rows.tokens, weight = rows.weight(2, at);
      rows.forEachPiece([&](Expr column) {
        std::vector<Expr> values = rows.load(1, token, column);
        for (Expr &value : values)
          value = value * weight;
        rows.store(values, result, row, column);
      });
    });
    when(place < 0, [&] {
      std::vector<Expr> zeros(rows.width, Expr(f, f.number(0)));
      rows.forEachPiece([&](Expr column) { rows.store(zeros, result, row, column); });
    });
  });
  return success();
}

/// Buffers: ids, slots, rows of experts, optional weights, rows of tokens. Scalars: see MoveScalar. Extent: rows of
/// tokens, one warp each.
LogicalResult buildCombine(KernelFunction &f, exec::KernelOp kernel) {
  Rows rows(f, kernel);
  Expr row = warpIteration(f), experts = rows.at(MoveExperts), capacity = rows.at(MoveCapacity);
  Expr choices = rows.hasChoice ? Expr(f, f.integer(1, 64)) : rows.at(MoveChoices);
  when(row < Expr(f, f.extent()), [&] {
    rows.forEachPiece([&](Expr column) {
      std::vector<Variable> sums;
      for (int i = 0; i < rows.width; ++i)
        sums.emplace_back(Expr(f, f.number(0)));
      loop(Expr(f, f.integer(0, 64)), choices, 1, [&](Expr choice) {
        Expr at = choice * rows.tokens + row;
        Expr expert = wide(integerAt(f, 0, at)), slot = wide(integerAt(f, 1, at));
        when((expert >= 0) & (expert < experts) & (slot >= 0) & (slot < capacity), [&] {
          Expr from = (expert * rows.batch + at / rows.seq % rows.batch) * capacity + slot, weight = rows.weight(3, at);
          std::vector<Expr> values = rows.load(2, from, column);
          for (int i = 0; i < rows.width; ++i)
            sums[i].set(sums[i].get() + values[i] * weight);
        });
      });
      std::vector<Expr> totals;
      for (const Variable &sum : sums)
        totals.push_back(sum.get());
      rows.store(totals, rows.hasWeights ? 4 : 3, row, column);
    });
  });
  return success();
}

} // namespace espalier::codegen::cuda
