// For a given largest peak the classes that each kind may use are known and what may be kept is a number. Spreading
// layers over classes in any proportion then bounds what must be repeated: per kind only the lower convex hull of
// (bytes kept, seconds repeated) matters, and bytes are saved where they cost least. A branch fixes how many layers of
// a kind are in a class; the bound is convex in that number, so branches are tried outwards from the best.
#include "planner/search/recompute_choice.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMissing = 1e30; // per byte that is still too much: dearer than any recompute, so bounds stay convex
constexpr size_t kMostPeaks = 32; // that are told apart

// Saves bytes of a layer for seconds, by moving it from one class to another.
struct Step {
  double slope = 0, bytes = 0, seconds = 0;
  int item = 0, to = 0;
};

// Lower hull of the classes that a layer may have: the class that repeats least, and the steps away from it.
struct Hull {
  int base = -1, steps = 0;
  std::array<Step, 2> list;
};

class RecomputeSearch {
public:
  RecomputeSearch(std::span<const RecomputeItem> items, double floorBytes, double limitBytes, int64_t budget)
      : items(items), floorBytes(floorBytes), limitBytes(limitBytes), budget(budget), hulls(items.size()),
        counts(items.size()) {}

  RecomputeChoice run() {
    findPeaks();
    leastBytes();
    if (!best.fits)
      return std::move(best);
    std::vector<std::pair<double, size_t>> open; // (bound, peak)
    for (size_t i = 0; i < peaks.size(); ++i) {
      allow(peaks[i]);
      double bound = boundFrom(0, 2, items[0].layers, room);
      if (bound < kMissing)
        round();
      open.emplace_back(bound, i);
    }
    std::sort(open.begin(), open.end());
    best.leastRepeatSeconds = kInfinity;
    for (const auto &[bound, i] : open) {
      if (bound >= worthwhile())
        break;
      complete = peaks[i].room == peaks[i].classes && budget > 0;
      if (complete) {
        allow(peaks[i]);
        branch(0, 2, items[0].layers, room, 0);
      }
      if (!complete)
        best.leastRepeatSeconds = std::min(best.leastRepeatSeconds, bound);
    }
    best.leastRepeatSeconds = std::min(best.leastRepeatSeconds, best.repeatSeconds);
    return std::move(best);
  }

private:
  // Room is what is left beside one peak, classes are allowed up to another. They differ where peaks are not told
  // apart; that gives a bound and no choice.
  struct Peak {
    double room = 0, classes = 0;
  };

  double worthwhile() const { return best.repeatSeconds * (1 - 1e-12); }

  // From the least peak with which every item has a class.
  void findPeaks() {
    double least = floorBytes;
    for (const RecomputeItem &item : items)
      least = std::max(least, *std::ranges::min_element(item.peakBytes));
    std::vector<double> all = {least};
    for (const RecomputeItem &item : items)
      for (double peak : item.peakBytes)
        if (peak > least)
          all.push_back(peak);
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    size_t most = budget > 0 ? kMostPeaks : 1, width = (all.size() + most - 1) / most;
    for (size_t i = 0; i < all.size(); i += width)
      peaks.push_back({all[i], all[std::min(i + width, all.size()) - 1]});
    allPeaks = std::move(all);
  }

  // The choice of least bytes over all peaks, by adding classes in the order of their peaks.
  void leastBytes() {
    std::vector<std::tuple<double, size_t, int>> events; // (peak, item, class)
    for (size_t i = 0; i < items.size(); ++i)
      for (int c = 0; c < 3; ++c)
        events.emplace_back(std::max(items[i].peakBytes[c], allPeaks.front()), i, c);
    std::ranges::sort(events);
    std::vector<int> kept(items.size(), -1);
    double saved = 0, least = kInfinity, leastPeak = 0;
    for (size_t next = 0; next < events.size();) {
      double peak = std::get<0>(events[next]);
      for (; next < events.size() && std::get<0>(events[next]) == peak; ++next) {
        auto [unused, i, c] = events[next];
        const RecomputeItem &item = items[i];
        if (kept[i] >= 0 && item.savedBytes[kept[i]] <= item.savedBytes[c])
          continue;
        saved += item.layers * (item.savedBytes[c] - (kept[i] >= 0 ? item.savedBytes[kept[i]] : 0));
        kept[i] = c;
      }
      if (saved + peak < least)
        least = saved + peak, leastPeak = peak;
    }
    for (size_t i = 0; i < items.size(); ++i) {
      int c = -1;
      for (int other = 0; other < 3; ++other)
        if (items[i].peakBytes[other] <= leastPeak && (c < 0 || items[i].savedBytes[other] < items[i].savedBytes[c]))
          c = other;
      counts[i] = {};
      counts[i][c] = items[i].layers;
    }
    take();
    best.fits = best.savedBytes + best.peakBytes <= limitBytes;
  }

