// dtable[ids[token] - first row] += dout[token], in the order of tokens, by three kernels:
// - order_tokens: sorts tokens by row with a stable counting sort; each block reads all ids for its own rows;
// - sum_segments: sums runs of equal rows within segments of sorted tokens, so that a frequent token keeps many blocks
//   busy; a run within one segment is added to its row;
// - join_segments: adds the sums of runs that span several segments, in order.
#include "compiler/codegen/cuda/special_kernels.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// Builds order_tokens. `order` has -1 after the last token. `dtable` is cleared unless the call always adds.
class OrderTokens {
public:
  OrderTokens(KernelFunction &f, Destination destination, Type table)
      : f(f), destination(destination), table(table), ids(f, f.buffer("ids")), order(f, f.buffer("order")),
        lane(f, f.laneIndex()), warp(f, f.warpIndex()), thread(f, f.threadIndex()),
        rows(narrow(Expr(f, f.scalar("rows")))), tokens(narrow(Expr(f, f.scalar("tokens")))) {
    beginRow = narrow(Expr(f, f.blockBegin()));
    endRow = atMost(beginRow + rowsPerOrderBlock, rows);
    Expr perWarp = ceilDivide(tokens, warps * step) * step;
    begin = warp * perWarp;
    end = atMost(begin + perWarp, tokens);
  }

  void build() {
    if (destination == Destination::Overwrite)
      clearRows();
    if (destination == Destination::AddUnlessFirst)
      when(Expr(f, f.scalar("FIRST")) != 0, [&] { clearRows(); });
    for (int64_t i = 0; i < rowsPerOrderBlock * warps; i += warps * 32)
      storeValue(integer(0), counter(thread + i));
    f.barrier();
    count();
    f.barrier();
    makeOffsets();
    f.barrier();
    place();
    fillEnd();
  }

private:
  static constexpr int64_t warps = 8, unrolled = 8, step = 32 * unrolled;

  Expr integer(int64_t value) { return {f, f.integer(value)}; }
  Expr word(Expr place) { return loadValue(place, f.b.getI32Type()); }
  Expr counter(Expr index) { return sharedAt(f, index * 4); }
  /// Holds the number of a warp's tokens of the block's row `row`, later the position of the warp's next such token.
  Expr counter(Expr warp, Expr row) { return counter(row * warps + warp); }
  Expr total(Expr row) { return counter(row + rowsPerOrderBlock * warps); }
  /// Holds the number of tokens of rows before the block's, per warp.
  Expr before(Expr warp) { return counter(warp + rowsPerOrderBlock * (warps + 1)); }
  void syncWarp() { f.intrinsic("llvm.nvvm.bar.warp.sync", {}, f.integer(-1)); }

  void clearRows() {
    Expr hidden(f, f.scalar("hidden")), rowsOfTable(f, f.buffer("dtable"));
    loop(wide(beginRow) * hidden + wide(thread), wide(endRow) * hidden, warps * 32,
         [&](Expr i) { storeElements({Expr(f, f.number(0))}, elementAt(rowsOfTable, i, table), table); });
  }

  /// Calls `body(token, row)` for all tokens of the warp, 32 at a time; after the last token the row is -1.
  void visit(const std::function<void(Expr, Expr)> &body) {
    loop(begin, end, step, [&](Expr first) {
      std::vector<Expr> found;
      for (int64_t i = 0; i < unrolled; ++i) {
        Expr token = first + lane + 32 * i;
        Expr id = word(elementAt(ids, atMost(token, tokens - 1), f.b.getI32Type()));
        Expr row = wide(id) - Expr(f, f.scalar("FIRST_ROW"));
        Expr isHeld = (token < end) & (row >= 0) & (row < Expr(f, f.scalar("rows")));
        found.push_back(select(isHeld, narrow(row), -1));
      }
      for (int64_t i = 0; i < unrolled; ++i)
        body(first + lane + 32 * i, found[i]);
    });
  }

  Expr isMine(Expr row) { return (row >= beginRow) & (row < endRow); }

  void count() {
    Variable earlier(integer(0));
    visit([&](Expr, Expr row) {
      earlier.set(earlier.get() + Expr(f, f.countOnes(f.ballot(((row >= 0) & (row < beginRow)).get()))));
      when(isMine(row), [&] {
        Expr place = counter(warp, row - beginRow);
        f.b.create<LLVM::AtomicRMWOp>(LLVM::AtomicBinOp::add, place.get(), f.integer(1),
                                      LLVM::AtomicOrdering::monotonic);
      });
    });
    when(lane == 0, [&] { storeValue(earlier.get(), before(warp)); });
  }

