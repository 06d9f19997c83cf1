#include "runtime/kernels/cpu/level.h"

namespace espalier::rt::cpu {

namespace baseline {
extern const Loops loops;
}
#if defined(__x86_64__)
namespace v3 {
extern const Loops loops;
}
namespace v4 {
extern const Loops loops;
}
namespace v4_bf16 {
extern const Loops loops;
}
#endif

namespace {

struct Usable {
  const Loops *levels[4] = {&baseline::loops};
  int count = 1, best = 0;

  Usable() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("x86-64-v3"))
      return;
    best = count;
    levels[count++] = &v3::loops;
    if (!__builtin_cpu_supports("x86-64-v4"))
      return;
    best = count;
    levels[count++] = &v4::loops;
    if (!__builtin_cpu_supports("avx512bf16"))
      return;
    // Intel's processors start a vdpbf16ps every second cycle, so f32 products of the same elements are faster. The
    // choice depends on the vendor and not on a measurement, because levels differ in rounding and runs must repeat.
    best = __builtin_cpu_is("intel") ? best : count;
    levels[count++] = &v4_bf16::loops;
#endif
  }
};

const Usable &usable() {
  static const Usable found;
  return found;
}

} // namespace

const Loops *const *usableLoops(int &count) {
  count = usable().count;
  return usable().levels;
}

const Loops &bestLoops() { return *usable().levels[usable().best]; }

} // namespace espalier::rt::cpu
