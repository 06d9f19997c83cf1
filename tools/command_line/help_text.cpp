#include "tools/command_line/help_text.h"

#include "messages/terminal.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace espalier {
namespace {

constexpr size_t indent = 2, textColumn = 28;
/// Verbs with fewer options list them without groups.
constexpr size_t fewOptions = 9;
constexpr const char *restGroup = "Options", *helpGroup = "Help";

/// The groups of options of all verbs, in the order of `--help`. An option that no group names is among "Options".
const std::vector<std::pair<std::string, std::vector<std::string>>> optionGroups = {
    {"Run file and machine", {"cluster", "set", "system", "target", "base", "model", "devices", "lose-node"}},
    {"Choice of the plan", {"all", "pin", "why-not", "sweep", "price", "elastic-hosts", "elastic-devices"}},
    {"Weights and text",
     {"load", "prompt", "file", "tokens", "tokenizer", "vocab-file", "merge-file", "tokenizer-model",
      "tiktoken-pattern", "chat-template", "system-message", "context", "allow-nan"}},
    {"Choice of tokens", {"max-tokens", "temperature", "top-k", "top-p", "seed", "stop"}},
    {"Data",
     {"data", "split", "eod-token", "eod-mask-loss", "reset-position-ids", "dataloader-type", "input", "json-keys",
      "document-separator", "jsonl", "append-eod", "skip-bad"}},
    {"Steps and evaluation",
     {"steps", "eval-every", "on-divergence", "max-rollbacks", "dump-gradients", "dump-parameters"}},
    {"Checkpoints", {"checkpoint", "save-every", "save", "save-hf", "keep", "max-unsaved", "resume", "accept-changes"}},
    {"Devices and processes",
     {"device", "threads", "processes", "comm", "nodes", "node-rank", "rendezvous", "token-file", "rank-table",
      "server-id", "device-range", "share-devices", "workers", "partitions", "host", "port"}},
    {"Failures",
     {"elastic", "min-ranks", "max-restarts", "failure-report", "failure-timeout", "stall-timeout", "compare-every"}},
    {"Results",
     {"output", "output-prefix", "overwrite", "json", "metrics", "quiet", "log-every", "tensorboard", "prometheus",
      "report", "trace", "status", "export"}},
    {"Intermediate results", {"emit-kernels", "compile-to", "compile-from", "ir", "check", "dump-phases"}},
    {restGroup, {}},
    {helpGroup, {"help", "error-format", "version"}}};

/// An example for each verb that does something.
const std::map<std::string, std::string> examples = {
    {"espalier", "espalier plan configs/gpt2_13b.yaml"},
    {"espalier demo", "espalier demo"},
    {"espalier plan", "espalier plan configs/llama2_7b.yaml --cluster h100_dgx:2x8"},
    {"espalier compile", "espalier compile configs/tiny_gpt.yaml -o tiny.plan"},
    {"espalier import-args", "espalier import-args pretrain_gpt.sh -o run.yaml"},
    {"espalier explain", "espalier explain configs/gpt2_13b.yaml lr_schedule"},
    {"espalier train", "espalier train configs/tiny_gpt.yaml --data book.txt --steps 100"},
    {"espalier run", "espalier run tiny.plan --data book.txt --checkpoint ckpt --save-every 50"},
    {"espalier generate", "espalier generate say.plan --checkpoint ckpt --prompt 'Once upon'"},
    {"espalier chat", "espalier chat ckpt"},
    {"espalier serve", "espalier serve say.plan --checkpoint ckpt --port 8000"},
    {"espalier inspect", "espalier inspect tiny.plan"},
    {"espalier verify", "espalier verify tiny.plan"},
    {"espalier data", "espalier data tokenize book.jsonl --output-prefix book --tokenizer bytes"},
    {"espalier data tokenize", "espalier data tokenize book.jsonl --output-prefix book --tokenizer bytes"},
    {"espalier data index", "espalier data index book_text_document --seq-length 1024 --cache index"},
    {"espalier data inspect", "espalier data inspect book_text_document"},
    {"espalier data verify", "espalier data verify book_text_document"},
    {"espalier data merge", "espalier data merge a_text_document b_text_document --output-prefix both"},
    {"espalier data train-tokenizer",
     "espalier data train-tokenizer book.txt --vocab-size 8000 --output tokenizer.json"},
    {"espalier convert", "espalier convert llama-hf ckpt --to espalier --model run.yaml"},
    {"espalier import-hf", "espalier import-hf llama-hf -o run.yaml"},
    {"espalier bench", "espalier bench plans runs.csv"},
    {"espalier bench plans", "espalier bench plans runs.csv --json"},
    {"espalier bench roofline", "espalier bench roofline step.plan --cluster h200"},
    {"espalier bench goodput", "espalier bench goodput --ranks 1024 --step-seconds 15"},
    {"espalier cluster", "espalier cluster generate --hosts hosts.txt -o table.json"},
    {"espalier cluster generate", "espalier cluster generate --hosts hosts.txt -o table.json"},
    {"espalier cluster merge", "espalier cluster merge a.json b.json -o table.json"},
    {"espalier cluster check", "espalier cluster check table.json --plan tiny.plan"},
    {"espalier launch", "espalier launch --hosts hosts.txt -- run tiny.plan --data book.txt"},
    {"espalier calibrate", "espalier calibrate -o mine.yaml"},
    {"espalier preflight", "espalier preflight --hosts hosts.txt"}};

/// Returns `text` in lines of at most `columns` characters; all lines but the first begin with `hanging` spaces.
std::string wrapped(const std::string &text, size_t columns, size_t hanging, size_t used = 0) {
  std::string result, line(used, ' ');
  bool isEmpty = true;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(' ', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!isEmpty && line.size() + 1 + word.size() > columns) {
      result += line.substr(result.empty() ? used : 0) + "\n";
      line = std::string(hanging, ' ');
      isEmpty = true;
    }
    line += (isEmpty ? "" : " ") + word;
    isEmpty = false;
  }
  return result + line.substr(result.empty() ? used : 0) + "\n";
}