  static Hull hullOf(const RecomputeItem &item, double peak, int most) {
    Hull hull;
    std::array<int, 3> order{};
    int count = 0;
    for (int c = 0; c <= most; ++c)
      if (item.peakBytes[c] <= peak)
        order[count++] = c;
    auto before = [&](int a, int b) {
      return std::tie(item.repeatSeconds[a], item.savedBytes[a]) < std::tie(item.repeatSeconds[b], item.savedBytes[b]);
    };
    std::sort(order.begin(), order.begin() + count, before);
    if (count == 0)
      return hull;
    hull.base = order[0];
    auto step = [&](int from, int to) {
      double bytes = item.savedBytes[from] - item.savedBytes[to];
      double seconds = item.repeatSeconds[to] - item.repeatSeconds[from];
      return Step{bytes > 0 ? seconds / bytes : kInfinity, bytes, seconds, 0, to};
    };
    for (int from = 0; from + 1 < count;) { // the flattest step from each class of the hull to the next
      int next = -1;
      for (int to = from + 1; to < count; ++to)
        if (double slope = step(order[from], order[to]).slope;
            slope < kInfinity && (next < 0 || slope <= step(order[from], order[next]).slope))
          next = to;
      if (next < 0)
        break;
      hull.list[hull.steps++] = step(order[from], order[next]);
      from = next;
    }
    return hull;
  }

  // Prepares bounds for one peak.
  void allow(const Peak &peak) {
    allowed = peak.classes;
    room = limitBytes - peak.room;
    steps.clear();
    behindBytes.assign(items.size() + 1, 0);
    behindSeconds.assign(items.size() + 1, 0);
    for (size_t i = items.size(); i-- > 0;) {
      const RecomputeItem &item = items[i];
      for (int c = 0; c < 3; ++c)
        hulls[i][c] = hullOf(item, allowed, c);
      const Hull &hull = hulls[i][2];
      behindBytes[i] = behindBytes[i + 1] + item.layers * item.savedBytes[hull.base];
      behindSeconds[i] = behindSeconds[i + 1] + item.layers * item.repeatSeconds[hull.base];
      for (int k = 0; k < hull.steps; ++k) {
        steps.push_back(hull.list[k]);
        steps.back().item = static_cast<int>(i);
      }
    }
    auto before = [](const Step &a, const Step &b) { return std::tie(a.slope, a.item) < std::tie(b.slope, b.item); };
    std::sort(steps.begin(), steps.end(), before);
  }

  // Least seconds repeated where `left` layers of item i have classes up to c, all items behind it any, and `bytes` may
  // be kept.
  double boundFrom(size_t i, int c, int left, double bytes) {
    --budget;
    double seconds = 0, over = -bytes;
    int own = 0;
    const Hull *hull = nullptr;
    if (left > 0) {
      hull = &hulls[i][c];
      if (hull->base < 0)
        return kMissing;
      over += left * items[i].savedBytes[hull->base];
      seconds += left * items[i].repeatSeconds[hull->base];
    }
    over += behindBytes[i + 1];
    seconds += behindSeconds[i + 1];
    auto take = [&](const Step &step, int layers) {
      double share = std::min(1.0, over / (step.bytes * layers));
      seconds += share * step.seconds * layers;
      over = share < 1 ? 0 : over - step.bytes * layers;
    };
    for (size_t k = 0; over > 0 && k < steps.size(); ++k) {
      for (; over > 0 && hull && own < hull->steps && hull->list[own].slope <= steps[k].slope; ++own)
        take(hull->list[own], left);
      if (over > 0 && steps[k].item > static_cast<int>(i))
        take(steps[k], items[steps[k].item].layers);
    }
    for (; over > 0 && hull && own < hull->steps; ++own)
      take(hull->list[own], left);
    return over > 0 ? seconds + kMissing * (1 + over) : seconds;
  }

