// Dynamic programming over kinds: extends every state by every choice for the next kind. It drops dominated states.
// With a single chunk it also drops states that a Lagrangian bound rules out (recompute_bound.h). Few states remain.
#include "planner/search/recompute_choices.h"

#include "planner/search/recompute_bound.h"
#include "planner/search/recompute_states.h"

#include <algorithm>
#include <optional>

namespace espalier::planner {

namespace {

constexpr double kRounded = 1 + 1e-13; // a choice that fits only by rounding does not fit
constexpr size_t kMostStates = 4096;   // over all kinds, if there are few kinds
constexpr size_t kFewKinds = 8;        // with more kinds than this,
constexpr size_t kFewStates = 48;      // at most this many states remain after each kind
constexpr size_t kMostExtended = 8192; // 126 layers of one kind have 8,128 choices
constexpr int kMostCounts = 128;       // numbers of layers to try, if a kind has more on several chunks

// Returns the bytes that a layer keeps under each policy, if `live` is in its chunk.
PerRecompute<double> savedBytes(const SegmentCost &cost, const LivePeaks &live) {
  PerRecompute<double> bytes;
  for (Recompute recompute : kRecomputes)
    bytes[recompute] = keptBytes(cost, recompute, live);
  return bytes;
}

// The costs of one layer of a kind under each policy, and the chunks of the kind's layers.
struct KindLayers {
  KindLayers() = default;
  // `live` has an element per chunk.
  KindLayers(const SegmentCost &cost, const LikeLayers &like, const std::vector<LivePeaks> &live)
      : chunks(live.size()), layers(static_cast<int>(like.chunks.size())), firstLayers((layers + 1) * chunks),
        perLayer(chunks) {
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      PerRecompute<double> bytes = savedBytes(cost, live[chunk]);
      for (Recompute recompute : kRecomputes)
        perLayer[chunk][recompute] = {segmentSeconds(cost, recompute), bytes[recompute]};
    }
    for (Recompute recompute : kRecomputes) {
      seconds[recompute] = perLayer[0][recompute].seconds.total();
      peakBytes[recompute] = planner::peakBytes(cost, recompute);
      bufferBytes[recompute] = cost.savedBufferBytes[recompute];
    }
    for (int i = 0; i < layers; ++i) {
      std::copy_n(firstLayers.begin() + i * chunks, chunks, firstLayers.begin() + (i + 1) * chunks);
      ++firstLayers[(i + 1) * chunks + like.chunks[i]];
    }
  }

  // Returns the number of layers in a chunk, by policy.
  PerRecompute<int> countsOf(size_t chunk, const RecomputedLayers &recomputed) const {
    int full = firstLayers[recomputed.full * chunks + chunk],
        some = firstLayers[(recomputed.full + recomputed.selective) * chunks + chunk];
    return {firstLayers[layers * chunks + chunk] - some, some - full, full};
  }

  size_t chunks = 0;
  int layers = 0;
  std::vector<int> firstLayers;                 // [n * chunks + chunk]: how many of the first n layers are in the chunk
  std::vector<PerRecompute<ChunkUse>> perLayer; // by chunk
  PerRecompute<double> seconds{}, peakBytes{}, bufferBytes{};
};

// Extends states by the choices for one kind of layer after the other.
class RecomputeSearch {
public:
  RecomputeSearch(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room, bool onlyFastest)
      : costs(costs), kinds(kinds), room(room), onlyFastest(onlyFastest), chunks(room.ends.size()),
        mostStates(kinds.size() > kFewKinds ? kFewStates : kMostStates / std::max<size_t>(kinds.size(), 1)),
        live(room.live), states(room, chunks), saved(chunks) {
    live.resize(chunks);
    for (const std::vector<int> &inFlight : room.inFlight) {
      double ends = 0;
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        ends += inFlight[chunk] * room.ends[chunk];
      mostEnds = std::max(mostEnds, ends);
    }
    leastAfter.assign((kinds.size() + 1) * chunks, 0);
    for (size_t kind = kinds.size(); kind-- > 0;) {
      std::copy_n(&leastAfter[(kind + 1) * chunks], chunks, &leastAfter[kind * chunks]);
      for (int chunk : kinds[kind].chunks)
        leastAfter[kind * chunks + chunk] += std::ranges::min(savedBytes(costs.kinds[kinds[kind].kind], live[chunk]));
    }
  }

