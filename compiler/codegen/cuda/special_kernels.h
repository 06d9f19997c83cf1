// Kernels without a fused body: the CUDA versions of the runtime's CPU kernels.
#pragma once

#include "compiler/codegen/cuda/expression.h"

namespace espalier::codegen::cuda {

/// Emits the body of `function` for `kernel`, which is specialized by its parameters.
using BuildKernel = mlir::LogicalResult (*)(KernelFunction &function, exec::KernelOp kernel);

/// Returns the builder of kernels of a shape; null if there is none.
BuildKernel specialKernel(llvm::StringRef shape);

/// Build one kernel each. The comments of the definitions list buffers, scalars and extent.
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

/// How a kernel combines its result with the destination. The parameter `accumulate` adds unless a scalar is 1;
/// `always_adds` always adds.
enum class Destination { Overwrite, AddUnlessFirst, Add };
Destination destinationOf(exec::KernelOp kernel);

/// Return a parameter of the kernel, which must exist, or `otherwise` if it does not.
mlir::Type typeParameter(exec::KernelOp kernel, llvm::StringRef name);
int64_t integerParameter(exec::KernelOp kernel, llvm::StringRef name);
int64_t integerParameter(exec::KernelOp kernel, llvm::StringRef name, int64_t otherwise);
double realParameter(exec::KernelOp kernel, llvm::StringRef name);
double realParameter(exec::KernelOp kernel, llvm::StringRef name, double otherwise);

// Constants shared by launches and kernels.
constexpr int64_t rowsPerOrderBlock = 64; ///< rows of the table per block of order_tokens
constexpr int64_t tokensPerSegment = 32;
constexpr int64_t orderSharedBytes = 4 * (rowsPerOrderBlock * 9 + 8);
constexpr int64_t columnsPerPartsBlock = 32;
constexpr int64_t cacheWarps = 4; ///< warps per query in attend_cache

/// The scalars of keep_rows and attend_cache, in order.
enum CacheScalar : unsigned { CacheBatch, CacheTokens, CacheKvHeads, CacheGroup, CacheHeadDim, CacheContext };

/// The scalars of choose_experts and give_slots, in order.
enum RouteScalar : unsigned { RouteBatch, RouteSeq, RouteExperts, RouteChoices, RouteCapacity };

/// The scalars of find_rows, dispatch and combine, in order.
enum MoveScalar : unsigned { MoveChoices, MoveBatch, MoveSeq, MoveHidden, MoveExperts, MoveCapacity };

} // namespace espalier::codegen::cuda
