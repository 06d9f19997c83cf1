// Kind by kind: every choice so far with every pair of numbers of the next kind. What is worse in time and in bytes is
// dropped on the way, so that few are left where kinds are few.
#include "planner/search/keep.h"

#include "planner/search/keep_bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <ranges>
#include <tuple>

namespace espalier::planner {

namespace {

constexpr double kRounded = 1 + 1e-13; // what fits only by rounding of a choice does not
constexpr size_t kMostStates = 4096;   // over all kinds where they are few
constexpr size_t kFewKinds = 8;
constexpr size_t kLeastStates = 48; // behind each kind
constexpr size_t kMostGrown = 8192; // of 126 layers of one kind there are 8,128 choices

// A choice for the kinds so far. Its row holds for each chunk forward, backward, weight and what one micro-batch keeps.
struct State {
  double total = 0;                      // seconds of all chunks
  double peakBytes = 0, bufferBytes = 0; // largest of any layer
  uint32_t parent = 0;                   // behind the kind before
  RepeatedLayers repeated;
};

class RepeatSearch {
public:
  RepeatSearch(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room, bool isOne)
      : costs(costs), kinds(kinds), room(room), isOne(isOne), chunks(room.ends.size()), width(4 * chunks),
        mostStates(kinds.size() > kFewKinds ? kLeastStates : kMostStates / std::max<size_t>(kinds.size(), 1)),
        kept(chunks) {
    for (const std::vector<int> &moment : room.held) {
      double ends = 0;
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        ends += moment[chunk] * room.ends[chunk];
      heldEnds.push_back(ends);
    }
    mostEnds = heldEnds.empty() ? 0 : *std::ranges::max_element(heldEnds);
    leastBehind.assign((kinds.size() + 1) * chunks, 0);
    for (size_t kind = kinds.size(); kind-- > 0;) {
      std::copy_n(&leastBehind[(kind + 1) * chunks], chunks, &leastBehind[kind * chunks]);
      for (int chunk : kinds[kind].chunks)
        leastBehind[kind * chunks + chunk] += std::ranges::min(costs.kinds[kinds[kind].kind].savedBytes);
    }
  }

  RepeatChoices run() {
    if (chunks == 1 && isOne && !room.areLayersElsewhere && kinds.size() > 1)
      bound.emplace(costs, kinds, room.held[0][0], room.endsPeakBytes,
                    room.bytes / kRounded - room.fixedBytes - heldEnds[0]);
    if (bound)
      mostStates = kMostStates;
    addKinds();
    RepeatChoices choices;
    choices.fits = areFitting;
    choices.isComplete = isComplete;
    if (!areFitting && kinds.size() > 1) { // what needs least is among all
      onlyFitting = false;
      bound.reset();
      addKinds();
    }
    for (size_t i = 0; i < states.size(); ++i)
      choices.list.push_back(choiceOf(i));
    return choices;
  }

private:
  void addKinds() {
    history.clear();
    leastShare = std::numeric_limits<double>::infinity();
    states.assign(1, {});
    states[0].peakBytes = room.endsPeakBytes;
    rows.assign(width, 0);
    for (size_t i = 0; i < kinds.size() && !states.empty(); ++i) {
      size_t layers = kinds[i].chunks.size();
      thin(std::max(kLeastStates, 2 * kMostGrown / ((layers + 1) * (layers + 2))));
      isLast = i + 1 == kinds.size();
      grow(kinds[i]);
      if (isLast && (isOne || !areFitting)) { // only the fastest is there, or the least
        at = states.front();
        states.clear();
        append();
        return;
      }
      thin(kMostGrown);
      prune();
      if (!isLast)
        thin(mostStates);
    }
  }

  void readKind(const LikeLayers &like) {
    layers = static_cast<int>(like.chunks.size());
    const SegmentCost &cost = costs.kinds[like.kind];
    for (int i = 0; i < 3; ++i) {
      ChunkSeconds seconds = segmentSeconds(cost, i);
      own[i] = {seconds.forward, seconds.backward, seconds.weight, cost.savedBytes[i]};
      ownTotals[i] = seconds.total();
      ownPeaks[i] = planner::peakBytes(cost, i);
      ownBuffers[i] = cost.savedBufferBytes[i];
    }
    before.assign((layers + 1) * chunks, 0);
    for (int i = 0; i < layers; ++i) {
      std::copy_n(before.begin() + i * chunks, chunks, before.begin() + (i + 1) * chunks);
      ++before[(i + 1) * chunks + like.chunks[i]];
    }
  }

