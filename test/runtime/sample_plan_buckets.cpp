// Puts parameters with equal partial axes into buckets. Adds the transfers that reduce the gradients, and the programs
// of the norm and the update.
#include "test/runtime/sample_plan_builder.h"

#include "format/abi.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

constexpr uint64_t granule = 128; // alignment of parameters

uint64_t roundUp(uint64_t number, uint64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

} // namespace

/// A parameter that tp shards is reduced over dp only. Other parameters are also reduced over tp. A table on two stages
/// is reduced over the stages first.
void SamplePlanBuilder::addBuckets(Layout &layout, const std::string &kind, const std::vector<ToyParameter> &parameters,
                                   const std::vector<uint32_t> &holders) {
  std::map<uint32_t, std::vector<ToyParameter>> byPartial;
  for (const ToyParameter &parameter : parameters)
    byPartial[mesh.divided(DP | TP) & ~parameter.split].push_back(parameter);
  for (const auto &[partial, members] : byPartial) {
    pb::Bucket bucket;
    bucket.set_name(kind == "embed" ? "embed.weight"
                                    : kind + ".plain" + (layout.buckets.empty() ? "" : fmt::format(".{}", 2)));
    bucket.set_partial(partial | (holders.empty() ? 0 : PP));
    bucket.mutable_holders()->Assign(holders.begin(), holders.end());
    bucket.set_share(o.zero ? mesh.divided(DP) : 0);
    int copies = mesh.count(partial & ~bucket.share()) * (holders.empty() ? 1 : 2);
    bucket.set_norm_weight(1.0 / copies);
    addBucket(layout, std::move(bucket), members);
  }
  updatePrograms(layout, kind);
}

void SamplePlanBuilder::addBucket(Layout &layout, pb::Bucket bucket, const std::vector<ToyParameter> &parameters) {
  uint64_t elements = 0;
  for (const ToyParameter &toy : parameters) {
    pb::Parameter *parameter = bucket.add_parameters();
    parameter->set_name(toy.name);
    uint64_t whole = toy.elements * mesh.count(toy.split);
    parameter->add_shape(whole);
    parameter->add_padded_shape(whole);
    parameter->add_split(toy.split);
    parameter->mutable_initialization()->set_kind(pb::Initialization::NORMAL);
    parameter->mutable_initialization()->set_stddev(toy.stddev);
    parameter->set_first(elements);
    elements += roundUp(toy.elements, granule);
  }
  uint64_t parts = mesh.count(bucket.share());
  elements = roundUp(elements, parts * granule);
  bucket.set_elements(elements);
  bucket.set_type(pb::F32);
  ToyBucket made;
  made.number = plan.buckets_size();
  uint32_t stored = value(bucket.name(), pb::F32, elements, {.resident = true});
  made.share = bucket.share() ? value(bucket.name() + ".part", pb::F32, elements / parts,
                                      {.split = bucket.share(), .resident = true})
                              : stored;
  uint32_t sum = value(bucket.name() + ".gradient", pb::F32, elements,
                       {.partial = bucket.partial(), .resident = true, .additions = 1});
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::string name = bucket.name() + "." + parameters[i].name;
    uint64_t size = parameters[i].elements, first = bucket.parameters(i).first();
    made.parameters.push_back(
        value(name, pb::F32, size, {.resident = true, .whole = static_cast<int32_t>(stored), .first = first}));
    made.gradients.push_back(value(name + ".gradient", pb::F32, size,
                                   {.partial = bucket.partial(),
                                    .resident = true,
                                    .whole = static_cast<int32_t>(sum),
                                    .first = first,
                                    .additions = 1}));
  }
  *bucket.mutable_stored() = at(Parameters, layout.parameterBytes, elements * 4, stored);
  *bucket.mutable_gradient() = at(Gradients, layout.gradientBytes, elements * 4, sum);
  for (const char *moment : {"moment1", "moment2"}) {
    uint32_t state = value(fmt::format("{}.{}", bucket.name(), moment), pb::F32, elements / parts,
                           {.split = bucket.share(), .resident = true});
    *bucket.add_state() = at(State, layout.stateBytes, elements / parts * 4, state);
    layout.stateBytes += elements / parts * 4;
  }
  layout.parameterBytes += elements * 4;
  layout.gradientBytes += elements * 4;
  addReductions(made, bucket);
  layout.buckets.push_back(std::move(made));
  *plan.add_buckets() = std::move(bucket);
}

