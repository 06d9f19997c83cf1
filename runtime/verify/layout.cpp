// Rule D: parameters in their buckets, buckets in the regions of calls, the stages that hold and update them, and
// slices.
#include "format/optimizers.h"
#include "runtime/verify/library_functions.h"
#include "runtime/verify/rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace espalier::rt::verify {
namespace {

constexpr int64_t granule = 128; ///< in elements: parameters begin at multiples of this number

/// The byte range of a bucket's buffer in an arena.
struct Extent {
  int memory;
  int64_t begin, end;
  auto operator<=>(const Extent &) const = default;
};

/// A bucket and its owner.
using Owned = std::pair<uint32_t, uint32_t>;

class Layout {
public:
  Layout(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) : plan(plan), mesh(mesh), errors(errors) {}

  void check();

private:
  void checkBucket(const pb::Bucket &bucket);
  void checkStates(const pb::Bucket &bucket);
  void checkParameters(const pb::Bucket &bucket);
  int64_t elementsOf(const pb::Bucket &bucket, const pb::Parameter &parameter);
  void checkBuffers(const pb::Bucket &bucket);
  void checkBuffer(const pb::Bucket &bucket, const pb::Buffer &buffer, pb::DataType type, int64_t elements,
                   bool isPerMicroBatch = false);
  void checkGradients(const pb::Bucket &bucket);
  void checkHolders();
  void checkPlaces(int stage);
  void checkWholes();
  void checkReads(const pb::Subprogram &subprogram);
  void checkReads(const pb::Transfer &transfer);
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  const Mesh &mesh;
  PlanErrors &errors;
};

void Layout::check() {
  for (const pb::Bucket &bucket : plan.buckets())
    checkBucket(bucket);
  checkHolders();
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    checkPlaces(stage);
  checkWholes();
  for (const pb::Subprogram &subprogram : plan.subprograms())
    checkReads(subprogram);
  for (const pb::Transfer &transfer : plan.transfers())
    checkReads(transfer);
}

void Layout::checkBucket(const pb::Bucket &bucket) {
  int64_t share = mesh.count(bucket.share());
  if (static_cast<int64_t>(bucket.elements()) % (share * granule) != 0)
    add("bucket '{}': {} elements are no multiple of {} * {}", bucket.name(), bucket.elements(), share, granule);
  if (bucket.frozen() && (bucket.has_gradient() || bucket.state_size() > 0 || bucket.partial() || bucket.norm_weight()))
    add("bucket '{}': is frozen, and has gradients, optimizer state, partial axes or a weight in the norm",
        bucket.name());
  checkStates(bucket);
  if (mesh.divided(bucket.share() & ~bucket.partial()) && !bucket.frozen())
    add("bucket '{}': its state is shared over axes that its gradients are not summed over", bucket.name());
  bool isHeld = bucket.holders_size() > 1 && !bucket.frozen(), isSummed = mesh.divided(bucket.partial() & PP);
  if (isHeld != isSummed)
    add("bucket '{}': has {} holders and is {}summed over stages", bucket.name(), bucket.holders_size(),
        isSummed ? "" : "not ");
  checkParameters(bucket);
  checkBuffers(bucket);
}

/// Checks that the state has the tensors of the bucket's optimizer, after a master copy if there is one. Their values
/// are named after them, so that a plan cannot pass one for another.
void Layout::checkStates(const pb::Bucket &bucket) {
  if (!pb::Optimizer_IsValid(bucket.optimizer()))
    return add("bucket '{}': optimizer {} is unknown", bucket.name(), static_cast<int>(bucket.optimizer()));
  const OptimizerRow &row = optimizerRow(bucket.optimizer());
  int states = static_cast<int>(row.states.size()), masters = bucket.state_size() > states ? 1 : 0;
  if (bucket.state_size() == 0)
    return;
  if (bucket.state_size() != masters + states)
    return add("bucket '{}': has {} state tensors, {} has {} beside a master copy", bucket.name(), bucket.state_size(),
               row.name, states);
  for (int i = 0; i < bucket.state_size(); ++i) {
    const char *kind = i < masters ? masterKind : row.states[static_cast<size_t>(i - masters)];
    const std::string &name = plan.values(static_cast<int>(bucket.state(i).value())).name();
    if (name != fmt::format("{}.{}", bucket.name(), kind))
      add("bucket '{}': its state {} is '{}', {} has {} there", bucket.name(), i, name, row.name, kind);
  }
}

/// Returns the number of a parameter's elements on one rank, or 0 if the split is invalid.
int64_t Layout::elementsOf(const pb::Bucket &bucket, const pb::Parameter &parameter) {
  int64_t elements = 1;
  uint32_t used = mesh.divided(bucket.partial()) | PP;
  for (int i = 0; i < parameter.padded_shape_size(); ++i) {
    // Only the vocabulary is padded.
    if (parameter.shape(i) != parameter.padded_shape(i) &&
        (parameter.shape(i) != plan.settings().vocabulary() || parameter.shape(i) > parameter.padded_shape(i)))
      add("bucket '{}', parameter '{}': dimension {} has {} rows of {}, the vocabulary {}", bucket.name(),
          parameter.name(), i, parameter.shape(i), parameter.padded_shape(i), plan.settings().vocabulary());
    uint32_t axes = mesh.divided(parameter.split(i));
    int64_t size = static_cast<int64_t>(parameter.padded_shape(i)), parts = mesh.count(axes);
    if (axes & used) {
      add("bucket '{}', parameter '{}': is split twice over an axis, or split and summed", bucket.name(),
          parameter.name());
      return 0;
    }
    if (size % parts != 0) {
      add("bucket '{}', parameter '{}': dimension {} of padded size {} does not split over {} ranks", bucket.name(),
          parameter.name(), i, size, parts);
      return 0;
    }
    used |= axes;
    elements *= size / parts;
  }
  uint32_t split = used & ~mesh.divided(bucket.partial()) & ~uint32_t(PP);
  int64_t copies = mesh.count(allAxes & ~uint32_t(PP) & ~split) / mesh.count(bucket.share() & ~uint32_t(PP)) *
                   std::max(1, bucket.holders_size());
  double wanted = optimizerRow(bucket.optimizer()).isOfParameters ? 0 : 1;
  if (!bucket.frozen() && std::abs(bucket.norm_weight() * static_cast<double>(copies) - wanted) > 1e-9)
    add("bucket '{}', parameter '{}': {} ranks have each element, in the norm it counts {:.6g} on each", bucket.name(),
        parameter.name(), copies, bucket.norm_weight());
  return elements;
}

void Layout::checkParameters(const pb::Bucket &bucket) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::set<std::string> names;
  for (const pb::Parameter &parameter : bucket.parameters()) {
    int64_t first = static_cast<int64_t>(parameter.first()), elements = elementsOf(bucket, parameter);
    if (first % granule != 0 || first + elements > static_cast<int64_t>(bucket.elements()))
      add("bucket '{}', parameter '{}': elements {} to {} of {}, at a multiple of {}", bucket.name(), parameter.name(),
          first, first + elements, bucket.elements(), granule);
    if (!names.insert(parameter.name()).second)
      add("bucket '{}' has two parameters '{}'", bucket.name(), parameter.name());
    ranges.emplace_back(first, first + elements);
  }
  std::ranges::sort(ranges);
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      add("bucket '{}': two parameters begin at element {}", bucket.name(), ranges[i].first);
}

