#include "compiler/import/start_flags.h"

namespace espalier {

void writeStart(GivenFlags &given, RunFileWriter &yaml) {
  bool evaluates = given.isSet("--skip-train", "run_mode"), finetunes = given.isSet("--finetune", "run_mode");
  bool isWithoutState = given.isSet("--no-load-optim", "resume_training");
  // A script that loads from where it saves goes on with itself: `espalier run --resume`. Which folder that is may be
  // known to the shell alone.
  bool isOwn = given.haveOneValue("--load", "--save") && !evaluates && !finetunes && !isWithoutState;
  std::optional<std::string> from;
  if (!isOwn)
    from = given.value("--load", "load_checkpoint");
  if (evaluates)
    yaml.put("run_mode", "eval", "--skip-train");
  else if (finetunes)
    yaml.put("run_mode", "finetune", "--finetune");
  if (!from && finetunes && !evaluates)
    given.error("--finetune", "--finetune without --load has no weights to start from; add --load DIR or leave it out");
  if (!from)
    return;
  yaml.put("load_checkpoint", quotedYaml(*from), "--load");
  if (!evaluates && !finetunes && !isWithoutState)
    yaml.put("resume_training", "True", "--load");
}

} // namespace espalier
