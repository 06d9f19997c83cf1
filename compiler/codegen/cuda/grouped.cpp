// Products of rows with the matrices of their experts, like runtime/kernels/grouped.cpp. A block computes a tile of the
// result. It copies pieces of both operands along the summed dimension to shared memory and multiplies them there. A
// tile of rows is multiplied by the matrix of each expert that owns some of its rows, and the other rows count as
// zeros.
#include "compiler/codegen/cuda/grouped.h"

#include "compiler/codegen/cuda/special_kernels.h"

#include <climits>

using namespace mlir;

namespace espalier::codegen::cuda {

TileSizes groupedTiles(Type first, Type second) {
  Type element = first == second ? first : Float32Type::get(first.getContext());
  return {.element = element,
          .rows = groupedSide,
          .columns = groupedSide,
          .headDim = groupedSide,
          .valueDim = groupedSide,
          .warps = element.isF32() ? 8 : 4,
          .stages = 1};
}

int64_t groupedSharedBytes(const TileSizes &sizes) { return groupedSide * (2 * sizes.ofKeys().pitch() + 4); }

namespace {

class Grouped {
public:
  /// `second` is the operand that is multiplied by rows of x; `columns` is the size of a row of the result.
  Grouped(KernelFunction &f, exec::KernelOp kernel, StringRef second, StringRef result, StringRef columns)
      : f(f), kernel(kernel), firstType(typeParameter(kernel, "x")), secondType(typeParameter(kernel, second)),
        resultType(typeParameter(kernel, result)), first(f, f.buffer("x")), second(f, f.buffer(second)),
        result(f, f.buffer(result)), sizes(groupedTiles(firstType, secondType)), right(groupedSide * pitch()),
        ownersAt(2 * groupedSide * pitch()), tiles(Tiles::make(f, sizes, integer(0))), thread(f, f.threadIndex()),
        capacity(f, f.scalar("capacity")), batch(f, f.scalar("batch")),
        each(Expr(f, f.scalar("experts")) / Expr(f, f.scalar("holders"))), columns(f, f.scalar(columns)),
        firstColumn(wide(Expr(f, f.blockY())) * groupedSide) {
    for (size_t slot = 0; slot < tiles->rows.size() * tiles->columns.size(); ++slot)
      sums.emplace_back(Expr(f, f.number(0)));
  }

  /// Multiplies rows by matrices [depth, columns], or by their transposes.
  void buildRows(StringRef depthName, bool isTransposed) {
    Expr unit = Expr(f, f.blockBegin()) / groupedSide, perSample = ceilDivide(capacity, groupedSide);
    Expr sample = unit / perSample, begin = unit % perSample * groupedSide, depth(f, f.scalar(depthName));
    Expr firstRow = sample * capacity + begin, count = narrow(atMost(capacity - begin, groupedSide));
    loadOwners(firstRow, count);
    Variable expert(nextOwner(Expr(f, f.integer(-1))));
    loopWhile([&] { return expert.get() < INT_MAX; },
              [&] {
                Expr matrix = (sample / batch * each + wide(expert.get())) * depth * columns;
                loop(Expr(f, f.integer(0, 64)), depth, groupedSide, [&](Expr from) {
                  auto left = [&](Expr row, Expr d) {
                    Expr at = from + wide(d), isThere = (ownerOf(row) == expert.get()) & (at < depth);
                    return loadFirst(isThere, (firstRow + wide(row)) * depth + at);
                  };
                  auto ofMatrix = [&](Expr column, Expr d) {
                    Expr row = from + wide(d), at = firstColumn + wide(column);
                    Expr place = isTransposed ? at * depth + row : row * columns + at;
                    return loadSecond((row < depth) & (at < columns), matrix + place);
                  };
                  add(left, /*alongDepth=*/true, ofMatrix, /*alongDepth=*/isTransposed);
                });
                expert.set(nextOwner(expert.get()));
              });
    store([&](Expr row) { return row < count; }, [&](Expr row) { return (firstRow + wide(row)) * columns; });
  }

  /// Sums the products of the columns of x with rows of dy over the rows of an expert.
  void buildGradient() {
    Expr unit = Expr(f, f.blockBegin()) / groupedSide, k(f, f.scalar("k")), perExpert = ceilDivide(k, groupedSide);
    Expr expert = unit / perExpert, begin = unit % perExpert * groupedSide, owner = narrow(expert % each);
    Expr rows = batch * capacity, ofHolder = expert / each * rows;
    loop(Expr(f, f.integer(0, 64)), rows, groupedSide, [&](Expr from) {
      loadOwners(ofHolder + from, narrow(atMost(rows - from, groupedSide)));
      when(nextOwner(owner - 1) == owner, [&] {
        auto left = [&](Expr row, Expr d) {
          Expr at = begin + wide(row), isThere = (ownerOf(d) == owner) & (at < k);
          return loadFirst(isThere, (ofHolder + from + wide(d)) * k + at);
        };
        auto gradient = [&](Expr column, Expr d) {
          Expr at = firstColumn + wide(column), isThere = (ownerOf(d) == owner) & (at < columns);
          return loadSecond(isThere, (ofHolder + from + wide(d)) * columns + at);
        };
        add(left, /*alongDepth=*/false, gradient, /*alongDepth=*/false);
      });
    });
    store([&](Expr row) { return begin + wide(row) < k; },
          [&](Expr row) { return (expert * k + begin + wide(row)) * columns; });
  }

private:
  using Load = llvm::function_ref<Expr(Expr row, Expr depth)>;

  Expr integer(int64_t value) { return {f, f.integer(value)}; }
  int64_t pitch() const { return sizes.ofKeys().pitch(); }

