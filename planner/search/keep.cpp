// Dynamic programming over kinds: every state so far is extended by every choice for the next kind. States that another
// one dominates in time and bytes are dropped on the way, and with a single chunk those that a Lagrangian bound rules
// out (keep_bound.h), so that few are left.
#include "planner/search/keep.h"

#include "planner/search/keep_bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <ranges>
#include <tuple>

namespace espalier::planner {

namespace {

constexpr double kRounded = 1 + 1e-13; // what fits only by rounding does not
constexpr size_t kMostStates = 4096;   // over all kinds where they are few
constexpr size_t kFewKinds = 8;        // with more of them,
constexpr size_t kFewStates = 48;      // so many states are left behind each kind
constexpr size_t kMostExtended = 8192; // of 126 layers of one kind there are 8,128 choices

// A choice for the kinds so far. Its row of KeepSearch::rows holds for each chunk the seconds of forward, backward and
// weight gradients, and the bytes that one micro-batch keeps.
struct State {
  double total = 0;                      // seconds of all chunks
  double peakBytes = 0, bufferBytes = 0; // largest of any layer
  uint32_t parent = 0;                   // the state for the kinds before
  RecomputedLayers recomputed;
};

class KeepSearch {
public:
  KeepSearch(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room, bool onlyFastest)
      : costs(costs), kinds(kinds), room(room), onlyFastest(onlyFastest), chunks(room.ends.size()), width(4 * chunks),
        mostStates(kinds.size() > kFewKinds ? kFewStates : kMostStates / std::max<size_t>(kinds.size(), 1)),
        kept(chunks) {
    for (const std::vector<int> &moment : room.held) {
      double ends = 0;
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        ends += moment[chunk] * room.ends[chunk];
      heldEnds.push_back(ends);
    }
    mostEnds = heldEnds.empty() ? 0 : *std::ranges::max_element(heldEnds);
    leastAfter.assign((kinds.size() + 1) * chunks, 0);
    for (size_t kind = kinds.size(); kind-- > 0;) {
      std::copy_n(&leastAfter[(kind + 1) * chunks], chunks, &leastAfter[kind * chunks]);
      for (int chunk : kinds[kind].chunks)
        leastAfter[kind * chunks + chunk] += std::ranges::min(costs.kinds[kinds[kind].kind].savedBytes);
    }
  }