  RecomputeChoices run() {
    if (chunks == 1 && onlyFastest && !room.areActivationsOffloaded && kinds.size() > 1)
      bound.emplace(costs, kinds, live[0], room.inFlight[0][0], room.endsPeakBytes,
                    room.bytes / kRounded - room.fixedBytes - mostEnds);
    if (bound)
      mostStates = kMostStates;
    solve();
    RecomputeChoices choices;
    choices.fits = anyFits;
    choices.isComplete = isComplete;
    if (!anyFits && kinds.size() > 1) { // the choice that needs least may be any of them
      mustFit = false;
      bound.reset();
      solve();
    }
    for (size_t i = 0; i < states.size(); ++i)
      choices.list.push_back(choiceOf(i));
    choices.visits = visits;
    return choices;
  }

private:
  void solve() {
    history.clear();
    leastShare = kInfinity;
    states.reset(room.endsPeakBytes);
    for (size_t i = 0; i < kinds.size() && states.size() > 0; ++i) {
      size_t layers = kinds[i].chunks.size();
      thin(std::max(kFewStates, 2 * kMostExtended / ((layers + 1) * (layers + 2))));
      isLast = i + 1 == kinds.size();
      extend(kinds[i]);
      if (isLast && (onlyFastest || !anyFits)) { // only the fastest, or the one that needs least, remains
        proposed = states[0];
        states.clear();
        append();
        return;
      }
      thin(kMostExtended);
      states.dropDominated({.byTime = mustFit, .byAction = !onlyFastest, .keepsMemory = !isLast});
      if (!isLast)
        thin(mostStates);
    }
  }

  void thin(size_t most) { isComplete = !states.thin(most) && isComplete; }

  // Extends every state by the choices for the layers of a kind that may be part of the result. The last kind takes
  // only choices that fit.
  void extend(const LikeLayers &like) {
    present = KindLayers(costs.kinds[like.kind], like, live);
    layers = present.layers;
    step = chunks > 1 || kinds.size() > 1 ? std::max(1, (layers + kMostCounts - 1) / kMostCounts) : 1;
    isComplete = isComplete && step == 1;
    history.push_back(states.takeStates());
    parentUses = states.takeUses();
    states.clear();
    for (uint32_t parent = 0; parent < history.back().size(); ++parent) {
      auto fits = [&](int full, int selective) {
        propose(parent, {full, selective});
        return isLast ? fitsOrNeedsLeast() : (!mustFit || shareOfProposed() <= 1) && (!bound || mayBeFastest());
      };
      if (isLast && !room.areActivationsOffloaded)
        extendByFewest(fits);
      else
        for (int full = 0; full <= layers; full = after(full, layers))
          for (int selective = 0; full + selective <= layers; selective = after(selective, layers - full))
            if (fits(full, selective))
              accept();
    }
  }

  // Returns the next number of layers to try after `count`, up to `most`. Always tries 0 and `most`.
  int after(int count, int most) const { return count < most ? std::min(count + step, most) : most + 1; }

  // Used if less recompute is always faster: for each number of full layers, finds the fewest selective layers that
  // fit.
  template <typename Fits> void extendByFewest(Fits fits) {
    for (int full = 0; full <= layers; full = after(full, layers)) {
      if (fits(full, 0)) {
        accept();
        return;
      }
      if (onlyFastest && anyFits && proposed.total >= states[0].total)
        return;
      int low = 0, selective = layers - full;
      if (!fits(full, selective))
        continue;
      while (selective > low + 1) { // bisection: keeping less needs less memory
        int middle = (low + selective) / 2;
        (fits(full, middle) ? selective : low) = middle;
      }
      fits(full, selective);
      accept();
    }
  }

  bool mayBeFastest() {
    double bytes = room.inFlight[0][0] * (saved[0] - leastAfter[history.size()]);
    return bound->mayBeFastest(history.size(), proposed.total, bytes, proposed.peakBytes);
  }