  /// Loads an element, or gives 0; what is in memory then does not matter.
  Expr loadFrom(Expr base, Type type, Expr isThere, Expr index) {
    Expr safe = select(isThere, index, Expr(f, f.integer(0, 64)));
    return select(isThere, Expr(f, f.load(base.get(), safe.get(), type)), 0);
  }
  Expr loadFirst(Expr isThere, Expr index) { return loadFrom(first, firstType, isThere, index); }
  Expr loadSecond(Expr isThere, Expr index) { return loadFrom(second, secondType, isThere, index); }

  /// Copies the owners of `count` rows to shared memory, and -1 for the rows after them.
  void loadOwners(Expr firstRow, Expr count) {
    f.barrier(); // all threads have read the owners before
    when(thread < groupedSide, [&] {
      Expr at = firstRow + wide(atMost(thread, count - 1));
      Expr owner = loadValue(elementAt(Expr(f, f.buffer("owners")), at, f.b.getI32Type()), f.b.getI32Type());
      Expr isOwner = (thread < count) & (wide(owner) < each);
      storeValue(select(isOwner, owner, -1), sharedAt(f, thread * 4 + ownersAt));
    });
    f.barrier();
  }

  Expr ownerOf(Expr row) { return loadValue(sharedAt(f, row * 4 + ownersAt), f.b.getI32Type()); }

  /// Returns the lowest owner of the rows above `last`, the same for all threads, or INT_MAX.
  Expr nextOwner(Expr last) {
    Variable next(integer(INT_MAX));
    loop(integer(0), integer(groupedSide), 1, [&](Expr row) {
      Expr owner = ownerOf(row);
      next.set(select((owner > last) & (owner < next.get()), owner, next.get()));
    });
    return next.get();
  }

  /// Fills a tile [row, depth]. Neighbouring threads load neighbours along the depth, or along the rows.
  void fill(int64_t to, bool alongDepth, Load load) {
    constexpr int64_t atOnce = 8;
    int64_t threads = sizes.threads();
    loop(thread, integer(groupedSide * groupedSide), threads * atOnce, [&](Expr begin) {
      std::vector<Expr> values, places;
      for (int64_t i = 0; i < atOnce; ++i) {
        Expr at = begin + i * threads, inner = at % groupedSide, outer = at / groupedSide;
        Expr row = alongDepth ? outer : inner, depth = alongDepth ? inner : outer;
        values.push_back(load(row, depth));
        places.push_back(row * pitch() + depth * sizes.elementBytes() + to);
      }
      for (int64_t i = 0; i < atOnce; ++i)
        storeElements({values[static_cast<size_t>(i)]}, sharedAt(f, places[static_cast<size_t>(i)]), sizes.element);
    });
  }

  /// Adds the product of two tiles to the sums.
  void add(Load left, bool leftAlongDepth, Load ofSecond, bool secondAlongDepth) {
    f.barrier(); // all threads have read the tiles before
    fill(0, leftAlongDepth, left);
    fill(right, secondAlongDepth, ofSecond);
    f.barrier();
    Grid product = tiles->multiplyAcross(integer(0), integer(right), sizes.ofKeys());
    for (size_t row = 0; row < product.size(); ++row)
      for (size_t column = 0; column < product[row].size(); ++column) {
        Variable &sum = sums[row * tiles->columns.size() + column];
        sum.set(sum.get() + product[row][column]);
      }
  }

  /// Stores the sums, or adds them to the result as the kernel's destination says.
  void store(llvm::function_ref<Expr(Expr)> isRow, llvm::function_ref<Expr(Expr)> beginOfRow) {
    Destination destination = destinationOf(kernel);
    for (size_t row = 0; row < tiles->rows.size(); ++row)
      for (size_t column = 0; column < tiles->columns.size(); ++column) {
        Expr inRow = firstColumn + wide(tiles->columns[column]);
        when(isRow(tiles->rows[row]) & (inRow < columns), [&] {
          Expr place = elementAt(result, beginOfRow(tiles->rows[row]) + inRow, resultType);
          Variable total(sums[row * tiles->columns.size() + column].get());
          auto addBefore = [&] { total.set(total.get() + loadElements(place, resultType, 1).front()); };
          if (destination == Destination::Add)
            addBefore();
          else if (destination == Destination::AddUnlessFirst)
            when(Expr(f, f.scalar("FIRST")) == 0, addBefore);
          storeElements({total.get()}, place, resultType);
        });
      }
  }

  KernelFunction &f;
  exec::KernelOp kernel;
  const Type firstType, secondType, resultType;
  const Expr first, second, result;
  const TileSizes sizes;
  const int64_t right, ownersAt; ///< byte offsets in shared memory; the left tile is at 0
  std::unique_ptr<Tiles> tiles;
  const Expr thread, capacity, batch, each, columns, firstColumn;
  std::vector<Variable> sums; ///< [rows][columns] of the thread
};

} // namespace

template <> LogicalResult build<SpecialKernel::grouped>(KernelFunction &f, exec::KernelOp kernel) {
  Grouped(f, kernel, "w", "y", "n").buildRows("k", /*isTransposed=*/false);
  return success();
}

template <> LogicalResult build<SpecialKernel::grouped_transposed>(KernelFunction &f, exec::KernelOp kernel) {
  Grouped(f, kernel, "w", "y", "k").buildRows("n", /*isTransposed=*/true);
  return success();
}

template <> LogicalResult build<SpecialKernel::grouped_gradient>(KernelFunction &f, exec::KernelOp kernel) {
  Grouped(f, kernel, "dy", "dw", "n").buildGradient();
  return success();
}

} // namespace espalier::codegen::cuda
