// Who takes part in a collective, by its place in the step: data replicas meet in the sums of gradients and behind the
// update, stages in the sums of tied gradients; tensor, context and expert ranks anywhere.
#include "runtime/verify_rules.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

class Groups {
public:
  Groups(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) : plan(plan), mesh(mesh), errors(errors) {}

  void check(const pb::Call &call) {
    for (auto [kind, number] : subprogramsOf(call)) {
      std::string_view role = kind;
      if (number > 0)
        check(plan.subprograms(number - 1), role == "reduce_gradients" || role == "optimizer",
              role == "reduce_gradients");
    }
  }

private:
  void check(const pb::Subprogram &subprogram, bool mayCrossReplicas, bool mayCrossStages) {
    for (int i = 0; i < subprogram.instructions_size(); ++i) {
      const pb::Collective &collective = subprogram.instructions(i).start();
      if (!subprogram.instructions(i).has_start())
        continue;
      std::string name = instructionName(plan, subprogram, i);
      if (collective.kind() == pb::Collective::BROADCAST)
        errors.add(fmt::format("{}: a broadcast has no place in a step", name));
      std::vector<std::string> axes(collective.axes().begin(), collective.axes().end());
      bool crossesReplicas = mesh.axisSize("dp") > 1 && std::ranges::count(axes, "dp") > 0;
      if (crossesReplicas && !mayCrossReplicas)
        errors.add(fmt::format("{}: data replicas meet outside of the sums of gradients", name));
      if (!collective.stages().empty() && !mayCrossStages)
        errors.add(fmt::format("{}: stages meet outside of the sums of gradients", name));
      if (!collective.stages().empty() && !axes.empty())
        errors.add(fmt::format("{}: a group over stages has axes too", name));
    }
  }

  const pb::Plan &plan;
  const Mesh &mesh;
  PlanErrors &errors;
};

} // namespace

void verifyGroups(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  Groups groups(plan, mesh, errors);
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Call &call : stage.calls())
      groups.check(call);
}

} // namespace espalier::rt