  // Every state with every choice for the layers of a kind. Behind the last kind only what fits, or the least.
  void grow(const LikeLayers &like) {
    readKind(like);
    history.push_back(std::move(states));
    parentRows = std::move(rows);
    states.clear();
    rows.clear();
    for (uint32_t parent = 0; parent < history.back().size(); ++parent) {
      auto fits = [&](int full, int selective) {
        look(parent, {full, selective});
        return isLast ? mayStay() : (!onlyFitting || shareOf(at) <= 1) && (!bound || mayBeFastest());
      };
      if (isLast && !room.areLayersElsewhere)
        growByLeast(fits);
      else
        for (int full = 0; full <= layers; ++full)
          for (int selective = 0; full + selective <= layers; ++selective)
            if (fits(full, selective))
              add();
    }
  }

  // Where more only repeat more: of each number of layers in full the fewest selective ones that fit.
  template <typename Fits> void growByLeast(Fits fits) {
    for (int full = 0; full <= layers; ++full) {
      if (fits(full, 0)) {
        add();
        return;
      }
      if (isOne && areFitting && at.total >= states.front().total)
        return;
      int low = 0, selective = layers - full;
      if (!fits(full, selective))
        continue;
      while (selective > low + 1) { // keeping less takes less
        int middle = (low + selective) / 2;
        (fits(full, middle) ? selective : low) = middle;
      }
      fits(full, selective);
      add();
    }
  }

  bool mayBeFastest() {
    double bytes = room.held[0][0] * (kept[0] - leastBehind[history.size()]);
    return bound->mayBeFastest(history.size(), at.total, bytes, at.peakBytes);
  }

  // How many layers of the kind a chunk has in each class.
  std::array<int, 3> countsOf(size_t chunk, const RepeatedLayers &repeated) const {
    int full = before[repeated.full * chunks + chunk],
        some = before[(repeated.full + repeated.selective) * chunks + chunk];
    return {before[layers * chunks + chunk] - some, some - full, full};
  }

  // Looks at a state with a choice for the next kind: its row is not made before it stays.
  void look(uint32_t parent, const RepeatedLayers &repeated) {
    at = history.back()[parent];
    at.parent = parent;
    at.repeated = repeated;
    const int counts[] = {layers - repeated.full - repeated.selective, repeated.selective, repeated.full};
    for (int i = 0; i < 3; ++i)
      if (counts[i] > 0) {
        at.total += counts[i] * ownTotals[i];
        at.peakBytes = std::max(at.peakBytes, ownPeaks[i]);
        at.bufferBytes = std::max(at.bufferBytes, ownBuffers[i]);
      }
    const double *behind = &leastBehind[history.size() * chunks];
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      std::array<int, 3> here = countsOf(chunk, repeated);
      kept[chunk] = behind[chunk] + parentRows[parent * width + 4 * chunk + 3] + here[0] * own[0][3] +
                    here[1] * own[1][3] + here[2] * own[2][3];
    }
  }

  // Whether what is looked at fits. As long as nothing does, what needs least stays as the only state.
  bool mayStay() {
    double share = shareOf(at);
    if (share > 1 && !areFitting && share < leastShare) {
      leastShare = share;
      replaceAll();
    }
    return share <= 1;
  }

  // One state needs no row.
  void replaceAll() {
    states.assign(1, at);
    rows.clear();
  }

  void append() {
    states.push_back(at);
    rows.resize(states.size() * width);
    double *row = &rows[rows.size() - width];
    const double *parent = &parentRows[at.parent * width];
    for (size_t chunk = 0; chunk < chunks; ++chunk, row += 4, parent += 4) {
      std::array<int, 3> here = countsOf(chunk, at.repeated);
      for (size_t i = 0; i < 4; ++i)
        row[i] = parent[i] + here[0] * own[0][i] + here[1] * own[1][i] + here[2] * own[2][i];
    }
  }

