#include "runtime/tokenizer/named_templates.h"

namespace espalier::rt {

namespace {

constexpr const char *chatml = R"({%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %})";

constexpr const char *llama2 = R"({%- set hasSystem = messages[0].role == 'system' %}
{%- set turns = messages[1:] if hasSystem else messages %}
{%- if not turns or add_generation_prompt and turns|length % 2 == 0 %}
{{- raise_exception(fault) }}
{%- endif %}
{%- for message in turns %}
{%- if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}
{{- raise_exception(fault) }}
{%- endif %}
{%- if message.role == 'user' %}
{%- set system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' if hasSystem and loop.first else '' %}
{{- bos_token + '[INST] ' + (system + message.content)|trim + ' [/INST]' }}
{%- else %}
{%- generation %}{{ ' ' + message.content|trim + ' ' + eos_token }}{% endgeneration %}
{%- endif %}
{%- endfor %})";

constexpr const char *llama3 = R"({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{ message.content|trim + '<|eot_id|>' }}{% endgeneration %}
{%- else %}
{{- message.content|trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})";

constexpr const char *alpaca = R"({%- set hasSystem = messages[0].role == 'system' %}
{%- set turns = messages[1:] if hasSystem else messages %}
{%- if not turns or add_generation_prompt and turns|length % 2 == 0 %}
{{- raise_exception(fault) }}
{%- endif %}
{%- if hasSystem %}
{{- messages[0].content|trim }}
{%- else %}
{{- 'Below is an instruction that describes a task. ' }}
{{- 'Write a response that appropriately completes the request.' }}
{%- endif %}
{%- for message in turns %}
{%- if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}
{{- raise_exception(fault) }}
{%- endif %}
{%- if message.role == 'user' %}
{{- '\n\n### Instruction:\n' + message.content|trim }}
{%- else %}
{{- '\n\n### Response:\n' }}{% generation %}{{ message.content|trim + eos_token }}{% endgeneration %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '\n\n### Response:\n' }}
{%- endif %})";

} // namespace

std::span<const NamedTemplate> namedTemplates() {
  static const std::vector<NamedTemplate> formats = {
      {"chatml", chatml, "", "", {"<|im_end|>"}, {"<|im_start|>", "<|im_end|>"}},
      {"llama2", llama2, "<s>", "</s>", {"</s>", "[INST]"}, {"<s>", "</s>"}},
      {"llama3",
       llama3,
       "<|begin_of_text|>",
       "",
       {"<|eot_id|>"},
       {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
      {"alpaca", alpaca, "", "", {"### Instruction:", "</s>"}, {}},
  };
  return formats;
}

} // namespace espalier::rt
