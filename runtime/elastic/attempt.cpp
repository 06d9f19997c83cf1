#include "runtime/elastic/attempt.h"

#include "runtime/status.h"

#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using Json = nlohmann::json;

RestartRecord restartOf(const Json &json) {
  RestartRecord record;
  record.kind = static_cast<RestartRecord::Kind>(json.at("kind").get<int>());
  record.ranksBefore = json.at("ranks_before");
  record.ranks = json.at("ranks");
  record.plan = json.at("plan");
  record.reason = json.at("reason");
  record.number = json.at("number");
  record.most = json.at("most");
  record.endedAt = json.at("ended_at");
  return record;
}

} // namespace

std::string printAttempt(const Attempt &attempt) {
  Json restarts = Json::array();
  for (const RestartRecord &record : attempt.restarts)
    restarts.push_back({{"kind", static_cast<int>(record.kind)},
                        {"ranks_before", record.ranksBefore},
                        {"ranks", record.ranks},
                        {"plan", record.plan},
                        {"reason", record.reason},
                        {"number", record.number},
                        {"most", record.most},
                        {"ended_at", record.endedAt}});
  Json json = {{"plan", attempt.plan},
               {"hosts", attempt.hosts},
               {"report", attempt.report},
               {"resume", attempt.resume},
               {"restarts", restarts}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::optional<Attempt> attemptOfProcess() {
  const char *text = std::getenv(attemptVariable);
  if (!text)
    return std::nullopt;
  try {
    Json json = Json::parse(text);
    Attempt attempt{json.at("plan"), json.at("hosts"), json.at("report"), json.at("resume"), {}};
    for (const Json &restart : json.at("restarts"))
      attempt.restarts.push_back(restartOf(restart));
    return attempt;
  } catch (const Json::exception &error) {
    throw PlanError(
        fmt::format("{}: not what `run --elastic` tells its processes ({}); unset it", attemptVariable, error.what()));
  }
}

void apply(const Attempt &attempt, RunOptions &options) {
  options.resume = attempt.resume;
  options.acceptChanges &= attempt.resume;
  if (attempt.resume)
    options.load.clear();
  if (options.failureReport.empty())
    options.failureReport = attempt.report;
  options.restarts = attempt.restarts;
}

} // namespace espalier::rt