  /// Turns counters into the position of a warp's first token of each row.
  void makeOffsets() {
    when(thread < rowsPerOrderBlock, [&] {
      Expr sum = integer(0);
      for (int64_t w = 0; w < warps; ++w)
        sum = sum + word(counter(integer(w), thread));
      storeValue(sum, total(thread));
    });
    f.barrier();
    when(thread < rowsPerOrderBlock, [&] {
      Variable offset(integer(0));
      for (int64_t w = 0; w < warps; ++w)
        offset.set(offset.get() + word(before(integer(w))));
      loop(integer(0), thread, 1, [&](Expr row) { offset.set(offset.get() + word(total(row))); });
      for (int64_t w = 0; w < warps; ++w) {
        Expr place = counter(integer(w), thread), count = word(place);
        storeValue(offset.get(), place);
        offset.set(offset.get() + count);
      }
    });
  }

  void place() {
    visit([&](Expr token, Expr row) {
      Expr mine(f, f.ballot(isMine(row).get()));
      when(mine != 0, [&] { placeSome(token, row, mine); });
    });
  }

  /// Places those of 32 tokens whose lanes are in `mine`. Tokens of one row keep the order of their lanes.
  void placeSome(Expr token, Expr row, Expr mine) {
    Variable left(mine), rank(integer(0)), count(integer(0));
    loopWhile([&] { return left.get() != 0; },
              [&] {
                Expr other(f, f.b.create<LLVM::CountTrailingZerosOp>(f.b.getI32Type(), left.get().get(), false));
                Expr isSame = Expr(f, f.shuffleFrom(row.get(), other.get())) == row;
                count.set(count.get() + select(isSame, integer(1), 0));
                rank.set(rank.get() + select(isSame & (other < lane), integer(1), 0));
                left.set(left.get() & (left.get() - 1));
              });
    syncWarp(); // counters of earlier tokens are written
    Variable at(integer(0));
    when(isMine(row), [&] {
      at.set(word(counter(warp, row - beginRow)) + rank.get());
      storeValue(token, elementAt(order, at.get(), f.b.getI32Type()));
    });
    syncWarp(); // all lanes have read the counter
    when(isMine(row) & (rank.get() + 1 == count.get()),
         [&] { storeValue(at.get() + 1, counter(warp, row - beginRow)); });
  }

  /// The last block writes the end of the order.
  void fillEnd() {
    f.barrier();
    when(endRow == rows, [&] {
      Expr last = word(counter(integer(warps - 1), endRow - 1 - beginRow));
      loop(last + thread, tokens, warps * 32,
           [&](Expr at) { storeValue(integer(-1), elementAt(order, at, f.b.getI32Type())); });
    });
  }

  KernelFunction &f;
  Destination destination;
  Type table; ///< element type of dtable
  Expr ids, order, lane, warp, thread, rows, tokens;
  Expr beginRow, endRow; ///< the block's rows of the table
  Expr begin, end;       ///< the warp's tokens
};

/// Code shared by sum_segments and join_segments.
class Segments {
public:
  Segments(KernelFunction &f, exec::KernelOp kernel)
      : f(f), width(static_cast<int>(integerParameter(kernel, "width"))), table(typeParameter(kernel, "dtable")),
        hidden(f, f.scalar("hidden")), tokens(narrow(Expr(f, f.scalar("tokens")))),
        segment(narrow(Expr(f, f.blockBegin()))) {
    column = (Expr(f, f.blockY()) * f.geometry.getThreads() + Expr(f, f.threadIndex())) * width;
    isColumn = wide(column) < hidden;
  }

  Expr integer(int64_t value) { return {f, f.integer(value)}; }
  /// Returns the token at position `at` of the order; -1 outside of it.
  Expr tokenAt(Expr at) {
    Expr isInside = (at >= 0) & (at < tokens);
    Expr token = loadValue(elementAt(Expr(f, f.buffer("order")), atLeast(atMost(at, tokens - 1), 0), f.b.getI32Type()),
                           f.b.getI32Type());
    return select(isInside, token, -1);
  }
  /// Returns the id of a token; -1 for none. Ids identify rows: ids of the table's rows are not negative.
  Expr idOf(Expr token) {
    Expr id = loadValue(elementAt(Expr(f, f.buffer("ids")), atLeast(token, 0), f.b.getI32Type()), f.b.getI32Type());
    return select(token >= 0, id, -1);
  }
  Expr idAt(Expr at) { return idOf(tokenAt(at)); }
  /// Returns the address of dtable's row `id` at the thread's columns.
  Expr rowOf(Expr id) {
    Expr row = wide(id) - Expr(f, f.scalar("FIRST_ROW"));
    return elementAt(Expr(f, f.buffer("dtable")), row * hidden + wide(column), table);
  }
  /// Returns the address of a partial sum of a segment: of the run that began before it (0), or begins in it (1).
  Expr partial(Expr segment, int which) {
    return elementAt(Expr(f, f.buffer("partial")), (wide(segment) * 2 + which) * hidden + wide(column),
                     f.b.getF32Type());
  }
  std::vector<Variable> zeros() {
    std::vector<Variable> sums;
    for (int i = 0; i < width; ++i)
      sums.emplace_back(Expr(f, f.number(0)));
    return sums;
  }
  static std::vector<Expr> values(const std::vector<Variable> &sums) {
    std::vector<Expr> all;
    for (const Variable &sum : sums)
      all.push_back(sum.get());
    return all;
  }
  void add(std::vector<Variable> &sums, const std::vector<Expr> &summands) {
    for (int i = 0; i < width; ++i)
      sums[i].set(sums[i].get() + summands[i]);
  }
  /// Computes row += sums.
  void addToRow(Expr place, const std::vector<Variable> &sums) {
    std::vector<Expr> row = loadElements(place, table, width);
    for (int i = 0; i < width; ++i)
      row[i] = row[i] + sums[i].get();
    storeElements(row, place, table);
  }

