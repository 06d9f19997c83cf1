// A layer call writes its stream directly into the next call's saved stream. A stream that the backward pass does not
// read is not saved: the forward pass then uses the two cotangent buffers. If two consecutive chunks are on one stage
// (the middle of a V-shaped schedule), the first writes directly into the buffer that the second reads.
#include "compiler/link/bind_activations.h"

#include "compiler/codegen/guards.h"

#include <array>
#include <map>

using namespace mlir;

namespace espalier {

using namespace rt::pb;
using exec::Region;
using exec::Role;

namespace {

/// A live range of saved values, and the region that holds them.
struct KeptKind {
  LifetimeKind lifetime;
  Region region;
};
constexpr KeptKind keptKinds[] = {{LifetimeKind::Saved, Region::Saved},
                                  {LifetimeKind::SavedForWeights, Region::SavedForWeights},
                                  {LifetimeKind::SavedByBackward, Region::SavedByBackward}};

/// The values that a chunk saves per micro-batch in one live range: their allocation, and each layer call's offset in
/// it.
struct Kept {
  uint32_t place = 0;
  std::vector<uint64_t> offsets;
};

/// The allocations of a chunk's streams, saved values and cotangents.
struct ChunkPlaces {
  std::array<Kept, std::size(keptKinds)> kept; ///< by keptKinds
  std::vector<std::pair<uint32_t, uint64_t>>
      streams; ///< by layer call: allocation and offset of the stream that it reads
  uint32_t received = 0, sent = 0, cotangentIn = 0, cotangentOut = 0; ///< buffers at the two ends of the chunk
};

class ActivationBinder {
public:
  ActivationBinder(StageDraft &draft, PlaceBuilder &places)
      : draft(draft), in(draft.in), stage(draft.stage), places(places) {}

  void bind() {
    std::vector<ChunkPlaces> taken;
    for (auto [number, calls] : llvm::enumerate(draft.chunks))
      taken.push_back(take(number, calls));
    uint64_t bytes = in.regions.streamBytes;
    for (uint32_t &cotangent : cotangents)
      cotangent = places.take(bytes, 0, "boundary");
    for (auto [number, calls] : llvm::enumerate(draft.chunks))
      bindChunk(calls, draft.firstCall(number), taken[number]);
  }

private:
  uint64_t savedBytes(const LayerCall &call, Region region) const {
    auto found = in.regions.savedBytes.find({call.kind + "." + call.policy, exec::stringifyRegion(region).str()});
    return found == in.regions.savedBytes.end() ? 0 : found->second;
  }

  /// Returns whether the backward pass, or the weight-gradient pass after it, reads the received stream.
  bool keepsStream(const Call &call) const {
    return in.trains && (call.programs(static_cast<int>(Role::Backward)) == 0 ||
                         draft.extents.bytes(call, Role::Backward, Region::StreamIn) > 0 || readsStreamLate(call));
  }
  bool readsStreamLate(const Call &call) const { return draft.extents.bytes(call, Role::Weight, Region::StreamIn) > 0; }

  ChunkPlaces take(size_t number, ArrayRef<LayerCall> calls) {
    ChunkPlaces taken;
    taken.streams.resize(calls.size());
    for (auto [kind, kept] : llvm::zip_equal(keptKinds, taken.kept))
      takeKept(number, calls, kind, kept, taken);
    taken.received = takeBorder(number, LifetimeKind::In, "activations");
    taken.sent = takeBorder(number, LifetimeKind::Out, "boundary");
    taken.cotangentOut = takeBorder(number, LifetimeKind::DOut, "boundary");
    taken.cotangentIn = takeBorder(number, LifetimeKind::DIn, "boundary");
    return taken;
  }

  /// Allocates the saved values of one live range, with the streams that live as long.
  void takeKept(size_t number, ArrayRef<LayerCall> calls, const KeptKind &kind, Kept &kept, ChunkPlaces &taken) {
    uint64_t stream = alignUp(in.regions.streamBytes, in.regions.guardBytes), bytes = 0;
    std::vector<size_t> streams; // layer calls whose streams are in this allocation
    for (auto [i, call] : llvm::enumerate(calls)) {
      const Call &made = stage.calls(draft.firstCall(number) + static_cast<int>(i));
      auto lifetime = readsStreamLate(made) ? LifetimeKind::SavedForWeights : LifetimeKind::Saved;
      if (i > 0 && keepsStream(made) && kind.lifetime == lifetime) { // the first call's stream has its own allocation
        streams.push_back(i);
        taken.streams[i].second = bytes;
        bytes += stream;
      }
      kept.offsets.push_back(bytes);
      bytes += savedBytes(call, kind.region);
    }
    if (bytes)
      kept.place = places.take(bytes, draft.lifetimeOf(number, kind.lifetime), "activations");
    for (size_t i : streams)
      taken.streams[i].first = kept.place;
  }

  /// Allocates a buffer at an end of a chunk. Consecutive chunks on one stage use the same live range and allocation
  /// for the value that one passes to the next.
  uint32_t takeBorder(size_t number, LifetimeKind kind, const char *memoryClass) {
    uint32_t lifetime = draft.lifetimeOf(number, kind);
    if (lifetime == 0)
      return 0;
    auto [place, isNew] = borders.try_emplace(lifetime, 0);
    if (isNew)
      place->second = places.take(in.regions.streamBytes, lifetime, memoryClass);
    return place->second;
  }

  void bindChunk(ArrayRef<LayerCall> calls, int first, const ChunkPlaces &at) {
    int count = static_cast<int>(calls.size());
    auto bindStream = [&](Call &call, Region region, int i) { // binds the stream that call i reads
      if (i == 0)
        PlaceBuilder::bind(call, region, at.received);
      else if (keepsStream(stage.calls(first + i)))
        PlaceBuilder::bind(call, region, at.streams[i].first, at.streams[i].second);
      else
        PlaceBuilder::bind(call, region, cotangents[i % 2]);
    };
    for (int i = 0; i < count; ++i) {
      Call &call = *stage.mutable_calls(first + i);
      bool hasIn = i > 0 || at.received, hasOut = i + 1 < count || at.sent, isLast = i + 1 == count;
      for (auto [kind, kept] : llvm::zip_equal(keptKinds, at.kept))
        if (savedBytes(calls[i], kind.region))
          PlaceBuilder::bind(call, kind.region, kept.place, kept.offsets[i]);
      if (hasIn)
        bindStream(call, Region::StreamIn, i);
      if (hasIn && in.trains)
        PlaceBuilder::bind(call, Region::CotangentIn, i == 0 ? at.cotangentIn : cotangents[i % 2]);
      if (hasOut && isLast)
        PlaceBuilder::bind(call, Region::StreamOut, at.sent);
      else if (hasOut)
        bindStream(call, Region::StreamOut, i + 1);
      if (hasOut && in.trains)
        PlaceBuilder::bind(call, Region::CotangentOut, isLast ? at.cotangentOut : cotangents[(i + 1) % 2]);
    }
  }

  StageDraft &draft;
  const StageInputs &in;
  Stage &stage;
  PlaceBuilder &places;
  std::map<uint32_t, uint32_t> borders; ///< by live range
  std::array<uint32_t, 2> cotangents{}; ///< two buffers that layer calls use in turn
};

} // namespace

void bindActivations(StageDraft &draft, PlaceBuilder &places) { ActivationBinder(draft, places).bind(); }

} // namespace espalier
