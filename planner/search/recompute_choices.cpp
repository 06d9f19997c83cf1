// Dynamic programming over kinds: extends every state by every choice for the next kind. It drops dominated states.
// With a single chunk it also drops states that a Lagrangian bound rules out (recompute_bound.h). Few states remain.
#include "planner/search/recompute_choices.h"

#include "planner/search/recompute_bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <ranges>
#include <tuple>

namespace espalier::planner {

namespace {

constexpr double kRounded = 1 + 1e-13; // a choice that fits only by rounding does not fit
constexpr size_t kMostStates = 4096;   // over all kinds, if there are few kinds
constexpr size_t kFewKinds = 8;        // with more kinds than this,
constexpr size_t kFewStates = 48;      // at most this many states remain after each kind
constexpr size_t kMostExtended = 8192; // 126 layers of one kind have 8,128 choices
constexpr int kMostCounts = 128;       // numbers of layers to try, if a kind has more on several chunks

// Time and memory of layers of a chunk for one micro-batch.
struct ChunkUse {
  ChunkSeconds seconds;
  double savedBytes = 0;

  void add(const PerRecompute<ChunkUse> &perLayer, const PerRecompute<int> &layers) {
    for (Recompute recompute : kRecomputes) {
      seconds.add(perLayer[recompute].seconds, layers[recompute]);
      savedBytes += layers[recompute] * perLayer[recompute].savedBytes;
    }
  }
};

bool takesNoLonger(const ChunkSeconds &a, const ChunkSeconds &b) {
  return a.forward <= b.forward && a.backward <= b.backward && a.weight <= b.weight;
}

// A choice for the kinds so far. RecomputeSearch::uses has the cost of each chunk under it.
struct State {
  double total = 0;                      // seconds of all chunks
  double peakBytes = 0, bufferBytes = 0; // largest of any layer
  uint32_t parent = 0;                   // index of the state for the kinds before
  RecomputedLayers recomputed;
};

class RecomputeSearch {
public:
  RecomputeSearch(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room, bool onlyFastest)
      : costs(costs), kinds(kinds), room(room), onlyFastest(onlyFastest), chunks(room.ends.size()),
        mostStates(kinds.size() > kFewKinds ? kFewStates : kMostStates / std::max<size_t>(kinds.size(), 1)),
        saved(chunks) {
    for (const std::vector<int> &inFlight : room.inFlight) {
      double ends = 0;
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        ends += inFlight[chunk] * room.ends[chunk];
      endsInFlight.push_back(ends);
    }
    mostEnds = endsInFlight.empty() ? 0 : std::ranges::max(endsInFlight);
    leastAfter.assign((kinds.size() + 1) * chunks, 0);
    for (size_t kind = kinds.size(); kind-- > 0;) {
      std::copy_n(&leastAfter[(kind + 1) * chunks], chunks, &leastAfter[kind * chunks]);
      for (int chunk : kinds[kind].chunks)
        leastAfter[kind * chunks + chunk] += std::ranges::min(costs.kinds[kinds[kind].kind].savedBytes);
    }
  }

  RecomputeChoices run() {
    if (chunks == 1 && onlyFastest && !room.areActivationsOffloaded && kinds.size() > 1)
      bound.emplace(costs, kinds, room.inFlight[0][0], room.endsPeakBytes,
                    room.bytes / kRounded - room.fixedBytes - endsInFlight[0]);
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
    leastShare = std::numeric_limits<double>::infinity();
    states.assign(1, {});
    states[0].peakBytes = room.endsPeakBytes;
    uses.assign(chunks, {});
    for (size_t i = 0; i < kinds.size() && !states.empty(); ++i) {
      size_t layers = kinds[i].chunks.size();
      thin(std::max(kFewStates, 2 * kMostExtended / ((layers + 1) * (layers + 2))));
      isLast = i + 1 == kinds.size();
      extend(kinds[i]);
      if (isLast && (onlyFastest || !anyFits)) { // only the fastest, or the one that needs least, remains
        proposed = states.front();
        states.clear();
        append();
        return;
      }
      thin(kMostExtended);
      dropDominated();
      if (!isLast)
        thin(mostStates);
    }
  }

