#include "compiler/import/huggingface/size_faults.h"

#include <sstream>

namespace espalier {

std::vector<SizeFault> sizeFaults(const Architecture &architecture, const std::string &runFile) {
  const std::string name = "the run file"; // of locations in it
  Diagnostics findings;
  YamlPtr run = parseYaml(name, runFile, findings);
  const YamlNode *model = run ? run->find("model") : nullptr;
  SizeTable sizes = resolveSizes(architecture, model ? model->find("model_config") : nullptr, findings);
  describeModel(architecture, sizes, findings);
  std::vector<std::string> keys; // by line
  std::istringstream text(runFile);
  for (std::string line; std::getline(text, line);) {
    line.erase(0, line.find_first_not_of(' '));
    keys.push_back(line.substr(0, line.find(':')));
  }
  std::vector<SizeFault> faults;
  for (const Diagnostic &finding : findings.sorted()) {
    auto line = static_cast<size_t>(finding.where.line);
    bool isHere = finding.where.file == name;
    bool isKey = isHere && line >= 1 && line <= keys.size();
    faults.push_back({isKey ? keys[line - 1] : "", isHere ? SourceLocation{"", 0, 0} : finding.where, finding.message});
  }
  return faults;
}

} // namespace espalier