void Layout::checkBuffers(const pb::Bucket &bucket) {
  int64_t elements = static_cast<int64_t>(bucket.elements()), share = elements / mesh.count(bucket.share());
  checkBuffer(bucket, bucket.stored(), bucket.type(), bucket.has_whole_stored() ? share : elements);
  if (bucket.has_whole_stored())
    checkBuffer(bucket, bucket.whole_stored(), bucket.type(), elements);
  for (const pb::Buffer &state : bucket.state())
    checkBuffer(bucket, state, pb::F32, share);
  for (int i = 1; i < bucket.state_size(); ++i)
    if (bucket.state(i).offset() < bucket.state(i - 1).offset())
      add("bucket '{}': its state {} lies before {}", bucket.name(), i, i - 1);
  if (bucket.has_gradient())
    checkGradients(bucket);
  else if (bucket.has_whole_gradient())
    add("bucket '{}': has whole gradients, but no gradients", bucket.name());
}

/// Checks that accumulated gradients are partial over the bucket's axes. The sharded gradient is partial over the axes
/// that remain after the reduce-scatter.
void Layout::checkGradients(const pb::Bucket &bucket) {
  int64_t elements = static_cast<int64_t>(bucket.elements());
  bool hasShare = bucket.has_whole_gradient();
  auto check = [&](const pb::Buffer &buffer, uint32_t partial) {
    const pb::Value &gradient = plan.values(static_cast<int>(buffer.value()));
    if (gradient.additions() != 1 || mesh.divided(gradient.partial()) != mesh.divided(partial))
      add("bucket '{}': its gradient is partial over {} with {} additions, the bucket over {} with one", bucket.name(),
          gradient.partial(), gradient.additions(), partial);
  };
  pb::DataType type = gradientType(plan, bucket);
  if (type == pb::I32)
    add("bucket '{}': its gradients are integers", bucket.name());
  checkBuffer(bucket, bucket.gradient(), type, hasShare ? elements / mesh.count(bucket.share()) : elements);
  check(bucket.gradient(), hasShare ? bucket.partial() & ~bucket.share() : bucket.partial());
  if (!hasShare)
    return;
  checkBuffer(bucket, bucket.whole_gradient(), type, elements, /*isPerMicroBatch=*/true);
  check(bucket.whole_gradient(), bucket.partial());
}