  // Adds what is looked at; it fits. Where only the fastest is wanted it takes the place of a slower one.
  void add() {
    if (isLast && isOne) {
      if (!areFitting || at.total < states.front().total)
        replaceAll();
    } else {
      if (isLast && !areFitting)
        states.clear(); // what needs least
      append();
    }
    areFitting = isLast;
  }

  // What layers hold at the fullest moment, with what is held beside them where that lies in the same memory, when
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

  // Of what there is, on the device or in host memory.
  double shareOf(const State &state) const {
    double most = heldBytes(kept.data(), 1), device = most + state.peakBytes, host = room.fixedHostBytes;
    if (room.areLayersElsewhere) {
      device = std::max(mostEnds + state.peakBytes, room.stepBytes) + std::min(most, state.bufferBytes);
      host = (host + most) * kRounded;
    }
    double share = (room.fixedBytes + std::max(device, room.stepBytes)) / room.bytes * kRounded;
    return host > 0 ? std::max(share, host / room.hostBytes) : share;
  }

  // Drops states that another one is at least as good as in all that counts: time, and before the last kind bytes.
  void prune() {
    std::vector<std::pair<double, uint32_t>> order;
    for (uint32_t i = 0; i < states.size(); ++i)
      order.emplace_back(onlyFitting ? states[i].total : heldBytes(&rows[i * width + 3], 4), i);
    std::ranges::sort(order);
    size_t first = onlyFitting ? 0 : 3, last = isLast ? 3 : 4; // of a chunk's part of a row
    auto covers = [&](uint32_t one, uint32_t other) {
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
      if (std::ranges::none_of(std::views::reverse(left), [&](uint32_t other) { return covers(other, i); }))
        left.push_back(i);
    take(left);
  }

  // Leaves at most so many: in the order of what they keep the fastest of each part, and that which keeps least.
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
    take(left);
  }

  void take(const std::vector<uint32_t> &left) {
    std::vector<State> some;
    std::vector<double> someRows;
    for (uint32_t i : left) {
      some.push_back(states[i]);
      someRows.insert(someRows.end(), rows.begin() + i * width, rows.begin() + (i + 1) * width);
    }
    states = std::move(some);
    rows = std::move(someRows);
  }

  RepeatChoice choiceOf(size_t i) const {
    RepeatChoice choice;
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      const double *row = &rows[i * width + 4 * chunk];
      choice.seconds.push_back({row[0], row[1], row[2]});
    }
    choice.repeated.resize(kinds.size());
    const State *state = &states[i];
    for (size_t kind = kinds.size(); kind-- > 0; state = &history[kind][state->parent])
      choice.repeated[kind] = state->repeated;
    return choice;
  }

  const CostTable &costs;
  const std::vector<LikeLayers> &kinds;
  const StageRoom &room;
  bool isOne;
  size_t chunks, width, mostStates;
  std::optional<KeepBound> bound; // of one chunk whose values stay on the device
  std::vector<double> heldEnds;   // per moment
  double mostEnds = 0;
  std::vector<State> states;
  std::vector<double> rows;                // of the states
  std::vector<std::vector<State>> history; // the states before each kind
  std::vector<double> parentRows;          // of those before the present kind
  // The present kind: what one layer takes in each class, and how many of its first layers each chunk has.
  int layers = 0;
  bool isLast = false;
  std::array<std::array<double, 4>, 3> own{};
  std::array<double, 3> ownTotals{}, ownPeaks{}, ownBuffers{};
  std::vector<int> before;
  State at;                        // what is looked at
  std::vector<double> kept;        // of one micro-batch by each chunk, with the least of the kinds that follow
  std::vector<double> leastBehind; // what the kinds from one on keep at least: [kind * chunks + chunk]
  bool onlyFitting = true;         // what cannot fit is dropped on the way
  bool areFitting = false, isComplete = true;
  double leastShare = std::numeric_limits<double>::infinity();
};

} // namespace

RepeatChoices chooseRepeats(const CostTable &costs, const std::vector<LikeLayers> &kinds, const StageRoom &room,
                            bool isOne) {
  return RepeatSearch(costs, kinds, room, isOne).run();
}

} // namespace espalier::planner
