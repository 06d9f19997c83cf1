// Fits constants of a machine on named rows of tables of published runs, as tools/published/machines.cpp has them:
//   fit_machine FILE.csv:LINE,LINE,... [FILE.csv:...] CONSTANT=LOW..HIGH [CONSTANT=VALUE ...]
// Minimizes the mean of e + e^2 by random descent from several starts. e = |log(predicted / measured)| is of memory for
// `reserved` and `allocated`, else of time. The squares select a value if two rows need different constants, because
// any value between would have the same mean of e. Prints the constants, then the mean of e on the named rows and on
// all rows of the same machine in the same files. Equal inputs give equal output.
#include "planner/search.h"
#include "tools/published/report.h"
#include "tools/published/systems.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

using namespace espalier::planner;

namespace {

// A run to fit, and the share of the allocator (System::allocatedShare), which its terms include.
struct Case {
  PublishedCase published;
  double allocatedShare;
};

void setAllocatedShare(Case &run, double share) {
  for (SegmentKind &kind : run.published.problem.kinds)
    for (PatternTerms &terms : kind.patterns)
      for (std::array<Size, 3> *sizes : {&terms.savedBytes, &terms.forwardPeakBytes, &terms.backwardPeakBytes})
        for (Size &size : *sizes)
          for (Monomial &part : size)
            part.coefficient *= share / run.allocatedShare;
  run.allocatedShare = share;
}

using Setter = void (*)(Case &, double);

struct Range {
  Setter set;
  double low, high;
};

template <auto Field> void setMachine(Case &run, double value) { run.published.problem.machine.*Field = value; }
template <Link Machine::*Field> void setLink(Case &run, double value) {
  (run.published.problem.machine.*Field).bytesPerSecond = value;
}

const std::map<std::string, Setter> fields = {
    {"matmul", setMachine<&Machine::matmulEfficiency>},
    {"attention", setMachine<&Machine::attentionEfficiency>},
    {"memory", setMachine<&Machine::memoryBytesPerSecond>},
    {"launch", setMachine<&Machine::launchSeconds>},
    {"link", setLink<&Machine::link>},
    {"network", setLink<&Machine::network>},
    {"send", setMachine<&Machine::sendBytesPerSecond>},
    {"reserved",
     [](Case &run, double gibibytes) { run.published.problem.machine.reservedBytes = gibibytes * (1 << 30); }},
    {"allocated", setAllocatedShare},
};

bool isOfMemory(const std::string &name) { return name == "reserved" || name == "allocated"; }

double error(const PublishedCase &run, bool ofMemory) {
  Prediction found = pricePlan(run.problem, run.plan).prediction;
  return std::abs(std::log(ofMemory ? shownGibibytes(run, found) / run.gibibytes : found.stepSeconds / run.seconds));
}

std::vector<PublishedRow> readRows(const std::string &name) {
  std::ifstream file(name);
  if (!file)
    throw std::runtime_error(name + ": cannot be read");
  std::stringstream text;
  text << file.rdbuf();
  return readTable(text.str()).rows;
}

// Returns the mean error over the cases, for constants in the order of `ranges`. `squares` is the weight of the squared
// errors.
double meanError(std::vector<Case> &cases, const std::vector<Range> &ranges, const std::vector<double> &constants,
                 bool ofMemory, double squares = 0) {
  double sum = 0;
  for (Case &each : cases) {
    for (size_t i = 0; i < ranges.size(); ++i)
      ranges[i].set(each, constants[i]);
    double found = error(each.published, ofMemory);
    sum += found + squares * found * found;
  }
  return sum / static_cast<double>(cases.size());
}

std::vector<double> fit(std::vector<Case> &cases, const std::vector<Range> &ranges, bool ofMemory) {
  constexpr int starts = 6, steps = 800;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> normal;
  std::vector<double> best;
  double bestError = INFINITY;
  for (int start = 0; start < starts; ++start) {
    std::vector<double> constants;
    for (const Range &range : ranges)
      constants.push_back(range.low * std::pow(range.high / range.low, uniform(random)));
    double least = meanError(cases, ranges, constants, ofMemory, /*squares=*/1), width = 0.15;
    for (int step = 0; step < steps; ++step, width *= 0.995) {
      std::vector<double> next = constants;
      for (size_t i = 0; i < ranges.size(); ++i)
        if (uniform(random) < 0.6)
          next[i] = std::clamp(next[i] * std::exp(width * normal(random) * std::log(ranges[i].high / ranges[i].low)),
                               ranges[i].low, ranges[i].high);
      if (double found = meanError(cases, ranges, next, ofMemory, /*squares=*/1); found < least)
        least = found, constants = next;
    }
    if (least < bestError)
      bestError = least, best = constants;
  }
  return best;
}

int run(const std::vector<std::string> &arguments) {
  std::vector<Case> named, all;
  std::vector<Range> ranges;
  std::vector<std::string> names, tables;
  for (const std::string &argument : arguments) {
    size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      tables.push_back(argument);
      continue;
    }
    std::string value = argument.substr(equals + 1);
    size_t dots = value.find("..");
    double low = std::stod(value);
    names.push_back(argument.substr(0, equals));
    ranges.push_back(
        {fields.at(names.back()), low, dots == std::string::npos ? low : std::stod(value.substr(dots + 2))});
  }
  auto ofMemory = std::ranges::count_if(names, isOfMemory);
  if (ofMemory != 0 && ofMemory != std::ssize(names))
    throw std::runtime_error("constants of memory and of time are fitted apart");
  for (const std::string &table : tables) {
    size_t colon = table.rfind(':');
    std::string lines = "," + table.substr(colon + 1) + ",";
    for (const PublishedRow &row : readRows(table.substr(0, colon))) {
      Case found{caseOf(row), systemOf(row).system.allocatedShare};
      const PublishedCase &run = found.published;
      double measured = ofMemory ? run.gibibytes : run.seconds;
      if (!run.reason.empty() || measured <= 0 || run.outOfMemory || run.withoutPlan)
        continue;
      if (lines.find(fmt::format(",{},", row.line)) != std::string::npos)
        named.push_back(found);
      all.push_back(std::move(found));
    }
  }
  if (named.empty() || ranges.empty())
    throw std::runtime_error("no row or no constant is named");
  const std::string machine = named.front().published.problem.machine.name;
  std::erase_if(all, [&](const Case &each) { return each.published.problem.machine.name != machine; });
  std::vector<double> constants = fit(named, ranges, ofMemory);
  for (size_t i = 0; i < names.size(); ++i)
    fmt::print("{} {:.4g}\n", names[i], constants[i]);
  fmt::print("error {:.2f} % on {} rows, {:.2f} % on all {}\n", 100 * meanError(named, ranges, constants, ofMemory),
             named.size(), 100 * meanError(all, ranges, constants, ofMemory), all.size());
  return 0;
}

} // namespace

int main(int count, char **arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const std::exception &error) {
    fmt::print(stderr,
               "fit_machine: {}; usage: FILE.csv:LINE,... CONSTANT=LOW..HIGH or =VALUE; constants:", error.what());
    for (const auto &[name, field] : fields)
      fmt::print(stderr, " {}", name);
    fmt::print(stderr, "\n");
    return 2;
  }
}