/// Returns a row: the name on the left, and its text on the right, or below a long name.
std::string row(const std::string &name, const std::string &text, size_t columns) {
  std::string left = std::string(indent, ' ') + name;
  size_t column = std::min(textColumn, columns / 2);
  if (text.empty())
    return wrapped(left.substr(indent), columns, indent + 2, indent).insert(0, std::string(indent, ' '));
  if (left.size() + 2 > column)
    left = std::string(indent, ' ') + wrapped(name, columns, indent + 2, indent) + std::string(column, ' ');
  else
    left.resize(column, ' ');
  return left + wrapped(text, columns, column, column);
}

/// Splits CLI11's "TEXT:{a,b}" or "INT:in [0 - 5]" into the type and the text about its values.
std::pair<std::string, std::string> typeOf(const CLI::Option &option) {
  std::string type = option.get_type_name();
  size_t colon = type.find(':');
  if (colon == std::string::npos)
    return {type, ""};
  std::string values = type.substr(colon + 1);
  if (values.starts_with("{") && values.ends_with("}")) {
    values = "one of " + values.substr(1, values.size() - 2);
    for (size_t comma = 0; (comma = values.find(',', comma)) != std::string::npos; comma += 2)
      values.insert(comma + 1, " ");
  }
  return {type.substr(0, colon), values};
}

