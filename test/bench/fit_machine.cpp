// Fits constants of a machine on named rows of tables of published runs, as planner/published_machines.cpp has them:
//   fit_machine FILE.csv:LINE,LINE,... [FILE.csv:...] CONSTANT=LOW..HIGH [CONSTANT=VALUE ...]
// Random descent from several starts on the mean of |log(predicted / measured)|. Prints the constants, then the mean
// error on the named rows and on all rows of the same machine in the same files. Same input, same output.
#include "planner/published_rows.h"
#include "planner/search.h"

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

struct Range {
  double *(*field)(Machine &);
  double low, high;
};

const std::map<std::string, double *(*)(Machine &)> fields = {
    {"matmul", [](Machine &m) { return &m.matmulEfficiency; }},
    {"attention", [](Machine &m) { return &m.attentionEfficiency; }},
    {"memory", [](Machine &m) { return &m.memoryBytesPerSecond; }},
    {"launch", [](Machine &m) { return &m.launchSeconds; }},
    {"link", [](Machine &m) { return &m.link.bytesPerSecond; }},
    {"network", [](Machine &m) { return &m.network.bytesPerSecond; }},
    {"send", [](Machine &m) { return &m.sendBytesPerSecond; }},
};

std::vector<PublishedRow> readRows(const std::string &name) {
  std::ifstream file(name);
  if (!file)
    throw std::runtime_error(name + ": cannot be read");
  std::stringstream text;
  text << file.rdbuf();
  return readTable(text.str()).rows;
}

// Mean over the cases, with the constants given in the order of `ranges`.
double meanError(std::vector<PublishedCase> &cases, const std::vector<Range> &ranges,
                 const std::vector<double> &constants) {
  double sum = 0;
  for (PublishedCase &each : cases) {
    for (size_t i = 0; i < ranges.size(); ++i)
      *ranges[i].field(each.problem.machine) = constants[i];
    sum += std::abs(std::log(pricePlan(each.problem, each.plan).prediction.stepSeconds / each.seconds));
  }
  return sum / static_cast<double>(cases.size());
}

std::vector<double> fit(std::vector<PublishedCase> &cases, const std::vector<Range> &ranges) {
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
    double error = meanError(cases, ranges, constants), width = 0.15;
    for (int step = 0; step < steps; ++step, width *= 0.995) {
      std::vector<double> next = constants;
      for (size_t i = 0; i < ranges.size(); ++i)
        if (uniform(random) < 0.6)
          next[i] = std::clamp(next[i] * std::exp(width * normal(random) * std::log(ranges[i].high / ranges[i].low)),
                               ranges[i].low, ranges[i].high);
      if (double found = meanError(cases, ranges, next); found < error)
        error = found, constants = next;
    }
    if (error < bestError)
      bestError = error, best = constants;
  }
  return best;
}

int run(const std::vector<std::string> &arguments) {
  std::vector<PublishedCase> named, all;
  std::vector<Range> ranges;
  std::vector<std::string> names;
  for (const std::string &argument : arguments) {
    size_t equals = argument.find('='), colon = argument.rfind(':');
    if (equals != std::string::npos) {
      std::string value = argument.substr(equals + 1);
      size_t dots = value.find("..");
      double low = std::stod(value);
      names.push_back(argument.substr(0, equals));
      ranges.push_back(
          {fields.at(names.back()), low, dots == std::string::npos ? low : std::stod(value.substr(dots + 2))});
      continue;
    }
    std::string lines = "," + argument.substr(colon + 1) + ",";
    for (const PublishedRow &row : readRows(argument.substr(0, colon))) {
      PublishedCase found = caseOf(row);
      if (!found.reason.empty() || found.seconds <= 0 || found.outOfMemory || found.withoutPlan)
        continue;
      if (lines.find(fmt::format(",{},", row.line)) != std::string::npos)
        named.push_back(found);
      all.push_back(std::move(found));
    }
  }
  if (named.empty() || ranges.empty())
    throw std::runtime_error("no row or no constant is named");
  std::erase_if(
      all, [&](const PublishedCase &each) { return each.problem.machine.name != named.front().problem.machine.name; });
  std::vector<double> constants = fit(named, ranges);
  for (size_t i = 0; i < names.size(); ++i)
    fmt::print("{} {:.4g}\n", names[i], constants[i]);
  fmt::print("error {:.2f} % on {} rows, {:.2f} % on all {}\n", 100 * meanError(named, ranges, constants), named.size(),
             100 * meanError(all, ranges, constants), all.size());
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
