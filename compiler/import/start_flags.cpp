#include "compiler/import/start_flags.h"

namespace espalier {

void writeStart(GivenFlags &given, RunFileWriter &yaml) {
  bool evaluates = given.isSet("--skip-train", "run_mode"), finetunes = given.isSet("--finetune", "run_mode");
  bool isWithoutState = given.isSet("--no-load-optim", "resume_training");
  std::optional<std::string> from =
      given.value("--load", "load_checkpoint; where --save names it, too, say `espalier run --resume`");
  std::optional<std::string> to = given.value("--save", "say `espalier run --checkpoint DIR --save-every N`");
  if (evaluates)
    yaml.put("run_mode", "eval", "--skip-train");
  else if (finetunes)
    yaml.put("run_mode", "finetune", "--finetune");
  if (!from && finetunes && !evaluates)
    given.error("--finetune", "--finetune without --load has no weights to start from; add --load DIR or leave it out");
  bool isOwn = from && from == to && !evaluates && !finetunes && !isWithoutState;
  if (!from || isOwn)
    return;
  yaml.put("load_checkpoint", quotedYaml(*from), "--load");
  if (!evaluates && !finetunes && !isWithoutState)
    yaml.put("resume_training", "True", "--load");
}

} // namespace espalier