  // A choice near the bound: whole layers step until all fits.
  void round() {
    double over = behindBytes[0] - room;
    for (size_t i = 0; i < items.size(); ++i) {
      counts[i] = {};
      counts[i][hulls[i][2].base] = items[i].layers;
    }
    std::vector<int> from(items.size());
    for (size_t i = 0; i < items.size(); ++i)
      from[i] = hulls[i][2].base;
    for (const Step &step : steps) {
      if (over <= 0)
        break;
      int &left = counts[step.item][from[step.item]], moved = 0;
      for (; moved < left && over > 0; ++moved)
        over -= step.bytes;
      left -= moved;
      counts[step.item][step.to] += moved;
      from[step.item] = step.to;
    }
    if (over <= 0)
      take();
  }

  // Keeps `counts` when they repeat less; the first ones in any case.
  void take() {
    double saved = 0, seconds = 0, peak = floorBytes;
    for (size_t i = 0; i < items.size(); ++i)
      for (int c = 0; c < 3; ++c)
        if (int count = counts[i][c]) {
          saved += count * items[i].savedBytes[c];
          seconds += count * items[i].repeatSeconds[c];
          peak = std::max(peak, items[i].peakBytes[c]);
        }
    if (best.fits && (saved + peak > limitBytes || seconds >= best.repeatSeconds))
      return;
    best.layers = counts;
    best.savedBytes = saved, best.peakBytes = peak, best.repeatSeconds = seconds;
  }

  // Tries all numbers of layers of item i in class c, then in the classes below it, then the items behind it.
  void branch(size_t i, int c, int left, double bytes, double seconds) {
    if (i == items.size())
      return take();
    const RecomputeItem &item = items[i];
    while (item.peakBytes[c] > allowed)
      counts[i][c--] = 0;
    if (left == 0 || c == 0 || hulls[i][c - 1].base < 0) { // the rest has this class
      for (int lower = 0; lower < c; ++lower)
        counts[i][lower] = 0;
      counts[i][c] = left;
      int next = i + 1 < items.size() ? items[i + 1].layers : 0;
      return branch(i + 1, 2, next, bytes - left * item.savedBytes[c], seconds + left * item.repeatSeconds[c]);
    }
    auto boundOf = [&](int count) {
      return seconds + count * item.repeatSeconds[c] +
             boundFrom(i, c - 1, left - count, bytes - count * item.savedBytes[c]);
    };
    int low = 0, high = left;     // the bound is convex: find its least
    double lowest = 0, other = 0; // of one layer, the bounds of `low` and of the other number
    while (low < high) {
      int middle = (low + high) / 2;
      double here = boundOf(middle), next = boundOf(middle + 1);
      bool isFurther = next < here;
      (isFurther ? low : high) = isFurther ? middle + 1 : middle;
      lowest = std::min(here, next), other = std::max(here, next);
    }
    auto visit = [&](int count) {
      if (budget < 0)
        complete = false;
      double bound = left > 1 ? boundOf(count) : count == low ? lowest : other;
      if (!complete || bound >= worthwhile())
        return false;
      counts[i][c] = count;
      branch(i, c - 1, left - count, bytes - count * item.savedBytes[c], seconds + count * item.repeatSeconds[c]);
      return true;
    };
    for (int count = low; count <= left && visit(count); ++count)
      ;
    for (int count = low - 1; count >= 0 && visit(count); --count)
      ;
  }

  std::span<const RecomputeItem> items;
  double floorBytes, limitBytes;
  int64_t budget;
  std::vector<Peak> peaks;
  std::vector<double> allPeaks;
  double allowed = 0, room = 0;                   // for the present peak: of classes; bytes that may be kept
  std::vector<std::array<Hull, 3>> hulls;         // per item, of classes up to each
  std::vector<Step> steps;                        // of all items, flattest first
  std::vector<double> behindBytes, behindSeconds; // from each item on, with what repeats least
  std::vector<std::array<int, 3>> counts;         // the present choice
  bool complete = true;                           // the present peak is gone through
  RecomputeChoice best;
};

} // namespace

RecomputeChoice chooseRecompute(std::span<const RecomputeItem> items, double floorBytes, double limitBytes,
                                int64_t budget) {
  return RecomputeSearch(items, floorBytes, limitBytes, budget).run();
}

} // namespace espalier::planner
