#include "planner/search/incumbents.h"

#include "planner/model/simplicity.h"

#include <algorithm>

namespace espalier::planner {

void Incumbents::offer(const ParallelConfig &config, const SplitResult &result, const Candidate &candidate) {
  std::pair place(candidate.choice, candidate.schedule);
  auto [known, isNew] = meshes.try_emplace(meshOf(config), Incumbent{config, result, place});
  Incumbent &incumbent = known->second;
  double seconds = incumbent.result.seconds;
  bool isBetter = result.seconds < seconds * (1 - kSameStep) ||
                  (result.seconds < seconds * (1 + kSameStep) && place < incumbent.place);
  if (isBetter)
    incumbent = {config, result, place};
  if (isNew || isBetter)
    bound();
}

void Incumbents::bound() {
  std::vector<std::pair<double, int>> order; // seconds and family
  for (const auto &[mesh, incumbent] : meshes)
    order.emplace_back(incumbent.result.seconds, familyOf(incumbent.config));
  std::ranges::sort(order);
  best = order.front().first;
  last = mostSlower * best;
  lastOfFamily.clear();
  std::map<int, int> counts;
  int listed = 0;
  for (auto [seconds, family] : order) {
    int count = ++counts[family];
    if (count == mostOfFamily)
      lastOfFamily[family] = seconds;
    if (count <= mostOfFamily && ++listed == wanted)
      last = std::min(last, seconds);
  }
}

double Incumbents::limitFor(const ParallelConfig &config) const {
  double limit = last;
  if (auto place = meshes.find(meshOf(config)); place != meshes.end())
    limit = std::min(limit, place->second.result.seconds);
  if (auto family = lastOfFamily.find(familyOf(config)); family != lastOfFamily.end())
    limit = std::min(limit, family->second);
  return limit;
}

std::vector<Incumbent> Incumbents::sorted() const {
  std::vector<Incumbent> list;
  for (const auto &[mesh, incumbent] : meshes)
    list.push_back(incumbent);
  std::ranges::sort(list, {}, [](const Incumbent &one) { return std::pair(one.result.seconds, one.place); });
  return list;
}

void Incumbents::shorten(std::vector<Incumbent> &list) const {
  std::map<int, int> counts;
  int room = wanted;
  std::vector<bool> isKept(list.size());
  auto keep = [&](size_t i) {
    int &count = counts[familyOf(list[i].config)];
    if (isKept[i] || room == 0 || count == mostOfFamily)
      return;
    isKept[i] = true;
    --room, ++count;
  };
  size_t fastest =
      std::ranges::min_element(list, {}, [](const Incumbent &one) { return one.result.seconds; }) - list.begin();
  if (!list.empty())
    keep(0), keep(fastest);
  for (size_t i = 0; i < list.size(); ++i)
    keep(i);
  size_t i = 0;
  std::erase_if(list, [&](const Incumbent &) { return !isKept[i++]; });
}

} // namespace espalier::planner
