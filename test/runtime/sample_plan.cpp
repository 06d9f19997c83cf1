// Builds the shared tables: settings, kernels, values, transfers between stages. The code is independent of the
// compiler but gives the same form of plan.
#include "test/runtime/sample_plan_builder.h"

#include "format/abi.h"
#include "runtime/device/cpu/kernel_object.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

namespace espalier::rt {
namespace {

constexpr auto read = pb::Operand::READ, write = pb::Operand::WRITE, update = pb::Operand::UPDATE,
               add = pb::Operand::ADD;

struct ToyOperand {
  pb::DataType type;
  pb::Operand::Access access;
  std::vector<uint32_t> reach = {};
  uint32_t unless = 0;
  bool reduces = false;
};
struct ToyKernel {
  const char *symbol;
  uint32_t scalars;
  std::vector<ToyOperand> operands;
};

/// In the order of enum Kernel, with operands as in toy_kernels.c. An access extent of 0 is the number of features of
/// this rank.
const ToyKernel toyKernels[] = {
    {"toy_embed", 4, {{pb::I32, read, {1, 2}}, {pb::F32, read, {0}}, {pb::F32, write, {1, 0}}}},
    {"toy_embed_gradient", 5, {{pb::I32, read, {1, 2}}, {pb::F32, read, {1, 0}}, {pb::F32, add, {0}, 5}}},
    {"toy_block",
     2,
     {{pb::F32, read, {1, 0}},
      {pb::F32, read, {0}},
      {pb::F32, read},
      {pb::F32, write, {1, 0}},
      {pb::F32, write, {1, 0}}}},
    {"toy_block_gradient",
     3,
     {{pb::F32, read, {1, 0}},
      {pb::F32, read, {0}},
      {pb::F32, read, {1, 0}},
      {pb::F32, write, {1, 0}},
      {pb::F32, add, {0}, 3}}},
    {"toy_shift_gradient", 2, {{pb::F32, read, {1}}, {pb::F32, add, {}, 2}}},
    {"toy_loss",
     4,
     {{pb::F32, read, {1, 4}},
      {pb::F32, read, {4}},
      {pb::I32, read, {1, 2}},
      {.type = pb::F32, .access = write, .reduces = true}}},
    {"toy_add_loss", 2, {{pb::F32, read}, {pb::F32, add}, {pb::F32, add}}},
    {"toy_loss_gradient",
     5,
     {{pb::F32, read, {1, 0}},
      {pb::F32, read, {0}},
      {pb::I32, read, {1, 2}},
      {pb::F32, write, {1, 0}},
      {pb::F32, add, {0}, 5},
      {pb::F32, read}}},
    {"toy_adam",
     0,
     {{pb::F32, update, {0}},
      {pb::F32, read, {0}},
      {pb::F32, update, {0}},
      {pb::F32, update, {0}},
      {pb::F32, read},
      {pb::F32, read},
      {pb::F32, read},
      {pb::F32, read},
      {pb::F32, read}}},
};

pb::Mesh meshOf(const SampleOptions &o) {
  pb::Mesh mesh;
  mesh.set_pp(o.pp);
  mesh.set_dp(o.dp);
  mesh.set_cp(1);
  mesh.set_ep(1);
  mesh.set_tp(o.tp);
  mesh.set_ranks_per_host(8);
  return mesh;
}

} // namespace

SamplePlanBuilder::SamplePlanBuilder(const SampleOptions &options) : o(options), mesh(meshOf(options)) {}

void SamplePlanBuilder::addSettings() {
  plan.set_version(2);
  plan.set_model("toy");
  plan.set_target("cpu");
  *plan.mutable_mesh() = meshOf(o);
  for (const char *role : {"forward", "backward", "evaluate", "norm", "update", "scalars"})
    plan.add_roles(role);
  for (const char *region : {"parameters", "gradients", "state", "saved", "stream_in", "stream_out", "cotangent_out",
                             "cotangent_in", "inputs", "workspace", "scalars", "staged", "settings", "results"})
    plan.add_regions(region);
  queue("compute");
  pb::Settings *settings = plan.mutable_settings();
  settings->set_seed(7);
  settings->set_micro_batch_size(o.samples);
  settings->set_micro_batches(o.microBatches);
  settings->set_global_batch(o.samples * o.microBatches * o.dp);
  settings->set_sequence(o.features);
  settings->set_vocabulary(256);
  settings->set_zero(o.zero);
  settings->set_recompute("none");
  settings->set_schedule("1f1b");
  settings->set_beta1(0.9);
  settings->set_beta2(0.99);
  settings->set_epsilon(1e-8);
  settings->set_max_grad_norm(o.maxGradNorm);
  settings->set_ignore_token(-1);
  settings->mutable_learning_rate()->set_kind("constant");
  settings->mutable_learning_rate()->set_peak(o.peakRate);
  settings->set_dynamic_loss_scale(o.dynamicScale);
  settings->set_initial_loss_scale(o.dynamicScale ? 0x1p120 : 1);
  settings->set_loss_scale_factor(o.dynamicScale ? 0x1p60 : 2);
  settings->set_loss_scale_window(100);
  settings->set_minimum_loss_scale(1);
  pb::Location *location = plan.add_locations();
  location->set_file("toy.yaml");
  location->set_line(3);
  location->set_column(5);
  location->set_op("scale");
}

void SamplePlanBuilder::addKernels() {
  std::ifstream object(ESPALIER_TOY_KERNELS, std::ios::binary);
  std::string code{std::istreambuf_iterator<char>(object), std::istreambuf_iterator<char>()};
  for (std::string_view level : cpuLevels) {
    pb::Object *made = plan.add_objects();
    made->set_level(std::string(level));
    made->set_code(code);
  }
  for (const ToyKernel &toy : toyKernels) {
    pb::Kernel *kernel = plan.add_kernels();
    kernel->set_symbol(toy.symbol);
    kernel->set_shape("toy");
    kernel->set_scalars(toy.scalars);
    for (const ToyOperand &from : toy.operands) {
      pb::Operand *operand = kernel->add_operands();
      operand->set_type(from.type);
      operand->set_access(from.access);
      for (uint32_t factor : from.reach)
        operand->add_reach(factor);
      operand->set_unless(from.unless);
      operand->set_reduces(from.reduces);
    }
  }
}

uint32_t SamplePlanBuilder::value(const std::string &name, pb::DataType type, uint64_t elements,
                                  const ValueTraits &traits) {
  pb::Value *value = plan.add_values();
  value->set_name(name);
  value->set_type(type);
  value->set_elements(elements);
  value->set_split(traits.split);
  value->set_partial(traits.partial);
  value->set_per_micro_batch(traits.perMicroBatch);
  value->set_resident(traits.resident);
  value->set_whole(traits.whole + 1);
  value->set_first(traits.first);
  value->set_additions(traits.additions);
  return plan.values_size() - 1;
}

uint32_t SamplePlanBuilder::queue(const std::string &name) {
  auto found = std::ranges::find(plan.queues(), name, &pb::Queue::name);
  uint32_t number = found - plan.queues().begin();
  if (found == plan.queues().end())
    plan.add_queues()->set_name(name);
  return number;
}

uint32_t SamplePlanBuilder::group(uint32_t axes, const std::vector<uint32_t> &stages) {
  for (int i = 0; i < plan.groups_size(); ++i)
    if (plan.groups(i).axes() == axes && std::ranges::equal(plan.groups(i).stages(), stages))
      return i;
  pb::Group *group = plan.add_groups();
  group->set_axes(axes);
  group->mutable_stages()->Assign(stages.begin(), stages.end());
  return plan.groups_size() - 1;
}

pb::Buffer SamplePlanBuilder::at(Region region, uint64_t offset, uint64_t bytes, uint32_t value, int layer) const {
  pb::Buffer buffer;
  buffer.set_region(region);
  buffer.set_offset(offset);
  buffer.set_bytes(bytes);
  buffer.set_value(value);
  buffer.set_layer(layer);
  return buffer;
}

pb::Transfer *SamplePlanBuilder::transfer(const std::string &name, pb::Transfer::Kind kind,
                                          const std::string &queueName) {
  pb::Transfer *transfer = plan.add_transfers();
  transfer->set_name(name);
  transfer->set_kind(kind);
  transfer->set_queue(queue(queueName));
  return transfer;
}

uint32_t SamplePlanBuilder::collective(const std::string &name, pb::Transfer::Kind kind, const std::string &queueName,
                                       uint32_t groupNumber, const pb::Buffer &from, const pb::Buffer &to) {
  pb::Transfer *made = transfer(name, kind, queueName);
  made->set_group(groupNumber);
  *made->add_from() = from;
  *made->add_to() = to;
  auto isOf = [&](const pb::Communicator &other) {
    return !other.is_line() && other.group() == groupNumber && other.queue() == made->queue();
  };
  if (std::ranges::none_of(plan.communicators(), isOf)) {
    pb::Communicator *communicator = plan.add_communicators();
    communicator->set_group(groupNumber);
    communicator->set_queue(made->queue());
  }
  return plan.transfers_size() - 1;
}

/// Adds the scalars region, which the host writes, and one value per slot. Ranks hold partial sums until the
/// all-reduce.
void SamplePlanBuilder::addScalarValues() {
  uint32_t world = mesh.divided();
  scalars = value("scalars", pb::F32, ScalarSlotCount, {.resident = true});
  int32_t whole = scalars;
  firstSlot = plan.values_size();
  for (uint32_t i = 0; i < ScalarSlotCount; ++i)
    value(fmt::format("scalars.{}", i), pb::F32, 1,
          {.partial = i < sumCount || i == StopRequests ? world : 0, .resident = true, .whole = whole, .first = i});
  firstAgreed = world ? plan.values_size() : firstSlot;
  for (uint32_t i = 0; world && i < sumCount; ++i)
    value(fmt::format("agreed.{}", i), pb::F32, 1, {.resident = true, .whole = whole, .first = i});
  int32_t stop = plan.values_size();
  if (world)
    value("agreed.stop", pb::F32, 1, {.resident = true, .whole = whole, .first = StopRequests});
  uint64_t bytes = ScalarSlotCount * 4;
  setScalars = plan.transfers_size();
  pb::Transfer *set = transfer("set", pb::Transfer::COPY, "to_device");
  *set->add_from() = at(HostSettings, 0, bytes, scalars);
  *set->add_to() = at(ScalarSlots, 0, bytes, scalars);
  metrics = plan.transfers_size();
  pb::Transfer *copy = transfer("metrics", pb::Transfer::COPY, "to_host");
  *copy->add_from() = at(ScalarSlots, 0, bytes, scalars);
  *copy->add_to() = at(Results, 0, bytes, scalars);
  if (!world)
    return;
  agree = collective("agree", pb::Transfer::ALL_REDUCE, "gradients", group(world), slot(LossSum), agreed(LossSum));
  pb::Transfer *sums = plan.mutable_transfers(agree);
  for (uint32_t i = 1; i < sumCount; ++i) {
    *sums->add_from() = slot(i);
    *sums->add_to() = agreed(i);
  }
  *sums->add_from() = slot(StopRequests);
  *sums->add_to() = at(ScalarSlots, StopRequests * 4, 4, stop);
}

/// Adds tokens, labels, and activations between stages.
void SamplePlanBuilder::addStreams() {
  tokens = value("tokens", pb::I32, o.samples * o.features, {.perMicroBatch = true});
  labels = value("labels", pb::I32, o.samples * o.features, {.perMicroBatch = true});
  stream = value("stream", pb::F32, o.samples * local(), {.perMicroBatch = true});
  cotangent = value("cotangent", pb::F32, o.samples * local(), {.perMicroBatch = true});
  saved = value("block.saved", pb::F32, o.samples * local(), {.perMicroBatch = true});
  auto copy = [&](const char *name, uint64_t offset, uint32_t what) -> uint32_t {
    pb::Transfer *copy = transfer(name, pb::Transfer::COPY, "to_device");
    *copy->add_from() = at(Staged, offset, inputBytes(), what);
    *copy->add_to() = at(Inputs, offset, inputBytes(), what);
    return plan.transfers_size() - 1;
  };
  copyTokens = copy("tokens", 0, tokens);
  copyLabels = copy("labels", alignedInput(), labels);
  if (o.pp == 1)
    return;
  auto line = [&](const char *name, pb::Transfer::Kind kind, int shift, uint32_t number, const pb::Buffer &buffer) {
    pb::Transfer *made = transfer(name, kind, name);
    made->set_shift(shift);
    made->set_line(number);
    *(kind == pb::Transfer::SEND ? made->add_from() : made->add_to()) = buffer;
    return static_cast<uint32_t>(plan.transfers_size() - 1);
  };
  out = line("out", pb::Transfer::SEND, 1, 0, at(StreamOut, 0, streamBytes(), stream, 1));
  in = line("in", pb::Transfer::RECEIVE, -1, 0, at(StreamIn, 0, streamBytes(), stream));
  din = line("din", pb::Transfer::SEND, -1, 1, at(CotangentIn, 0, streamBytes(), cotangent));
  dout = line("dout", pb::Transfer::RECEIVE, 1, 1, at(CotangentOut, 0, streamBytes(), cotangent, 1));
  for (uint32_t number : {0u, 1u})
    for (int stage = 0; stage + 1 < o.pp; ++stage) {
      pb::Communicator *communicator = plan.add_communicators();
      communicator->set_is_line(true);
      communicator->set_line(number);
      communicator->set_sender(stage + number);
      communicator->set_receiver(stage + 1 - number);
    }
}

void SamplePlanBuilder::addEntries() {
  pb::Entry *train = plan.add_entries();
  train->set_name("train_step");
  train->set_micro_batches(o.microBatches);
  for (uint32_t region : {Parameters, State}) {
    train->add_finds(region);
    train->add_writes(region);
  }
  pb::Entry *evaluate = plan.add_entries();
  evaluate->set_name("evaluate");
  evaluate->set_micro_batches(1);
  evaluate->add_finds(Parameters);
}

pb::Plan SamplePlanBuilder::build() {
  addSettings();
  addKernels();
  addScalarValues();
  addStreams();
  std::vector<uint32_t> ends;
  if (o.pp > 1)
    ends = {0, static_cast<uint32_t>(o.pp - 1)};
  uint32_t split = mesh.divided(TP);
  addBuckets(table, "embed", {{"weight", local(), split, 1.0}}, ends);
  addBuckets(block, "block", {{"weight", local(), split, 1.0}, {"shift", 1, 0, 0.1}}, {});
  embedPrograms();
  blockPrograms();
  headPrograms();
  stepProgram();
  addUses();
  addEntries();
  for (int i = 0; i < o.pp; ++i)
    addStage(i);
  plan.set_parameter_count(o.features + o.layers * (o.features + 1));
  return plan;
}

namespace {

/// Sample i has the token (7 i + 3 k + i k) mod 251 at position k.
class SampleData final : public Dataset {
public:
  SampleData(DatasetOptions options, int64_t samples) : Dataset(std::move(options)), samples(samples) {}
  int64_t sampleCount() const override { return samples; }
  void readTokens(int64_t i, std::span<int32_t> out) const override {
    for (size_t k = 0; k < out.size(); ++k)
      out[k] = static_cast<int32_t>((7 * i + 3 * k + i * k) % 251);
  }

private:
  const int64_t samples;
};

} // namespace

pb::Plan samplePlan(const SampleOptions &options) { return SamplePlanBuilder(options).build(); }

std::shared_ptr<const Dataset> sampleData(int64_t features, int64_t samples) {
  DatasetOptions options;
  options.seqLength = features;
  return std::make_shared<SampleData>(options, samples);
}

} // namespace espalier::rt
