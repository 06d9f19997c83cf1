#include "compiler/link/gradient_terms.h"

#include <map>
#include <optional>
#include <set>

namespace espalier {

using namespace rt::pb;

namespace {

/// Returns, by subprogram, the parts of bucket values that it reads or writes. `valueOf` returns the value of a bucket.
template <typename ValueOf> std::vector<std::set<GradientTerm>> piecesOf(const Plan &plan, ValueOf valueOf) {
  std::map<uint32_t, uint32_t> buckets; // by value
  for (int bucket = 0; bucket < plan.buckets_size(); ++bucket)
    if (std::optional<uint32_t> value = valueOf(plan.buckets(bucket)))
      buckets[*value] = static_cast<uint32_t>(bucket);
  std::vector<std::set<GradientTerm>> pieces;
  for (const Subprogram &program : plan.subprograms()) {
    std::set<GradientTerm> &found = pieces.emplace_back();
    auto visit = [&](const auto &buffers) {
      for (const Buffer &buffer : buffers)
        if (uint32_t whole = plan.values(static_cast<int>(buffer.value())).whole(); whole > 0)
          if (auto bucket = buckets.find(whole - 1); bucket != buckets.end())
            found.insert({bucket->second, buffer.value()});
    };
    for (const Instruction &instruction : program.instructions()) {
      visit(instruction.launch().buffers());
      visit(instruction.call().buffers());
    }
  }
  return pieces;
}

} // namespace

std::vector<std::vector<GradientTerm>> gradientTerms(const Plan &plan) {
  std::vector<std::vector<GradientTerm>> terms;
  for (const std::set<GradientTerm> &found : piecesOf(plan, [](const Bucket &bucket) {
         if (!bucket.has_gradient())
           return std::optional<uint32_t>();
         return std::optional((bucket.has_whole_gradient() ? bucket.whole_gradient() : bucket.gradient()).value());
       }))
    terms.emplace_back(found.begin(), found.end());
  return terms;
}

std::vector<std::set<uint32_t>> gatheredReads(const Plan &plan) {
  std::vector<std::set<uint32_t>> reads;
  for (const std::set<GradientTerm> &found : piecesOf(plan, [](const Bucket &bucket) {
         return bucket.has_whole_stored() ? std::optional(bucket.whole_stored().value()) : std::nullopt;
       })) {
    std::set<uint32_t> &buckets = reads.emplace_back();
    for (const GradientTerm &piece : found)
      buckets.insert(piece.bucket);
  }
  return reads;
}

} // namespace espalier
