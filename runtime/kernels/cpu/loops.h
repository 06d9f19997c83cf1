// The functions that the *_loops.cpp files define for one level. level_loops.cpp puts them into the level's table.
#pragma once

#include "runtime/kernels/cpu/level.h"

namespace espalier::rt::cpu::ESPALIER_LEVEL {

size_t gemmScratchBytes(const GemmTask &task);
void gemm(const GemmTask &task);
int64_t packedFloats(const GemmTask &task);
void packWeights(const GemmTask &task, float *to);
size_t attentionForwardScratchBytes(const AttentionShape &shape, int64_t queries);
void attentionForward(const AttentionForwardTask &task);
size_t attentionBackwardScratchBytes(const AttentionShape &shape);
void attentionBackward(const AttentionBackwardTask &task);
void attendCache(const AttendCacheTask &task);
void convert(const void *from, Storage fromStorage, void *to, Storage toStorage, int64_t elements);
void add(const void *from, Storage fromStorage, float *to, int64_t elements);
void addScaled(const void *from, Storage fromStorage, float factor, float *to, int64_t elements);
double squaredSum(const float *x, int64_t elements);
void rope(const RopeTask &task);
size_t recurrenceScratchBytes(const RecurrenceShape &shape, bool isBackward);
void recurrence(const RecurrenceTask &task);
void causalConv(const ConvTask &task, const void *weight, Storage ofWeight, bool isTransposed, void *y);
void causalConvGradient(const ConvTask &task, const void *dy, void *gradient, Storage ofGradient, bool adds);

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