  KeepChoices run() {
    if (chunks == 1 && onlyFastest && !room.areLayersElsewhere && kinds.size() > 1)
      bound.emplace(costs, kinds, room.held[0][0], room.endsPeakBytes,
                    room.bytes / kRounded - room.fixedBytes - heldEnds[0]);
    if (bound)
      mostStates = kMostStates;
    solve();
    KeepChoices choices;
    choices.fits = anyFits;
    choices.isComplete = isComplete;
    if (!anyFits && kinds.size() > 1) { // what needs least is among all
      mustFit = false;
      bound.reset();
      solve();
    }
    for (size_t i = 0; i < states.size(); ++i)
      choices.list.push_back(choiceOf(i));
    return choices;
  }

private:
  void solve() {
    history.clear();
    leastShare = std::numeric_limits<double>::infinity();
    states.assign(1, {});
    states[0].peakBytes = room.endsPeakBytes;
    rows.assign(width, 0);
    for (size_t i = 0; i < kinds.size() && !states.empty(); ++i) {
      size_t layers = kinds[i].chunks.size();
      thin(std::max(kFewStates, 2 * kMostExtended / ((layers + 1) * (layers + 2))));
      isLast = i + 1 == kinds.size();
      extend(kinds[i]);
      if (isLast && (onlyFastest || !anyFits)) { // only the fastest is there, or the least
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

  // Makes a kind the present one.
  void loadKind(const LikeLayers &like) {
    layers = static_cast<int>(like.chunks.size());
    const SegmentCost &cost = costs.kinds[like.kind];
    for (int i = 0; i < 3; ++i) {
      ChunkSeconds seconds = segmentSeconds(cost, i);
      perLayer[i] = {seconds.forward, seconds.backward, seconds.weight, cost.savedBytes[i]};
      layerTotals[i] = seconds.total();
      layerPeaks[i] = planner::peakBytes(cost, i);
      layerBuffers[i] = cost.savedBufferBytes[i];
    }
    firstLayers.assign((layers + 1) * chunks, 0);
    for (int i = 0; i < layers; ++i) {
      std::copy_n(firstLayers.begin() + i * chunks, chunks, firstLayers.begin() + (i + 1) * chunks);
      ++firstLayers[(i + 1) * chunks + like.chunks[i]];
    }
  }

  // Extends every state by every choice for the layers of a kind that may become part of an answer; by the last kind,
  // by those that fit.
  void extend(const LikeLayers &like) {
    loadKind(like);
    history.push_back(std::move(states));
    parentRows = std::move(rows);
    states.clear();
    rows.clear();
    for (uint32_t parent = 0; parent < history.back().size(); ++parent) {
      auto fits = [&](int full, int selective) {
        propose(parent, {full, selective});
        return isLast ? fitsOrNeedsLeast() : (!mustFit || shareOf(proposed) <= 1) && (!bound || mayBeFastest());
      };
      if (isLast && !room.areLayersElsewhere)
        extendByFewest(fits);
      else
        for (int full = 0; full <= layers; ++full)
          for (int selective = 0; full + selective <= layers; ++selective)
            if (fits(full, selective))
              accept();
    }
  }

  // Where recomputing less is always faster: for each number of layers in full, the fewest selective ones that fit.
  template <typename Fits> void extendByFewest(Fits fits) {
    for (int full = 0; full <= layers; ++full) {
      if (fits(full, 0)) {
        accept();
        return;
      }
      if (onlyFastest && anyFits && proposed.total >= states.front().total)
        return;
      int low = 0, selective = layers - full;
      if (!fits(full, selective))
        continue;
      while (selective > low + 1) { // bisection: keeping less needs less
        int middle = (low + selective) / 2;
        (fits(full, middle) ? selective : low) = middle;
      }
      fits(full, selective);
      accept();
    }
  }

  bool mayBeFastest() {
    double bytes = room.held[0][0] * (kept[0] - leastAfter[history.size()]);
    return bound->mayBeFastest(history.size(), proposed.total, bytes, proposed.peakBytes);
  }

  // How many layers of the present kind a chunk has in each class.
  std::array<int, 3> countsOf(size_t chunk, const RecomputedLayers &recomputed) const {
    int full = firstLayers[recomputed.full * chunks + chunk],
        some = firstLayers[(recomputed.full + recomputed.selective) * chunks + chunk];
    return {firstLayers[layers * chunks + chunk] - some, some - full, full};
  }

  // Sets `proposed` and `kept` to a state extended by a choice. It gets a row when it is accepted.
  void propose(uint32_t parent, const RecomputedLayers &recomputed) {
    proposed = history.back()[parent];
    proposed.parent = parent;
    proposed.recomputed = recomputed;
    const int counts[] = {layers - recomputed.full - recomputed.selective, recomputed.selective, recomputed.full};
    for (int i = 0; i < 3; ++i)
      if (counts[i] > 0) {
        proposed.total += counts[i] * layerTotals[i];
        proposed.peakBytes = std::max(proposed.peakBytes, layerPeaks[i]);
        proposed.bufferBytes = std::max(proposed.bufferBytes, layerBuffers[i]);
      }
    const double *behind = &leastAfter[history.size() * chunks];
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      std::array<int, 3> here = countsOf(chunk, recomputed);
      kept[chunk] = behind[chunk] + parentRows[parent * width + 4 * chunk + 3] + here[0] * perLayer[0][3] +
                    here[1] * perLayer[1][3] + here[2] * perLayer[2][3];
    }
  }

  // Whether the proposed state fits. As long as none does, the one that needs least is the only state.
  bool fitsOrNeedsLeast() {
    double share = shareOf(proposed);
    if (share > 1 && !anyFits && share < leastShare) {
      leastShare = share;
      makeOnlyState();
    }
    return share <= 1;
  }

  void makeOnlyState() {
    states.assign(1, proposed);
    rows.clear();
  }

  void append() {
    states.push_back(proposed);
    rows.resize(states.size() * width);
    double *row = &rows[rows.size() - width];
    const double *parent = &parentRows[proposed.parent * width];
    for (size_t chunk = 0; chunk < chunks; ++chunk, row += 4, parent += 4) {
      std::array<int, 3> here = countsOf(chunk, proposed.recomputed);
      for (size_t i = 0; i < 4; ++i)
        row[i] = parent[i] + here[0] * perLayer[0][i] + here[1] * perLayer[1][i] + here[2] * perLayer[2][i];
    }
  }

  // Adds the proposed state, which fits. Where only the fastest is wanted it replaces a slower one.
  void accept() {
    if (isLast && onlyFastest) {
      if (!anyFits || proposed.total < states.front().total)
        makeOnlyState();
    } else {
      if (isLast && !anyFits)
        states.clear(); // what needs least
      append();
    }
    anyFits = isLast;
  }

  // What layers keep at the fullest moment, with what is kept beside them where that lies in the same memory, when
  // chunk i keeps chunkBytes[stride * i] of a micro-batch.
  double heldBytes(const double *chunkBytes, size_t stride) const {
    double most = 0;
    for (size_t i = 0; i < room.held.size(); ++i) {
      double bytes = room.areLayersElsewhere ? 0 : heldEnds[i];
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        bytes += room.held[i][chunk] * chunkBytes[stride * chunk];
      most = std::max(most, bytes);
    }
    return most;
  }

  // The share of memory that a state needs, on the device or in host memory, whichever is more.
  double shareOf(const State &state) const {
    double most = heldBytes(kept.data(), 1), device = most + state.peakBytes, host = room.fixedHostBytes;
    if (room.areLayersElsewhere) {
      device = std::max(mostEnds + state.peakBytes, room.stepBytes) + std::min(most, state.bufferBytes);
      host = (host + most) * kRounded;
    }
    double share = (room.fixedBytes + std::max(device, room.stepBytes)) / room.bytes * kRounded;
    return host > 0 ? std::max(share, host / room.hostBytes) : share;
  }

  // Drops dominated states: another one takes no longer in any action and, before the last kind, no more bytes.
  void dropDominated() {
    std::vector<std::pair<double, uint32_t>> order;
    for (uint32_t i = 0; i < states.size(); ++i)
      order.emplace_back(mustFit ? states[i].total : heldBytes(&rows[i * width + 3], 4), i);
    std::ranges::sort(order);
    size_t first = mustFit ? 0 : 3, last = isLast ? 3 : 4; // of a chunk's part of a row
    auto dominates = [&](uint32_t one, uint32_t other) {
      if (!isLast &&
          (states[one].peakBytes > states[other].peakBytes || states[one].bufferBytes > states[other].bufferBytes))
        return false;
      const double *a = &rows[one * width], *b = &rows[other * width];
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        for (size_t i = first; i < last; ++i)
          if (a[4 * chunk + i] > b[4 * chunk + i])
            return false;
      return true;
    };
    std::vector<uint32_t> left;
    for (const auto &[key, i] : order)
      if (std::ranges::none_of(std::views::reverse(left), [&](uint32_t other) { return dominates(other, i); }))
        left.push_back(i);
    retain(left);
  }

  // Leaves at most so many: ordered by bytes and cut into equal parts, the fastest of each part, and the state that
  // keeps least.
  void thin(size_t most) {
    if (states.size() <= most)
      return;
    isComplete = false;
    std::vector<std::pair<double, uint32_t>> order;
    for (uint32_t i = 0; i < states.size(); ++i)
      order.emplace_back(heldBytes(&rows[i * width + 3], 4), i);
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
    std::vector<State> some;
    std::vector<double> someRows;
    for (uint32_t i : left) {
      some.push_back(states[i]);
      someRows.insert(someRows.end(), rows.begin() + i * width, rows.begin() + (i + 1) * width);
    }
    states = std::move(some);
    rows = std::move(someRows);
  }

  KeepChoice choiceOf(size_t i) const {
    KeepChoice choice;
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      const double *row = &rows[i * width + 4 * chunk];
      choice.seconds.push_back({row[0], row[1], row[2]});
    }
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
  size_t chunks, width, mostStates;
  std::optional<KeepBound> bound; // where one chunk keeps its values on the device
  std::vector<double> heldEnds;   // per moment: kept beside the layers
  double mostEnds = 0;
  std::vector<State> states;
  std::vector<double> rows;                // of the states
  std::vector<std::vector<State>> history; // the states before each kind
  std::vector<double> parentRows;          // of those before the present kind
  // The present kind: what one layer takes in each class, and how many of its first layers each chunk has:
  // firstLayers[n * chunks + chunk] of the first n.
  int layers = 0;
  bool isLast = false;
  std::array<std::array<double, 4>, 3> perLayer{};
  std::array<double, 3> layerTotals{}, layerPeaks{}, layerBuffers{};
  std::vector<int> firstLayers;
  State proposed;
  std::vector<double> kept;       // of one micro-batch by each chunk, with the least of the kinds that follow
  std::vector<double> leastAfter; // what the kinds from one on keep at least: [kind * chunks + chunk]
  bool mustFit = true;            // states that cannot fit are dropped on the way
  bool anyFits = false, isComplete = true;
  double leastShare = std::numeric_limits<double>::infinity();
};

} // namespace

KeepChoices chooseKept(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room,
                       bool onlyFastest) {
  return KeepSearch(costs, kinds, room, onlyFastest).run();
}

} // namespace espalier::planner
