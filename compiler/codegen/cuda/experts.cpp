// Chooses experts per token and moves token rows to the experts and back, like runtime/kernels/experts.cpp:
// - choose_experts: each choice is the best score after the previous choice; ties go to the lower expert;
// - give_slots: numbers the choices of an expert in a sample, in order;
// - find_rows: inverts the slots: for each slot of an expert, the choice and token that has it;
// - dispatch: each slot loads its row or is 0, so every row is written once;
// - combine: each token sums the rows of its choices in order.
#include "compiler/codegen/cuda/special_kernels.h"

#include "llvm/Support/MathExtras.h"

#include <climits>
#include <limits>

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Loads the i32 at `index` of an operand.
Expr integerAt(KernelFunction &f, StringRef operand, Expr index) {
  return loadValue(elementAt(Expr(f, f.buffer(operand)), index, f.b.getI32Type()), f.b.getI32Type());
}

void setInteger(Expr value, KernelFunction &f, StringRef operand, Expr index) {
  storeValue(value, elementAt(Expr(f, f.buffer(operand)), index, f.b.getI32Type()));
}

/// Returns the iteration of the extent that the thread's warp processes.
Expr warpIteration(KernelFunction &f) { return Expr(f, f.blockBegin()) + wide(Expr(f, f.warpIndex())); }

/// Returns the groups of experts that a token keeps, one bit per group: those with the highest sums of their two
/// highest scores; ties go to the lower group. Lane g computes the sum of group g. `first` is the index of the token's
/// first score.
Expr keptGroups(KernelFunction &f, Type element, Expr first, int64_t groups, int64_t kept) {
  Expr lane(f, f.laneIndex()), size = narrow(Expr(f, f.scalar("experts"))) / groups;
  Expr own = select(lane < groups, lane, Expr(f, f.integer(groups - 1))) * size;
  Variable best(Expr(f, f.number(-infinity))), second(Expr(f, f.number(-infinity)));
  loop(Expr(f, f.integer(0)), size, 1, [&](Expr expert) {
    Expr loaded(f, f.load(f.buffer("scores"), (first + wide(own + expert)).get(), element));
    Expr given = select(loaded == loaded, loaded, -infinity);
    Expr lower = select(given < best.get(), given, best.get());
    second.set(select(lower > second.get(), lower, second.get()));
    best.set(select(given > best.get(), given, best.get()));
  });
  Expr sum = select(size > 1, best.get() + second.get(), best.get());
  Expr better(f, f.integer(0));
  for (int mask = 1; mask < static_cast<int>(llvm::PowerOf2Ceil(static_cast<uint64_t>(groups))); ++mask) {
    Expr otherSum(f, f.shuffleXor(sum.get(), mask)), other = lane ^ mask;
    Expr isBetter = (otherSum > sum) | ((otherSum == sum) & (other < lane));
    better = better + select(isBetter & (other < groups), Expr(f, f.integer(1)), Expr(f, f.integer(0)));
  }
  return {f, f.ballot(((better < kept) & (lane < groups)).get())};
}

/// Iterates over the experts of a token, best first. The lanes of a warp share the experts.
class Choice {
public:
  /// The token chooses among `kept` of `groups` groups of experts.
  Choice(KernelFunction &f, Type element, Expr token, int64_t groups, int64_t kept)
      : f(f), groups(groups), element(element), experts(narrow(Expr(f, f.scalar("experts")))), lane(f, f.laneIndex()),
        first(token * Expr(f, f.scalar("experts"))), lastScore(Expr(f, f.number(infinity))),
        last(Expr(f, f.integer(-1))) {
    if (groups > 1)
      open = keptGroups(f, element, first, groups, kept);
  }