  // Loads the costs and layers of a kind.
  void loadKind(const LikeLayers &like) {
    layers = static_cast<int>(like.chunks.size());
    step = chunks > 1 || kinds.size() > 1 ? std::max(1, (layers + kMostCounts - 1) / kMostCounts) : 1;
    isComplete = isComplete && step == 1;
    const SegmentCost &cost = costs.kinds[like.kind];
    for (Recompute recompute : kRecomputes) {
      perLayer[recompute] = {segmentSeconds(cost, recompute), cost.savedBytes[recompute]};
      layerTotals[recompute] = perLayer[recompute].seconds.total();
      layerPeaks[recompute] = planner::peakBytes(cost, recompute);
      layerBuffers[recompute] = cost.savedBufferBytes[recompute];
    }
    firstLayers.assign((layers + 1) * chunks, 0);
    for (int i = 0; i < layers; ++i) {
      std::copy_n(firstLayers.begin() + i * chunks, chunks, firstLayers.begin() + (i + 1) * chunks);
      ++firstLayers[(i + 1) * chunks + like.chunks[i]];
    }
  }

  // Extends every state by the choices for the layers of a kind that may be part of the result. The last kind takes
  // only choices that fit.
  void extend(const LikeLayers &like) {
    loadKind(like);
    history.push_back(std::move(states));
    parentUses = std::move(uses);
    states.clear();
    uses.clear();
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
      if (onlyFastest && anyFits && proposed.total >= states.front().total)
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

  // Returns the number of layers of the current kind in a chunk, by class.
  PerRecompute<int> countsOf(size_t chunk, const RecomputedLayers &recomputed) const {
    int full = firstLayers[recomputed.full * chunks + chunk],
        some = firstLayers[(recomputed.full + recomputed.selective) * chunks + chunk];
    return {firstLayers[layers * chunks + chunk] - some, some - full, full};
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
        proposed.total += counts[i] * layerTotals[i];
        proposed.peakBytes = std::max(proposed.peakBytes, layerPeaks[i]);
        proposed.bufferBytes = std::max(proposed.bufferBytes, layerBuffers[i]);
      }
    visits += static_cast<int64_t>(chunks);
    const double *leastLeft = &leastAfter[history.size() * chunks];
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      PerRecompute<int> here = countsOf(chunk, recomputed);
      saved[chunk] = leastLeft[chunk] + parentUses[parent * chunks + chunk].savedBytes;
      for (Recompute i : kRecomputes)
        saved[chunk] += here[i] * perLayer[i].savedBytes;
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
    states.assign(1, proposed);
    uses.clear();
  }

  void append() {
    states.push_back(proposed);
    uses.resize((states.size() - 1) * chunks);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      ChunkUse use = parentUses[proposed.parent * chunks + chunk];
      use.add(perLayer, countsOf(chunk, proposed.recomputed));
      uses.push_back(use);
    }
  }

  // Adds the proposed state, which fits. With `onlyFastest` it replaces a slower state.
  void accept() {
    if (isLast && onlyFastest) {
      if (!anyFits || proposed.total < states.front().total)
        makeOnlyState();
    } else {
      if (isLast && !anyFits)
        states.clear(); // drops the state that needs least
      append();
    }
    anyFits = isLast;
  }

  // Returns the peak of kept bytes if chunks keep savedBytes(chunk) per micro-batch. Includes values kept outside the
  // layers if they lie in the same memory.
  template <typename SavedBytes> double bytesInFlight(SavedBytes savedBytes) const {
    double most = 0;
    for (size_t i = 0; i < room.inFlight.size(); ++i) {
      double bytes = room.areActivationsOffloaded ? 0 : endsInFlight[i];
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        bytes += room.inFlight[i][chunk] * savedBytes(chunk);
      most = std::max(most, bytes);
    }
    return most;
  }

  double bytesInFlightOf(size_t state) const {
    return bytesInFlight([&](size_t chunk) { return uses[state * chunks + chunk].savedBytes; });
  }

  // Returns the share of memory that the proposed state needs, on the device or in host memory, whichever is larger.
  double shareOfProposed() {
    visits += static_cast<int64_t>(chunks * room.inFlight.size());
    double most = bytesInFlight([&](size_t chunk) { return saved[chunk]; });
    double device = most + proposed.peakBytes, host = room.fixedHostBytes;
    if (room.areActivationsOffloaded) {
      device = std::max(mostEnds + proposed.peakBytes, room.stepBytes) + std::min(most, proposed.bufferBytes);
      host = (host + most) * kRounded;
    }
    double share = (room.fixedBytes + std::max(device, room.stepBytes)) / room.bytes * kRounded;
    return host > 0 ? std::max(share, host / room.hostBytes) : share;
  }

