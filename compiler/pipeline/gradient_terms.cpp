#include "compiler/pipeline/gradient_terms.h"

#include <map>
#include <set>

namespace espalier {

using namespace rt::pb;

std::vector<std::vector<GradientTerm>> gradientTerms(const Plan &plan) {
  std::map<uint32_t, uint32_t> buckets; // by the value of their gradient
  for (int bucket = 0; bucket < plan.buckets_size(); ++bucket)
    buckets[plan.buckets(bucket).gradient().value()] = static_cast<uint32_t>(bucket);
  std::vector<std::vector<GradientTerm>> terms;
  for (const Subprogram &program : plan.subprograms()) {
    std::set<GradientTerm> found;
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
    terms.emplace_back(found.begin(), found.end());
  }
  return terms;
}

} // namespace espalier
