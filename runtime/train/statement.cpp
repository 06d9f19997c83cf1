#include "runtime/train/statement.h"

#include "format/checksum.h"
#include "format/plan_file.h"
#include "messages/counted.h"
#include "runtime/dataset/content_digest.h"
#include "runtime/host_name.h"
#include "runtime/train/build_id.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <unistd.h>

namespace espalier::rt {
namespace {

/// How a kind of term is named in a sentence, and what makes it equal. `{}` stands for the term's name.
struct KindText {
  const char *subject, *remedy;
};
constexpr std::array kindTexts = {
    KindText{"builds of espalier", "install the same build on every host"},
    KindText{"versions of the library {}", "install the same version on every host"},
    KindText{"plans", "give every host the same plan file"},
    KindText{"{}", "give every host the same files; the paths may be the same while the contents are not"},
    KindText{"weights to start from", "give every host the same files"},
    KindText{"values of the option {}", "give every host the same command"},
    KindText{"values of the environment variable {}",
             "set it to the same value on every host, or on none; mpirun passes it on "
             "with -x {}"},
};

/// The variables of libraries that compute: precision and algorithms of matrix products and of collectives, and the
/// processor features that mathematical functions use.
constexpr std::array<const char *, 21> variables = {"CUBLAS_WORKSPACE_CONFIG",
                                                    "CUBLAS_EMULATE_SINGLE_PRECISION",
                                                    "CUBLAS_EMULATION_STRATEGY",
                                                    "CUBLASLT_WORKSPACE_SIZE",
                                                    "NVIDIA_TF32_OVERRIDE",
                                                    "CUDA_FORCE_PTX_JIT",
                                                    "NCCL_ALGO",
                                                    "NCCL_PROTO",
                                                    "NCCL_MIN_NCHANNELS",
                                                    "NCCL_MAX_NCHANNELS",
                                                    "NCCL_MIN_CTAS",
                                                    "NCCL_MAX_CTAS",
                                                    "NCCL_NTHREADS",
                                                    "NCCL_BUFFSIZE",
                                                    "NCCL_NVLS_ENABLE",
                                                    "NCCL_COLLNET_ENABLE",
                                                    "MKL_CBWR",
                                                    "ONEDNN_MAX_CPU_ISA",
                                                    "ONEDNN_DEFAULT_FPMATH_MODE",
                                                    "DNNL_MAX_CPU_ISA",
                                                    "GLIBC_TUNABLES"};

std::string yesOrNo(bool isGiven) { return isGiven ? "given" : "not given"; }

std::string numberOr(const std::optional<int64_t> &number) { return number ? std::to_string(*number) : "not given"; }

/// Returns the options that decide when ranks meet and what they compute. Options of rank 0 alone, such as those of the
/// log, and those of a single host, such as --threads, may differ. The data and the weights are terms of their own.
Statement optionTerms(const RunOptions &options) {
  constexpr std::array splits = {"train", "valid", "test"};
  std::string save = !options.save ? "not given" : *options.save == SaveMode::sync ? "sync" : "background";
  Statement terms;
  for (const auto &[name, value] : std::initializer_list<std::pair<const char *, std::string>>{
           {"--steps", std::to_string(options.steps)},
           {"--dataloader-type", options.order == SampleOrder::single ? "single" : "cyclic"},
           {"--checkpoint", yesOrNo(!options.checkpoint.empty())},
           {"--save-every", std::to_string(options.saveEvery)},
           {"--save", save},
           {"--resume", yesOrNo(options.resume)},
           {"--accept-changes", yesOrNo(options.acceptChanges)},
           {"--on-divergence", options.onDivergence == OnDivergence::stop ? "stop" : "rollback"},
           {"--max-rollbacks", std::to_string(options.maxRollbacks)},
           {"--compare-every", numberOr(options.compareEvery)},
           {"--eval-every", std::to_string(options.evalEvery)},
           {"--eval-split", splits.at(static_cast<size_t>(options.evalSplit))},
           {"--eval-batches", numberOr(options.evalBatches)},
           {"--trace", yesOrNo(!options.trace.empty())}})
    terms.push_back({TermKind::Option, name, value});
  return terms;
}

/// Returns a text with the part of `value` around its first difference from `other`, if `value` is long.
std::string excerpt(const std::string &value, const std::string &other) {
  constexpr size_t most = 160, before = 40;
  if (value.size() <= most)
    return value;
  size_t at = std::ranges::mismatch(value, other).in1 - value.begin();
  size_t begin = at > before ? at - before : 0;
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", value.substr(begin, most),
                     begin + most < value.size() ? "..." : "");
}

/// The ranks whose value of a term is the same.
struct Group {
  std::string value;
  std::vector<size_t> ranks;
};

/// Returns the groups of a term, the smallest first; of equal ones, that of the first ranks last.
std::vector<Group> groupsOf(std::span<const Stated> ranks, const Term &term) {
  std::vector<Group> groups;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    auto found = std::ranges::find_if(
        ranks[rank].statement, [&](const Term &other) { return other.kind == term.kind && other.name == term.name; });
    std::string value = found == ranks[rank].statement.end() ? "none" : found->value;
    auto group = std::ranges::find(groups, value, &Group::value);
    if (group == groups.end())
      group = groups.insert(groups.end(), {value, {}});
    group->ranks.push_back(rank);
  }
  std::ranges::sort(groups, [](const Group &a, const Group &b) {
    return std::pair(a.ranks.size(), b.ranks.front()) < std::pair(b.ranks.size(), a.ranks.front());
  });
  return groups;
}