  // Returns whether state `one`, which is not slower overall, makes `other` unnecessary. It must not be slower in any
  // action, unless only the fastest is wanted. Before the last kind it must not need more bytes.
  bool dominates(uint32_t one, uint32_t other) const {
    if (!isLast &&
        (states[one].peakBytes > states[other].peakBytes || states[one].bufferBytes > states[other].bufferBytes))
      return false;
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      const ChunkUse &a = uses[one * chunks + chunk], &b = uses[other * chunks + chunk];
      if ((mustFit && !onlyFastest && !takesNoLonger(a.seconds, b.seconds)) || (!isLast && a.savedBytes > b.savedBytes))
        return false;
    }
    return true;
  }

  // If nothing fits (not `mustFit`), time does not matter.
  void dropDominated() {
    std::vector<std::pair<double, uint32_t>> order;
    for (uint32_t i = 0; i < states.size(); ++i)
      order.emplace_back(mustFit ? states[i].total : bytesInFlightOf(i), i);
    std::ranges::sort(order);
    std::vector<uint32_t> left;
    for (const auto &[key, i] : order)
      if (std::ranges::none_of(std::views::reverse(left), [&](uint32_t other) { return dominates(other, i); }))
        left.push_back(i);
    retain(left);
  }

  // Keeps at most `most` states: orders them by bytes, cuts them into equal groups, and keeps the fastest of each
  // group and the state with the fewest bytes.
  void thin(size_t most) {
    if (states.size() <= most)
      return;
    isComplete = false;
    std::vector<std::pair<double, uint32_t>> order;
    for (uint32_t i = 0; i < states.size(); ++i)
      order.emplace_back(bytesInFlightOf(i), i);
    std::ranges::sort(order);
    std::vector<uint32_t> left = {order[0].second};
    for (size_t part = 0, parts = most - 1; part < parts; ++part) {
      auto first = order.begin() + part * order.size() / parts,
           last = order.begin() + (part + 1) * order.size() / parts;
      uint32_t fastest =
          std::ranges::min_element(first, last, {}, [&](const auto &one) { return states[one.second].total; })->second;
      if (fastest != left[0])
        left.push_back(fastest);
    }
    retain(left);
  }

  void retain(const std::vector<uint32_t> &left) {
    std::vector<State> someStates;
    std::vector<ChunkUse> someUses;
    for (uint32_t i : left) {
      someStates.push_back(states[i]);
      someUses.insert(someUses.end(), uses.begin() + i * chunks, uses.begin() + (i + 1) * chunks);
    }
    states = std::move(someStates);
    uses = std::move(someUses);
  }

  RecomputeChoice choiceOf(size_t i) const {
    RecomputeChoice choice;
    for (size_t chunk = 0; chunk < chunks; ++chunk)
      choice.seconds.push_back(uses[i * chunks + chunk].seconds);
    choice.recomputed.resize(kinds.size());
    const State *state = &states[i];
    for (size_t kind = kinds.size(); kind-- > 0; state = &history[kind][state->parent])
      choice.recomputed[kind] = state->recomputed;
    return choice;
  }

  const CostTable &costs;
  const std::vector<LikeLayers> &kinds;
  const StageRoom &room;
  bool onlyFastest;
  size_t chunks, mostStates;
  std::optional<RecomputeBound> bound; // only for one chunk with values on the device
  std::vector<double> endsInFlight;    // bytes kept outside the layers, at each peak
  double mostEnds = 0;
  std::vector<State> states;
  std::vector<ChunkUse> uses;              // [state * chunks + chunk]
  std::vector<std::vector<State>> history; // the states before each kind
  std::vector<ChunkUse> parentUses;        // of those before the present kind
  // The present kind: what one layer takes in each class, and how many of its first layers each chunk has:
  // firstLayers[n * chunks + chunk] of the first n.
  int layers = 0, step = 1; ///< step: of the numbers of layers that are tried
  int64_t visits = 0;       ///< of chunks
  bool isLast = false;
  PerRecompute<ChunkUse> perLayer;
  PerRecompute<double> layerTotals{}, layerPeaks{}, layerBuffers{};
  std::vector<int> firstLayers;
  State proposed;
  std::vector<double> saved;      // of one micro-batch by each chunk, with the least of the kinds that follow
  std::vector<double> leastAfter; // what the kinds from one on keep at least: [kind * chunks + chunk]
  bool mustFit = true;            // states that cannot fit are dropped on the way
  bool anyFits = false, isComplete = true;
  double leastShare = std::numeric_limits<double>::infinity();
};

} // namespace

RecomputeChoices chooseRecompute(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room,
                                 bool onlyFastest) {
  return RecomputeSearch(costs, kinds, room, onlyFastest).run();
}

} // namespace espalier::planner
