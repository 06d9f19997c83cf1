// ATTEND_CACHE and TAKE_ROW, the calls for generation. A part is one (sequence, kv head), or one sequence.
#include "runtime/kernels/factories.h"

#include <cstring>

namespace espalier::rt {

namespace {

/// The lanes of the widest level. This padding lets loops process whole vectors after the last element.
constexpr int64_t kSpareFloats = 32;

class AttendCache final : public LibraryKernel {
public:
  AttendCache(const pb::LibraryCall &call, std::span<const pb::DataType> types, const cpu::Loops &loops)
      : loops_(loops) {
    CallReader reader(call, types);
    hasSums_ = reader.has("lse");
    batch_ = reader.size("batch");
    kvHeads_ = reader.size("kv_heads");
    task_.storage = reader.storage("q");
    task_.tokens = reader.size("seq");
    task_.group = reader.size("group");
    task_.headDim = reader.size("head_dim", 1);
    task_.valueDim = reader.size("value_dim", 1);
    task_.context = reader.size("context", 1);
    task_.scale = static_cast<float>(reader.real("scale"));
    task_.window = reader.size("window");
    task_.softCap = static_cast<float>(reader.real("soft_cap"));
    for (const char *columns : {"head_dim", "value_dim"})
      if (reader.size(columns) > cpu::kLargestHead)
        reader.refuse(std::string(columns) + " is " + std::to_string(reader.size(columns)) + ", needs to be at most " +
                      std::to_string(cpu::kLargestHead));
    if (!(task_.scale > 0))
      reader.refuse("scale is " + std::to_string(task_.scale) + ", needs to be above 0");
    if (!(task_.softCap >= 0))
      reader.refuse("soft_cap is " + std::to_string(task_.softCap) + ", needs to be at least 0");
    task_.keyStride = kvHeads_ * task_.headDim;
    task_.queryStride = task_.keyStride * task_.group;
    task_.valueStride = kvHeads_ * task_.valueDim;
    task_.sumStride = kvHeads_ * task_.group;
    task_.outStride = task_.valueStride * task_.group;
  }

  int64_t parts() const override { return batch_ * kvHeads_; }
  size_t scratchBytesPerThread() const override {
    return static_cast<size_t>(cpu::kLargestHead + task_.context + 2 * kSpareFloats) * sizeof(float);
  }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    int64_t sequence = part / kvHeads_, head = part % kvHeads_;
    auto at = [&](int buffer, int64_t element) {
      return static_cast<char *>(arguments.buffers[buffer]) + element * bytesOf(task_.storage);
    };
    cpu::AttendCacheTask task = task_;
    int64_t queryHead = head * task_.group, row = part * task_.context;
    auto [token, end] = arguments.rowsOf(sequence, task_.tokens);
    task.tokens = end - token;
    task.q = at(0, token * task_.queryStride + queryHead * task_.headDim);
    task.k = at(1, token * task_.keyStride + head * task_.headDim);
    task.v = at(2, token * task_.valueStride + head * task_.valueDim);
    task.positions = static_cast<const int32_t *>(arguments.buffers[3]) + token;
    task.out = at(4, token * task_.outStride + queryHead * task_.valueDim);
    task.keys = at(5, row * task_.headDim);
    task.values = at(6, row * task_.valueDim);
    task.logSumExp =
        hasSums_ ? static_cast<float *>(arguments.buffers[7]) + (token * kvHeads_ + head) * task_.group : nullptr;
    task.scratch = static_cast<float *>(threadScratch);
    loops_.attendCache(task);
  }

private:
  const cpu::Loops &loops_;
  int64_t batch_, kvHeads_;
  bool hasSums_ = false;
  cpu::AttendCacheTask task_; ///< all fields except addresses, which each part sets
};

class TakeRow final : public LibraryKernel {
public:
  TakeRow(const pb::LibraryCall &call, std::span<const pb::DataType> types) {
    CallReader reader(call, types);
    batch_ = reader.size("a");
    rows_ = reader.size("b");
    bytes_ = reader.size("bytes");
  }

  int64_t parts() const override { return batch_; }

  void run(const CallArguments &arguments, int64_t part, void *) const override {
    int64_t row = static_cast<const int32_t *>(arguments.buffers[1])[part];
    char *to = static_cast<char *>(arguments.buffers[2]) + part * bytes_;
    auto [first, end] = arguments.rowsOf(part, rows_);
    if (row < 0 || row >= end - first)
      std::memset(to, 0, static_cast<size_t>(bytes_));
    else
      std::memcpy(to, static_cast<const char *>(arguments.buffers[0]) + (first + row) * bytes_,
                  static_cast<size_t>(bytes_));
  }

private:
  int64_t batch_, rows_, bytes_;
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::ATTEND_CACHE>(const KernelRequest &request) {
  return std::make_unique<AttendCache>(request.call, request.types, request.loops);
}

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::TAKE_ROW>(const KernelRequest &request) {
  return std::make_unique<TakeRow>(request.call, request.types);
}

} // namespace espalier::rt
