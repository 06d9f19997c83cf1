// Builds what depends on the positions of tokens, or on the numbers of heads, from element-wise ops.
#pragma once

#include "compiler/import/model/primitives.h"

namespace espalier {

/// Returns the rows of a table in = {table, ids}.
mlir::FailureOr<mlir::Value> embed(PrimitiveBuilder &p, const OpDescription &op, mlir::ArrayRef<mlir::Value> in,
                                   mlir::Type element);

/// Returns x with rotated columns.
mlir::Value rotated(PrimitiveBuilder &p, const OpDescription &op, mlir::Value x, mlir::Value positions,
                    mlir::Type element);

/// Returns x (1 + factor log(1 + floor((position + first) / floor))), for positions below `most`.
mlir::Value temperature(PrimitiveBuilder &p, const OpDescription &op, mlir::Value x, mlir::Value positions,
                        int64_t most, mlir::Type element);

/// Returns the i32 positions at which the chunks of `chunk` tokens begin, or the later one of these and `visibleFrom`.
mlir::Value chunkBegins(PrimitiveBuilder &p, mlir::Value positions, double chunk, int64_t most,
                        mlir::Value visibleFrom);

/// Returns q and k with more columns, whose product adds slope * position of the key to a score (ALiBi, Press et al.
/// 2022). A softmax does not see the position of the query. The slopes are those of BLOOM for any number of heads. In
/// 16 bits, a column of multiples of 256 and one of the rest hold every position below 65536.
mlir::FailureOr<std::pair<mlir::Value, mlir::Value>> alibi(PrimitiveBuilder &p, const OpDescription &op,
                                                           mlir::ArrayRef<mlir::Value> in, mlir::Value positions,
                                                           int64_t most, mlir::Type element);

} // namespace espalier