/// Reduces over the stages that hold the bucket, then over unsharded axes, then reduce-scatters. The all-gather gathers
/// the updated shards.
void SamplePlanBuilder::addReductions(ToyBucket &bucket, const pb::Bucket &from) {
  uint32_t partial = from.partial(), share = from.share();
  pb::Buffer source = from.gradient();
  uint64_t elements = from.elements();
  auto reduce = [&](const char *suffix, uint32_t axes, const std::vector<uint32_t> &stages) {
    partial &= ~axes;
    pb::Buffer sum = source;
    sum.set_value(value(from.name() + suffix, pb::F32, elements, {.partial = partial, .resident = true}));
    bucket.reductions.push_back(
        collective(from.name() + suffix, pb::Transfer::ALL_REDUCE, "gradients", group(axes, stages), source, sum));
    source = sum;
  };
  if (partial & PP)
    reduce(".total", PP, {from.holders().begin(), from.holders().end()});
  if (partial & ~share)
    reduce(".sum", partial & ~share, {});
  if (!share)
    return;
  auto part = [&](pb::Buffer whole, uint32_t what) {
    whole.set_bytes(whole.bytes() / mesh.count(share));
    whole.set_part(share);
    whole.set_value(what);
    return whole;
  };
  uint32_t scattered =
      value(from.name() + ".scattered", pb::F32, elements / mesh.count(share), {.split = share, .resident = true});
  bucket.reductions.push_back(collective(from.name() + ".scatter", pb::Transfer::REDUCE_SCATTER, "gradients",
                                         group(share), source, part(source, scattered)));
  bucket.gather = collective(from.name() + ".gather", pb::Transfer::ALL_GATHER, "gradients", group(share),
                             part(from.stored(), bucket.share), from.stored());
}

/// Adds one call and one launch per bucket. Each works on the rank's own shard.
void SamplePlanBuilder::updatePrograms(Layout &layout, const std::string &kind) {
  pb::Subprogram norm, optimizer;
  norm.set_name(kind + ".norm");
  optimizer.set_name(kind + ".update");
  for (const ToyBucket &bucket : layout.buckets) {
    const pb::Bucket &from = plan.buckets(bucket.number);
    pb::Buffer gradient = bucket.reductions.empty() ? from.gradient() : plan.transfers(bucket.reductions.back()).to(0);
    pb::LibraryCall *square = norm.add_instructions()->mutable_call();
    square->set_function(pb::LibraryCall::SQUARED_NORM);
    *square->add_buffers() = gradient;
    *square->add_buffers() = slot(SquaredNorm);
    square->add_sizes(gradient.bytes() / 4);
    square->add_floats(from.norm_weight());
    square->set_store(pb::ADD);
    pb::Launch *adam = launch(&optimizer, Adam, gradient.bytes() / 4, 4);
    *adam->add_buffers() = bucket.gather < 0 ? from.stored() : plan.transfers(bucket.gather).from(0);
    *adam->add_buffers() = gradient;
    for (const pb::Buffer &moment : from.state())
      *adam->add_buffers() = moment;
    for (uint32_t number : {LearningRate, GradientScale, BiasCorrection1, BiasCorrection2, Apply})
      *adam->add_buffers() = slot(number);
  }
  *plan.add_subprograms() = norm;
  layout.norm = plan.subprograms_size();
  *plan.add_subprograms() = optimizer;
  layout.update = plan.subprograms_size();
}

} // namespace espalier::rt