/// Lists the hosts of a group with the first rank of each: "b (rank 2), c (rank 4) and 5 more hosts".
std::string hostsOf(const Group &group, std::span<const Stated> ranks) {
  constexpr size_t most = 3;
  std::vector<std::string> texts;
  std::set<std::string> hosts;
  for (size_t rank : group.ranks)
    if (hosts.insert(ranks[rank].host).second && hosts.size() <= most)
      texts.push_back(fmt::format("{} (rank {})", ranks[rank].host, rank));
  std::string more = hosts.size() <= most ? "" : fmt::format(" and {}", counted(hosts.size() - most, "more host"));
  return fmt::format("{}{}", fmt::join(texts, ", "), more);
}

std::string sentenceOf(const Term &term, const std::vector<Group> &groups, std::span<const Stated> ranks) {
  constexpr size_t most = 4;
  const KindText &text = kindTexts.at(static_cast<size_t>(term.kind));
  std::string values;
  for (size_t i = 0; i < std::min(groups.size(), most); ++i)
    values +=
        fmt::format("{}{} on {}", i == 0 ? "" : ", ",
                    excerpt(groups[i].value, groups[i == 0 ? groups.size() - 1 : 0].value), hostsOf(groups[i], ranks));
  if (groups.size() > most)
    values += fmt::format(", and {}", counted(groups.size() - most, "further value"));
  return fmt::format("the hosts of the run have different {}: {}; {}",
                     fmt::format(fmt::runtime(text.subject), term.name), values,
                     fmt::format(fmt::runtime(text.remedy), term.name));
}

std::string printStatement(const Statement &statement) {
  nlohmann::json list = nlohmann::json::array();
  for (const Term &term : statement)
    list.push_back({static_cast<int>(term.kind), term.name, term.value});
  return list.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

/// Parses a statement. A process of another build may state what this one does not know; such terms are left out.
Statement parseStatement(const std::string &text) {
  Statement statement;
  nlohmann::json list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const nlohmann::json &row : list.is_array() ? list : nlohmann::json::array())
    if (row.is_array() && row.size() == 3 && row[0].is_number_integer() && row[1].is_string() && row[2].is_string())
      if (int kind = row[0]; kind >= 0 && kind < static_cast<int>(kindTexts.size()))
        statement.push_back({static_cast<TermKind>(kind), row[1], row[2]});
  return statement;
}

/// All-gathers texts that are longer than one message. `longest` is the size of the longest one.
std::vector<std::string> tellLong(Agreement &agreement, const std::string &mine, size_t longest) {
  constexpr size_t part = Agreement::messageBytes - 1;
  std::vector<std::string> all;
  for (size_t at = 0; at < longest; at += part) {
    std::vector<std::string> parts = agreement.tell(at < mine.size() ? mine.substr(at, part) : "");
    all.resize(parts.size());
    for (size_t rank = 0; rank < parts.size(); ++rank)
      all[rank] += parts[rank];
  }
  return all;
}

} // namespace

std::span<const char *const> numericVariables() { return variables; }

std::string planDigest(const pb::Plan &plan) {
  std::string bytes = planFileBytes(plan);
  return checksumText(std::as_bytes(std::span(bytes)));
}

Statement statementOf(const Program &program, const RunOptions &options, const StatedInputs &inputs) {
  Statement terms = {{TermKind::Build, "", buildText()}, {TermKind::Plan, "", planDigest(program.plan())}};
  for (const auto &[name, digest] : numericLibraries())
    terms.push_back({TermKind::Library, name, digest});
  for (Term &term : optionTerms(options))
    terms.push_back(std::move(term));
  terms.push_back({TermKind::Data, "data", inputs.data});
  terms.push_back({TermKind::Data, "samples of the data", sampleDigest(*inputs.training)});
  if (inputs.heldOut && inputs.heldOut != inputs.training)
    terms.push_back({TermKind::Data, "samples of the evaluations", sampleDigest(*inputs.heldOut)});
  terms.push_back({TermKind::Weights, "", inputs.start ? inputs.start->identity() : "initial values"});
  for (const char *name : variables)
    if (const char *value = std::getenv(name))
      terms.push_back({TermKind::Variable, name, fmt::format("'{}'", value)});
  return terms;
}

std::string differenceOf(std::span<const Stated> ranks) {
  Statement all; // every term that any rank has, in the order of the first ranks
  auto isKnown = [&](const Term &term) {
    return std::ranges::any_of(all, [&](const Term &t) { return t.kind == term.kind && t.name == term.name; });
  };
  for (const Stated &rank : ranks)
    if (&rank == ranks.data() || rank.statement != ranks.front().statement)
      for (const Term &term : rank.statement)
        if (!isKnown(term))
          all.push_back(term);
  for (const Term &term : all)
    if (std::vector<Group> groups = groupsOf(ranks, term); groups.size() > 1)
      return sentenceOf(term, groups, ranks);
  return "";
}

std::string compareStatements(Agreement &agreement, const Statement &own, std::vector<Met> &met) {
  std::string mine = printStatement(own);
  std::string digest = checksumText(std::as_bytes(std::span(mine)));
  std::set<std::string> digests;
  size_t longest = 0;
  for (const std::string &told :
       agreement.tell(fmt::format("{} {} {} {}", getpid(), digest, mine.size(), hostName()))) {
    std::istringstream words(told);
    size_t length = 0;
    std::string theirs;
    Met &rank = met.emplace_back();
    words >> rank.pid >> theirs >> length >> std::ws;
    std::getline(words, rank.host);
    digests.insert(theirs);
    longest = std::max(longest, length);
  }
  if (digests.size() == 1)
    return "";
  std::vector<std::string> texts = tellLong(agreement, mine, longest);
  std::vector<Stated> ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank)
    ranks.push_back({met[rank].host, parseStatement(texts[rank])});
  return differenceOf(ranks);
}

} // namespace espalier::rt