  Expr next() {
    Variable score(Expr(f, f.number(-infinity))), expert(Expr(f, f.integer(none)));
    auto take = [&](Expr isBetter, Expr otherScore, Expr other) {
      score.set(select(isBetter, otherScore, score.get()));
      expert.set(select(isBetter, other, expert.get()));
    };
    loop(lane, experts, 32, [&](Expr candidate) {
      Expr loaded(f, f.load(f.buffer("scores"), (first + wide(candidate)).get(), element));
      Expr given = select(loaded == loaded, loaded, -infinity); // NaN comes last
      Expr isLeft = (given < lastScore.get()) | ((given == lastScore.get()) & (candidate > last.get()));
      if (groups > 1)
        isLeft = isLeft & (((open >> (candidate / (experts / groups))) & 1) == 1);
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
  int64_t groups;
  Type element;
  Expr experts, lane, first, open;
  Variable lastScore, last;
};

/// Code shared by find_rows, dispatch and combine.
class Moves {
public:
  Moves(KernelFunction &f, exec::KernelOp kernel)
      : f(f), hasChoice(kernel.getParameters()->contains("by_choice")),
        hasWeights(kernel.getParameters()->contains("weights")), batch(at("batch")), seq(at("seq")),
        tokens(batch * seq), hidden(at("hidden")) {}

  Expr at(StringRef size) { return {f, f.scalar(size)}; }

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
  std::vector<Expr> load(Expr row, Expr column) {
    return loadElements(elementAt(Expr(f, f.buffer("x")), row * hidden + wide(column), from), from, width);
  }
  void store(const std::vector<Expr> &values, Expr row, Expr column) {
    storeElements(values, elementAt(Expr(f, f.buffer("y")), row * hidden + wide(column), to), to);
  }
  /// Returns the weight of a choice; 1 without weights.
  Expr weight(Expr at) {
    return hasWeights ? Expr(f, f.load(f.buffer("weights"), at.get(), typeParameter(kernel, "weights"))) : Expr(1);
  }

  const Type from, to;
  const int width;

private:
  exec::KernelOp kernel;
};

} // namespace

/// One warp per token.
template <> LogicalResult build<SpecialKernel::choose_experts>(KernelFunction &f, exec::KernelOp kernel) {
  Expr token = warpIteration(f), tokens(f, f.extent());
  when(token < tokens, [&] {
    Choice experts(f, typeParameter(kernel, "scores"), token, integerParameter(kernel, "groups", 1),
                   integerParameter(kernel, "kept_groups", 1));
    loop(Expr(f, f.integer(0, 64)), Expr(f, f.scalar("choices")), 1, [&](Expr choice) {
      Expr expert = experts.next();
      when(Expr(f, f.laneIndex()) == 0, [&] { setInteger(expert, f, "ids", choice * tokens + token); });
    });
  });
  return success();
}

/// One warp per expert and sample.
template <> LogicalResult build<SpecialKernel::give_slots>(KernelFunction &f, exec::KernelOp) {
  constexpr int unrolled = 8; // number of loads in flight
  Expr batch(f, f.scalar("batch")), seq(f, f.scalar("seq")), unit = warpIteration(f), lane(f, f.laneIndex());
  when(unit < Expr(f, f.extent()), [&] {
    Expr expert = narrow(unit / batch), sample = unit % batch, capacity = narrow(Expr(f, f.scalar("capacity")));
    Expr lanesBefore = (Expr(f, f.integer(1)) << lane) - 1;
    Variable taken(Expr(f, f.integer(0)));
    loop(Expr(f, f.integer(0, 64)), Expr(f, f.scalar("choices")), 1, [&](Expr choice) {
      Expr first = (choice * batch + sample) * seq;
      loop(Expr(f, f.integer(0, 64)), seq, 32 * unrolled, [&](Expr begin) {
        std::vector<Expr> isMine;
        for (int i = 0; i < unrolled; ++i) {
          Expr position = begin + wide(lane) + 32 * i;
          isMine.push_back((integerAt(f, "ids", first + atMost(position, seq - 1)) == expert) & (position < seq));
        }
        for (int i = 0; i < unrolled; ++i) {
          Expr mine(f, f.ballot(isMine[i].get()));
          Expr slot = taken.get() + Expr(f, f.countOnes((mine & lanesBefore).get()));
          when(isMine[i],
               [&] { setInteger(select(slot < capacity, slot, -1), f, "slots", first + begin + wide(lane) + 32 * i); });
          taken.set(taken.get() + Expr(f, f.countOnes(mine.get())));
        }
      });
    });
  });
  return success();
}

/// `places` has -1 for empty slots. One block per expert and sample.
template <> LogicalResult build<SpecialKernel::find_rows>(KernelFunction &f, exec::KernelOp kernel) {
  Moves moves(f, kernel);
  Expr unit(f, f.blockBegin()), expert = narrow(unit / moves.batch), sample = unit % moves.batch;
  Expr capacity = moves.at("capacity"), thread = wide(Expr(f, f.threadIndex()));
  int64_t threads = f.geometry.getThreads();
  loop(thread, capacity, threads,
       [&](Expr slot) { setInteger(Expr(f, f.integer(-1)), f, "places", unit * capacity + slot); });
  f.barrier();
  loop(Expr(f, f.integer(0, 64)), moves.at("choices"), 1, [&](Expr choice) {
    loop(thread, moves.seq, threads, [&](Expr position) {
      Expr at = (choice * moves.batch + sample) * moves.seq + position, slot = wide(integerAt(f, "slots", at));
      when((integerAt(f, "ids", at) == expert) & (slot >= 0) & (slot < capacity),
           [&] { setInteger(narrow(at), f, "places", unit * capacity + slot); });
    });
  });
  return success();
}

/// One warp per row of the experts.
template <> LogicalResult build<SpecialKernel::dispatch>(KernelFunction &f, exec::KernelOp kernel) {
  Rows rows(f, kernel);
  Expr row = warpIteration(f);
  when(row < Expr(f, f.extent()), [&] {
    Expr place = integerAt(f, "places", row), at = wide(place);
    when(place >= 0, [&] {
      Expr token = rows.hasChoice ? at : at % rows.tokens, weight = rows.weight(at);
      rows.forEachPiece([&](Expr column) {
        std::vector<Expr> values = rows.load(token, column);
        for (Expr &value : values)
          value = value * weight;
        rows.store(values, row, column);
      });
    });
    when(place < 0, [&] {
      std::vector<Expr> zeros(rows.width, Expr(f, f.number(0)));
      rows.forEachPiece([&](Expr column) { rows.store(zeros, row, column); });
    });
  });
  return success();
}

/// One warp per row of the tokens.
template <> LogicalResult build<SpecialKernel::combine>(KernelFunction &f, exec::KernelOp kernel) {
  Rows rows(f, kernel);
  Expr row = warpIteration(f), experts = rows.at("experts"), capacity = rows.at("capacity");
  Expr choices = rows.hasChoice ? Expr(f, f.integer(1, 64)) : rows.at("choices");
  when(row < Expr(f, f.extent()), [&] {
    rows.forEachPiece([&](Expr column) {
      std::vector<Variable> sums;
      for (int i = 0; i < rows.width; ++i)
        sums.emplace_back(Expr(f, f.number(0)));
      loop(Expr(f, f.integer(0, 64)), choices, 1, [&](Expr choice) {
        Expr at = choice * rows.tokens + row;
        Expr expert = wide(integerAt(f, "ids", at)), slot = wide(integerAt(f, "slots", at));
        when((expert >= 0) & (expert < experts) & (slot >= 0) & (slot < capacity), [&] {
          Expr from = (expert * rows.batch + at / rows.seq % rows.batch) * capacity + slot, weight = rows.weight(at);
          std::vector<Expr> values = rows.load(from, column);
          for (int i = 0; i < rows.width; ++i)
            sums[i].set(sums[i].get() + values[i] * weight);
        });
      });
      std::vector<Expr> totals;
      for (const Variable &sum : sums)
        totals.push_back(sum.get());
      rows.store(totals, row, column);
    });
  });
  return success();
}

} // namespace espalier::codegen::cuda
