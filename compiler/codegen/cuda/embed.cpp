// out[token] = table[ids[token] - first row], or zeros if the table has no such row. One warp per token.
#include "compiler/codegen/cuda/special_kernels.h"

using namespace mlir;

namespace espalier::codegen::cuda {

template <> LogicalResult build<SpecialKernel::embed>(KernelFunction &f, exec::KernelOp kernel) {
  Type from = typeParameter(kernel, "table"), to = typeParameter(kernel, "out");
  int width = static_cast<int>(integerParameter(kernel, "width"));
  Expr table(f, f.buffer("table")), ids(f, f.buffer("ids")), out(f, f.buffer("out"));
  Expr firstRow(f, f.scalar("FIRST_ROW")), rows(f, f.scalar("rows")), hidden(f, f.scalar("hidden"));
  Expr token = Expr(f, f.blockBegin()) + wide(Expr(f, f.warpIndex())), lane(f, f.laneIndex());
  when(token < Expr(f, f.extent()), [&] {
    Expr row = wide(loadValue(elementAt(ids, token, f.b.getI32Type()), f.b.getI32Type())) - firstRow;
    Expr isHeld = (row >= 0) & (row < rows);
    loop(lane * width, narrow(hidden), 32 * width, [&](Expr column) {
      std::vector<Variable> values;
      for (int i = 0; i < width; ++i)
        values.emplace_back(Expr(f, f.number(0)));
      when(isHeld, [&] {
        std::vector<Expr> loaded = loadElements(elementAt(table, row * hidden + wide(column), from), from, width);
        for (int i = 0; i < width; ++i)
          values[i].set(loaded[i]);
      });
      std::vector<Expr> stored;
      for (const Variable &value : values)
        stored.push_back(value.get());
      storeElements(stored, elementAt(out, token * hidden + wide(column), to), to);
    });
  });
  return success();
}

} // namespace espalier::codegen::cuda
