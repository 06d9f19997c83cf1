// Kernels that are not made from a fused body: what the runtime's own kernels do on CPUs.
#pragma once

#include "compiler/codegen/cuda/expression.h"

namespace espalier::codegen::cuda {

/// Emits the body of `function` for `kernel`, whose parameters say what it does.
using BuildKernel = mlir::LogicalResult (*)(KernelFunction &function, exec::KernelOp kernel);

/// The builder of kernels of a shape; null when there is none.
BuildKernel specialKernel(llvm::StringRef shape);

mlir::LogicalResult buildAttentionForward(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildAttentionKeyGradient(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildAttentionQueryGradient(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildKeepRows(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildAttendCache(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildTakeRow(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildEmbed(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildOrderTokens(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildSumSegments(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildJoinSegments(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildChooseExperts(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildGiveSlots(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildFindRows(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildDispatch(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildCombine(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildRope(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildSquareBlocks(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildAddSquares(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildReduceParts(KernelFunction &f, exec::KernelOp kernel);
mlir::LogicalResult buildUpdateScalars(KernelFunction &f, exec::KernelOp kernel);

/// How a kernel's result meets what is in its place, by the parameters `accumulate` (add, but overwrite where a scalar
/// is 1) and `always_adds`.
enum class Destination { Overwrite, AddUnlessFirst, Add };
Destination destinationOf(exec::KernelOp kernel);

mlir::Type typeParameter(exec::KernelOp kernel, llvm::StringRef name);
int64_t integerParameter(exec::KernelOp kernel, llvm::StringRef name);
double realParameter(exec::KernelOp kernel, llvm::StringRef name);

// Sizes that launches and kernels agree on.
constexpr int64_t rowsPerOrderBlock = 64; ///< of the table
constexpr int64_t tokensPerSegment = 32;
constexpr int64_t orderSharedBytes = 4 * (rowsPerOrderBlock * 9 + 8);
constexpr int64_t columnsPerPartsBlock = 32;
constexpr int64_t cacheWarps = 4; ///< of a query in attend_cache

/// Scalars of keep_rows and attend_cache, in this order.
enum CacheScalar : unsigned { CacheBatch, CacheTokens, CacheKvHeads, CacheGroup, CacheHeadDim, CacheContext };

/// Scalars of choose_experts and give_slots, in this order.
enum RouteScalar : unsigned { RouteBatch, RouteSeq, RouteExperts, RouteChoices, RouteCapacity };

/// Scalars of find_rows, dispatch and combine, in this order.
enum MoveScalar : unsigned { MoveChoices, MoveBatch, MoveSeq, MoveHidden, MoveExperts, MoveCapacity };


} // namespace espalier::codegen::cuda