void Layout::checkBuffer(const pb::Bucket &bucket, const pb::Buffer &buffer, pb::DataType type, int64_t elements,
                         bool isPerMicroBatch) {
  const pb::Value &value = plan.values(static_cast<int>(buffer.value()));
  int64_t bytes = product({static_cast<int64_t>(buffer.bytes()), mesh.count(buffer.part())});
  bool isWhole = value.whole() == 0 && value.per_micro_batch() == isPerMicroBatch && value.type() == type;
  if (!isWhole || bytes != elements * widthOf(type) || static_cast<int64_t>(value.elements()) != elements)
    add("bucket '{}': '{}' has {} elements in {} bytes, the bucket {}", bucket.name(), value.name(), value.elements(),
        bytes, elements);
}

/// Checks that the bucket of an owner is on one stage, or on exactly its holders, and that each of them updates it
/// once.
void Layout::checkHolders() {
  std::map<Owned, std::map<int, int>> updates; // by owner and stage
  std::set<Owned> owners;
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    for (const pb::Call &call : plan.stages(stage).calls())
      for (const pb::BucketUse &use : call.buckets()) {
        updates[{use.bucket(), use.owner()}][stage] += use.updates();
        if (static_cast<int64_t>(use.owner()) == call.layer())
          owners.insert({use.bucket(), use.owner()});
      }
  for (const auto &[owned, stages] : updates) {
    const pb::Bucket &bucket = plan.buckets(static_cast<int>(owned.first));
    std::set<int> holders(bucket.holders().begin(), bucket.holders().end()), found;
    for (const auto &[stage, count] : stages) {
      found.insert(stage);
      if (count != 1)
        add("stage {}: {} calls update bucket '{}' of layer {}, needs 1", stage, count, bucket.name(), owned.second);
    }
    if (!owners.count(owned))
      add("bucket '{}' belongs to layer {}, which does not use it", bucket.name(), owned.second);
    if (holders.empty() ? found.size() != 1 : found != holders)
      add("bucket '{}' of layer {} is used on {} stages, its holders are {}", bucket.name(), owned.second, found.size(),
          holders.size());
  }
}

