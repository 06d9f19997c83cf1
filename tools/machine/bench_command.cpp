// `espalier bench`: compares predictions with measurements, and simulates failures.
#include "tools/commands.h"

namespace espalier {

void addBenchCommand(const Verb &app, int argc, char **argv) {
  Verb bench = app.verb("bench", "Compare predictions with measurements");
  bench.requireVerb();
  Verb plans = bench.verb("plans", "The planner's error on tables of published training runs (CSV)");
  plans.passWordsThrough();
  plans.action([argc, argv] { return runCompilerVerb(argc, argv); });
  addRooflineCommand(bench);
  addGoodputCommand(bench);
}

} // namespace espalier
