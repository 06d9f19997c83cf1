#include "runtime/checkpoint/scalar_state.h"

namespace espalier::rt {

ScalarState initialScalars(const pb::Settings &settings) {
  ScalarState state;
  state.lossScale = settings.initial_loss_scale() > 0 ? settings.initial_loss_scale() : 1;
  return state;
}

} // namespace espalier::rt