/// Checks that the buffers of different owners' buckets are disjoint, and that all uses of one owner's bucket coincide.
void Layout::checkPlaces(int index) {
  const pb::Stage &stage = plan.stages(index);
  std::map<std::tuple<Owned, int>, Extent> known; // by owner and buffer
  std::map<Extent, Owned> taken;
  for (const pb::Call &call : stage.calls())
    for (const pb::BucketUse &use : call.buckets()) {
      const pb::Bucket &bucket = plan.buckets(static_cast<int>(use.bucket()));
      Owned owned = {use.bucket(), use.owner()};
      int number = 0;
      auto place = [&](const pb::Buffer &buffer) {
        const pb::Binding *binding = bindingOf(call, buffer.region());
        const pb::Place &room = stage.places(static_cast<int>(binding->place()));
        Range bytes = bytesOf(buffer, plan, mesh);
        int64_t base = offsetOf(room, 0) + static_cast<int64_t>(binding->offset());
        Extent extent = {room.memory(), base + bytes.least, base + bytes.greatest};
        auto [entry, isNew] = known.emplace(std::tuple(owned, number++), extent);
        if (!isNew && entry->second != extent)
          add("stage {}: bucket '{}' of layer {} is in two places", index, bucket.name(), use.owner());
        if (isNew && !taken.emplace(extent, owned).second)
          add("stage {}: bucket '{}' of layer {} overlaps another", index, bucket.name(), use.owner());
      };
      place(bucket.stored());
      if (bucket.has_gradient())
        place(bucket.gradient());
      for (const pb::Buffer &state : bucket.state())
        if (use.updates())
          place(state);
    }
  const Extent *before = nullptr;
  for (const auto &[extent, owned] : taken) {
    if (before && before->memory == extent.memory && extent.begin < before->end)
      add("stage {}: bucket '{}' of layer {} overlaps another", index,
          plan.buckets(static_cast<int>(owned.first)).name(), owned.second);
    before = &extent;
  }
}

/// Checks that each slice lies inside its whole value and has its type. The step is an exception: it is an integer
/// among floats of its width.
void Layout::checkWholes() {
  auto isLike = [](pb::DataType one, pb::DataType whole) {
    return one == whole || (one == pb::I32 && whole == pb::F32);
  };
  for (const pb::Value &value : plan.values()) {
    if (value.whole() == 0)
      continue;
    const pb::Value &whole = plan.values(static_cast<int>(value.whole()) - 1);
    if (value.first() + value.elements() > whole.elements() || !isLike(value.type(), whole.type()))
      add("value '{}': elements {} to {} of '{}', which has {}", value.name(), value.first(),
          value.first() + value.elements(), whole.name(), whole.elements());
  }
}

/// Checks that buffers whose address depends on the mesh coordinate are only read.
void Layout::checkReads(const pb::Subprogram &subprogram) {
  for (int i = 0; i < subprogram.instructions_size(); ++i) {
    const pb::Instruction &instruction = subprogram.instructions(i);
    auto check = [&](const pb::Buffer &buffer, pb::Operand::Access access) {
      if (buffer.has_reads_at() && access != pb::Operand::READ)
        add("{}: writes at a place that depends on the coordinate", instructionName(plan, subprogram, i));
    };
    const pb::Launch &launch = instruction.launch();
    const pb::Kernel *kernel = instruction.has_launch() ? &plan.kernels(static_cast<int>(launch.kernel())) : nullptr;
    for (int k = 0; kernel && k < std::min(launch.buffers_size(), kernel->operands_size()); ++k)
      check(launch.buffers(k), kernel->operands(k).access());
    auto rules = instruction.has_call() ? operandsOf(instruction.call()) : std::nullopt;
    int size = rules ? std::min(instruction.call().buffers_size(), static_cast<int>(rules->size())) : 0;
    for (int k = 0; k < size; ++k)
      check(instruction.call().buffers(k), (*rules)[static_cast<size_t>(k)].access);
  }
}

void Layout::checkReads(const pb::Transfer &transfer) {
  for (const pb::Buffer &buffer : transfer.to())
    if (buffer.has_reads_at())
      add("{}: writes at a place that depends on the coordinate", transfer.name());
}

} // namespace

void verifyLayout(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) { Layout(plan, mesh, errors).check(); }

} // namespace espalier::rt::verify
