// Parses any bytes as a chat template and renders it. Seeds: test/fuzz/seeds/jinja.
#include "runtime/jinja/template.h"

#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace espalier::rt::jinja;
  static const nlohmann::ordered_json variables = {
      {"messages", {{{"role", "user"}, {"content", "é"}}, {{"role", "assistant"}, {"content", "a"}}}},
      {"tools", {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"x", 1.5}}}}}}}},
      {"bos_token", "<s>"},
      {"add_generation_prompt", true}};
  try {
    Template chat(std::string_view(reinterpret_cast<const char *>(data), size));
    Rendered rendered = chat.render(variables, 0, {.steps = 100'000, .bytes = 1 << 20, .seconds = 5});
    for (auto [begin, end] : rendered.generated)
      if (begin > end)
        __builtin_trap();
  } catch (const TemplateError &) {
  }
  return 0;
}
