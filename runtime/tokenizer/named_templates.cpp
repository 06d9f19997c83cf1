#include "runtime/tokenizer/named_templates.h"

namespace espalier::rt {

const char *jinjaOf(ChatTemplate chat) {
  switch (chat) {
  case ChatTemplate::chatml:
    return "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
           "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  case ChatTemplate::llama3:
    return "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + "
           "'<|end_header_id|>\\n\\n' + (m['content'] | trim) + '<|eot_id|>' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";
  case ChatTemplate::llama2:
    return "{% if messages[0]['role'] == 'system' %}"
           "{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}"
           "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
           "{% for m in turns %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + "
           "(((system if loop.index0 == 0 else '') + m['content']) | trim) + ' [/INST]' }}"
           "{% else %}{{ ' ' + (m['content'] | trim) + ' ' + eos_token }}{% endif %}{% endfor %}";
  case ChatTemplate::alpaca:
    break;
  }
  return "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] | trim }}{% else %}"
         "{{ 'Below is an instruction that describes a task. Write a response that appropriately completes the "
         "request.' }}{% endif %}{% for m in messages %}{% if m['role'] == 'user' %}"
         "{{ '\\n\\n### Instruction:\\n' + (m['content'] | trim) }}{% elif m['role'] == 'assistant' %}"
         "{{ '\\n\\n### Response:\\n' + (m['content'] | trim) + eos_token }}{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}{{ '\\n\\n### Response:\\n' }}{% endif %}";
}

} // namespace espalier::rt