  KernelFunction &f;
  int width;
  Type table; ///< element type of dtable
  Expr hidden, tokens, segment, column, isColumn;
};

} // namespace

template <> LogicalResult build<SpecialKernel::order_tokens>(KernelFunction &f, exec::KernelOp kernel) {
  OrderTokens(f, destinationOf(kernel), typeParameter(kernel, "dtable")).build();
  return success();
}

template <> LogicalResult build<SpecialKernel::sum_segments>(KernelFunction &f, exec::KernelOp kernel) {
  constexpr int64_t atOnce = 8;
  Type element = typeParameter(kernel, "dout");
  Segments s(f, kernel);
  Expr first = s.segment * tokensPerSegment;
  std::vector<Variable> sums = s.zeros();
  Variable id(s.idAt(first)), isWhole(s.idAt(first - 1) != id.get()); // whether the run began in this segment
  loop(s.integer(0), s.integer(tokensPerSegment), atOnce, [&](Expr offset) {
    std::vector<Expr> ids, isToken;
    std::vector<std::vector<Variable>> rows;
    for (int64_t i = 0; i <= atOnce; ++i) {
      Expr token = s.tokenAt(first + offset + i);
      ids.push_back(s.idOf(token));
      if (i == atOnce)
        break;
      isToken.push_back(token >= 0);
      rows.push_back(s.zeros());
      when(isToken[i] & s.isColumn, [&] {
        Expr place = elementAt(Expr(f, f.buffer("dout")), wide(token) * s.hidden + wide(s.column), element);
        s.add(rows[i], loadElements(place, element, s.width));
      });
    }
    for (int64_t i = 0; i < atOnce; ++i) {
      s.add(sums, s.values(rows[i]));
      id.set(ids[i]);
      when(isToken[i] & (ids[i + 1] != ids[i]), [&] {
        when(s.isColumn & isWhole.get(), [&] { s.addToRow(s.rowOf(ids[i]), sums); });
        when(s.isColumn & (isWhole.get() == 0),
             [&] { storeElements(s.values(sums), s.partial(s.segment, 0), f.b.getF32Type()); });
        for (Variable &sum : sums)
          sum.set(0.0);
        isWhole.set(Expr(1));
      });
    }
  });
  // The rest of the run continues in the next segment.
  Expr goesOn = (id.get() >= 0) & (s.idAt(first + tokensPerSegment) == id.get()) & s.isColumn;
  when(goesOn & isWhole.get(), [&] { storeElements(s.values(sums), s.partial(s.segment, 1), f.b.getF32Type()); });
  when(goesOn & (isWhole.get() == 0),
       [&] { storeElements(s.values(sums), s.partial(s.segment, 0), f.b.getF32Type()); });
  return success();
}

template <> LogicalResult build<SpecialKernel::join_segments>(KernelFunction &f, exec::KernelOp kernel) {
  Segments s(f, kernel);
  Expr first = s.segment * tokensPerSegment, id = s.idAt(first + (tokensPerSegment - 1));
  Expr beginsHere = (s.idAt(first) != id) | (s.idAt(first - 1) != id);
  Expr goesOn = s.idAt(first + tokensPerSegment) == id;
  when((id >= 0) & beginsHere & goesOn & s.isColumn, [&] {
    std::vector<Variable> sums = s.zeros();
    s.add(sums, loadElements(s.partial(s.segment, 1), f.b.getF32Type(), s.width));
    Variable next(s.segment + 1), isOn(Expr(f, f.integer(1, 1)));
    loopWhile([&] { return isOn.get(); },
              [&] {
                s.add(sums, loadElements(s.partial(next.get(), 0), f.b.getF32Type(), s.width));
                next.set(next.get() + 1);
                Expr begin = next.get() * tokensPerSegment;
                isOn.set((s.idAt(begin - 1) == id) & (s.idAt(begin) == id));
              });
    s.addToRow(s.rowOf(id), sums);
  });
  return success();
}

} // namespace espalier::codegen::cuda