  // Sets `proposed` and `saved` to a state extended by a choice. accept() computes the costs of its chunks.
  void propose(uint32_t parent, const RecomputedLayers &recomputed) {
    proposed = history.back()[parent];
    proposed.parent = parent;
    proposed.recomputed = recomputed;
    const PerRecompute<int> counts = {layers - recomputed.full - recomputed.selective, recomputed.selective,
                                      recomputed.full};
    for (Recompute i : kRecomputes)
      if (counts[i] > 0) {
        proposed.total += counts[i] * present.seconds[i];
        proposed.peakBytes = std::max(proposed.peakBytes, present.peakBytes[i]);
        proposed.bufferBytes = std::max(proposed.bufferBytes, present.bufferBytes[i]);
      }
    visits += static_cast<int64_t>(chunks);
    const double *leastLeft = &leastAfter[history.size() * chunks];
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      PerRecompute<int> here = present.countsOf(chunk, recomputed);
      saved[chunk] = leastLeft[chunk] + parentUses[parent * chunks + chunk].savedBytes;
      for (Recompute i : kRecomputes)
        saved[chunk] += here[i] * present.perLayer[chunk][i].savedBytes;
    }
  }

  // Returns whether the proposed state fits. Until one fits, the state that needs least is the only one.
  bool fitsOrNeedsLeast() {
    double share = shareOfProposed();
    if (share > 1 && !anyFits && share < leastShare) {
      leastShare = share;
      makeOnlyState();
    }
    return share <= 1;
  }

  void makeOnlyState() {
    states.clear();
    states.add(proposed, {});
  }

  void append() {
    extended.resize(chunks);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      extended[chunk] = parentUses[proposed.parent * chunks + chunk];
      extended[chunk].add(present.perLayer[chunk], present.countsOf(chunk, proposed.recomputed));
    }
    states.add(proposed, extended);
  }

  // Adds the proposed state, which fits. With `onlyFastest` it replaces a slower state.
  void accept() {
    if (isLast && onlyFastest) {
      if (!anyFits || proposed.total < states[0].total)
        makeOnlyState();
    } else {
      if (isLast && !anyFits)
        states.clear(); // drops the state that needs least
      append();
    }
    anyFits = isLast;
  }

  // Returns the share of memory that the proposed state needs, on the device or in host memory, whichever is larger.
  double shareOfProposed() {
    visits += static_cast<int64_t>(chunks * room.inFlight.size());
    double most = states.bytesInFlight([&](size_t chunk) { return saved[chunk]; });
    double device = most + proposed.peakBytes, host = room.fixedHostBytes;
    if (room.areActivationsOffloaded) {
      device = std::max(mostEnds + proposed.peakBytes, room.stepBytes) + std::min(most, proposed.bufferBytes);
      host = (host + most) * kRounded;
    }
    double share = (room.fixedBytes + std::max(device, room.stepBytes)) / room.bytes * kRounded;
    return host > 0 ? std::max(share, host / room.hostBytes) : share;
  }

  RecomputeChoice choiceOf(size_t i) const {
    RecomputeChoice choice;
    for (size_t chunk = 0; chunk < chunks; ++chunk)
      choice.seconds.push_back(states.use(i, chunk).seconds);
    choice.recomputed.resize(kinds.size());
    const RecomputeState *state = &states[i];
    for (size_t kind = kinds.size(); kind-- > 0; state = &history[kind][state->parent])
      choice.recomputed[kind] = state->recomputed;
    return choice;
  }

  const CostTable &costs;
  const std::vector<LikeLayers> &kinds;
  const StageRoom &room;
  bool onlyFastest;
  size_t chunks, mostStates;
  std::vector<LivePeaks> live;         // per chunk
  std::optional<RecomputeBound> bound; // only for one chunk with values on the device
  double mostEnds = 0;                 // peak of bytes kept outside the layers
  RecomputeStates states;
  std::vector<std::vector<RecomputeState>> history; // the states before each kind
  std::vector<ChunkUse> parentUses;                 // of those before the present kind
  KindLayers present;                               // the kind that extends the states
  int layers = 0, step = 1; // layers of the present kind; step between the numbers of layers to try
  int64_t visits = 0;       ///< of chunks
  bool isLast = false;
  RecomputeState proposed;
  std::vector<ChunkUse> extended; // the chunks of the state that is added
  std::vector<double> saved;      // of one micro-batch by each chunk, with the least of the kinds that follow
  std::vector<double> leastAfter; // what the kinds from one on keep at least: [kind * chunks + chunk]
  bool mustFit = true;            // states that cannot fit are dropped on the way
  bool anyFits = false, isComplete = true;
  double leastShare = kInfinity;
};

} // namespace

RecomputeChoices chooseRecompute(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room,
                                 bool onlyFastest) {
  return RecomputeSearch(costs, kinds, room, onlyFastest).run();
}

} // namespace espalier::planner
