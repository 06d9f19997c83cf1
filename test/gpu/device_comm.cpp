// Tests NCCL through the back end's communicators with one rank: a non-blocking communicator, a communicator split from
// it, each transfer to the rank itself, and an abort. `run comm` tests several ranks with plans if NCCL lets them share
// a device. Prints NCCL's version first. Exits with 1 if anything is wrong.
#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/nccl.h"
#include "runtime/status.h"

#include <cstdio>
#include <fmt/format.h>

using namespace espalier::rt;
using namespace espalier::rt::cuda;

namespace {

constexpr size_t count = 16 << 20; // f32
constexpr int repetitions = 20;

TransferShape shapeOf(pb::Transfer::Kind kind) {
  TransferShape shape = {.kind = kind, .members = {0}};
  shape.shape = {.kind = kind, .elements = {static_cast<int64_t>(count)}};
  shape.bytes = {count * sizeof(float)};
  return shape;
}

/// Prints the memory that NCCL allocates, and returns whether every transfer gave the correct data.
int checkCommunicators() {
  Driver driver;
  Nccl nccl;
  fmt::print("{} NCCL in {}\n", versionText(nccl.version), nccl.library.path());
  Context context(driver, /*ordinal=*/0);
  Queue queue(driver);
  Staging staging(driver);
  Memory memory(context, queue, 2 * count * sizeof(float), 0);
  size_t before = context.memory().free;
  ncclUniqueId id = {};
  nccl.ncclGetUniqueId(&id);
  NcclGroups groups(nccl, id, /*ranks=*/1, /*rank=*/0, [] {});
  groups.join({{0}, /*number=*/1});
  uint32_t joined = groups.find({{0}, /*number=*/1});
  std::vector<float> values(count), result(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(i % 1000);
  staging.copyIn(queue, memory.at(0), values.data(), count * sizeof(float));
  CUdeviceptr from = memory.at(0), to = memory.at(count * sizeof(float));
  int wrong = 0;
  for (auto kind : {pb::Transfer::ALL_REDUCE, pb::Transfer::ALL_GATHER, pb::Transfer::REDUCE_SCATTER,
                    pb::Transfer::ALL_TO_ALL, pb::Transfer::SHIFT}) {
    Event begin(driver, /*isTimed=*/true), end(driver, /*isTimed=*/true);
    driver.cuMemsetD8Async(to, 0xff, count * sizeof(float), queue.stream());
    groups.start(joined, shapeOf(kind), {&from, 1}, {&to, 1}, queue.stream());
    queue.record(begin);
    for (int i = 0; i < repetitions; ++i)
      groups.start(joined, shapeOf(kind), {&from, 1}, {&to, 1}, queue.stream());
    queue.record(end);
    staging.copyOut(queue, result.data(), to, count * sizeof(float));
    wrong += result != values;
    fmt::print("{:5} {:15} {} MiB {:8.1f} us\n", result == values ? "ok" : "WRONG", pb::Transfer::Kind_Name(kind),
               count * sizeof(float) >> 20, 1e6 * end.secondsSince(begin) / repetitions);
  }
  fmt::print("NCCL took {:.1f} MiB of the device\n", static_cast<double>(before - context.memory().free) / (1 << 20));
  groups.start(joined, shapeOf(pb::Transfer::ALL_REDUCE), {&from, 1}, {&to, 1}, queue.stream());
  groups.abort();
  fmt::print("aborted with a transfer in flight\n");
  return wrong == 0 ? 0 : 1;
}

} // namespace

int main() {
  try {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); // output before a hang is not lost
    return checkCommunicators();
  } catch (const std::exception &error) {
    fmt::print(stderr, "device_comm: {}\n", error.what());
    return 1;
  }
}
