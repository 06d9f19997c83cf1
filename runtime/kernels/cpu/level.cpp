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
  int count = 1;

  Usable() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("x86-64-v3"))
      return;
    levels[count++] = &v3::loops;
    if (!__builtin_cpu_supports("x86-64-v4"))
      return;
    levels[count++] = &v4::loops;
    if (__builtin_cpu_supports("avx512bf16"))
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

const Loops &bestLoops() { return *usable().levels[usable().count - 1]; }

} // namespace espalier::rt::cpu