std::string namesOf(const std::set<CLI::Option *> &options) {
  std::vector<std::string> names;
  for (const CLI::Option *option : options)
    names.push_back(option->get_name());
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string optionRow(const CLI::Option &option, size_t columns) {
  auto [type, values] = typeOf(option);
  bool takesMany = option.get_items_expected_max() > 1;
  std::string name = option.get_name(option.get_positional(), true), text = option.get_description();
  bool isFlag = option.get_items_expected_max() == 0;
  if (!isFlag && !type.empty())
    name += " " + type + (takesMany ? " ..." : "");
  std::vector<std::string> notes;
  if (option.get_required())
    notes.emplace_back("required");
  if (!values.empty())
    notes.push_back(values);
  if (!option.get_needs().empty())
    notes.push_back("with " + namesOf(option.get_needs()));
  if (!option.get_excludes().empty())
    notes.push_back("not with " + namesOf(option.get_excludes()));
  if (!notes.empty())
    text += fmt::format("{}({})", text.empty() ? "" : " ", fmt::join(notes, "; "));
  return row(name, text, columns);
}

/// Returns the name of the group that lists an option.
std::string groupOf(const CLI::Option &option) {
  for (const auto &[group, names] : optionGroups)
    for (const std::string &name : option.get_lnames())
      if (std::ranges::count(names, name) > 0)
        return group;
  return restGroup;
}

std::string usage(const CLI::App &verb, const std::string &name) {
  std::string text = "Usage: " + name + " [OPTIONS]";
  for (const CLI::Option *option : verb.get_options())
    if (option->get_positional()) {
      std::string word = option->get_name(true) + (option->get_items_expected_max() > 1 ? "..." : "");
      text += option->get_required() ? " " + word : " [" + word + "]";
    }
  return text + (verb.get_require_subcommand_min() > 0 ? " SUBCOMMAND" : "");
}

/// Returns the rows of the verbs below this one.
std::string verbRows(const CLI::App &verb, size_t columns) {
  std::string text;
  for (const CLI::App *below : verb.get_subcommands([](const CLI::App *) { return true; }))
    if (!below->get_name().empty())
      text += row(below->get_name(), below->get_description(), columns);
  return text.empty() ? "" : "\nSubcommands:\n" + text;
}

/// Returns the options of a verb in groups.
std::string optionRows(const CLI::App &verb, size_t columns) {
  std::map<std::string, std::string> rows;
  size_t count = 0;
  std::string text;
  for (const CLI::Option *option : verb.get_options())
    if (option->get_positional() && option->get_lnames().empty() && option->get_snames().empty())
      text += optionRow(*option, columns);
    else
      ++count;
  if (!text.empty())
    text = "\nArguments:\n" + text;
  for (const CLI::Option *option : verb.get_options())
    if (!option->get_lnames().empty() || !option->get_snames().empty()) {
      std::string group = groupOf(*option);
      rows[count < fewOptions && group != helpGroup ? restGroup : group] += optionRow(*option, columns);
    }
  for (const auto &[group, names] : optionGroups)
    if (rows.contains(group) && group != helpGroup)
      text += fmt::format("\n{}:\n{}", group, rows.at(group));
  for (const CLI::App *group : verb.get_subcommands([](const CLI::App *) { return true; }))
    if (group->get_name().empty()) { // a group that the verb declares
      std::string title = group->get_group();
      title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
      text += "\n" + wrapped(title + (group->get_description().empty() ? "" : ", " + group->get_description()) + ":",
                             columns, indent);
      for (const CLI::Option *option : group->get_options())
        if (!option->check_lname("help")) // each group of CLI11 has its own
          text += optionRow(*option, columns);
    }
  return text + (rows.contains(helpGroup) ? fmt::format("\n{}:\n{}", helpGroup, rows.at(helpGroup)) : "");
}

} // namespace

int helpColumns() { return std::clamp(rt::terminalColumns(), 40, 120); }

std::string helpText(const CLI::App &verb, const std::string &name, int columns) {
  auto width = static_cast<size_t>(columns);
  std::string summary = verb.get_description();
  if (!summary.empty())
    summary[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(summary[0])));
  std::string text = wrapped(summary, width, 0) + wrapped(usage(verb, name), width, indent + 4);
  text += verbRows(verb, width) + optionRows(verb, width);
  if (auto example = examples.find(name); example != examples.end())
    text += "\nExample:\n" + std::string(indent, ' ') + wrapped(example->second, width, indent + 4, indent);
  return text;
}

} // namespace espalier
