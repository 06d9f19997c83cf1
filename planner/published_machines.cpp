// The table of machines. Peaks, memory sizes and multiprocessors come from data sheets; constants that were fitted
// name their rows.
#include "planner/published_machines.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace espalier::planner {

namespace {

// Constants of a machine; efficiencies are shares of the data sheet's peak.
struct MachineRow {
  const char *gpu, *site; ///< both are parts of the gpu column, lower case
  double memoryGiB, peak16, bytesPerSecond, matmul, attention;
  double launchSeconds;
  int multiprocessors, perHost;
  double linkBytes, networkBytes, reservedGiB;
  double sendBytes; ///< of one send between hosts; 0: as the network
};

// Network: one 200 or 400 Gb/s port per device at what nccl-tests reach. Latencies, launch: usual values. What was
// fitted (matmul and what is named), by random descent on the mean error of at most six rows (CSV lines), the first two
// by test/bench/fit_machine (planner/README.md has the commands):
//   selene     memory, send: korthikanti_2022_table5 4, 7, 10; narayanan_sc21_table1 4, 7, 10 (link: nccl-tests)
//   jean zay   link, network: bloom_jeanzay_a100_sweep 16, 26, 36, 46, 56, 66 (send: as selene); reserved
//              bytes on those of them with memory
//   h100_80gb  attention, memory, launch: llm_foundry_mpt 3, 10, 15, 22, 30, 38
//   a100_80gb  only attention, the rest as selene was: llm_foundry_mpt 42, 46, 50, 53, 62, 67
//   a100_40gb  attention and link, the rest as selene was: llm_foundry_mpt 71, 75, 78, 88, 95, 107
//   h100-96gb  attention, memory: torchtitan_llama3_h100 2, 5, 7, 11
//   h100, h200 megatron_bridge_perf 21, 65, 145 (attention by hand)
//   gb200      attention: megatron_bridge_perf 40, 68, 88, 123, 136, 137
//   gb300      attention: megatron_bridge_perf 18, 19, 62, 63, 64, 119
//   b200       attention: megatron_bridge_perf 128, 129
//   v100       Jean Zay with link, network: bigscience_v100 21, 25, 35, 40, 44, 87; the others take its share of the
//   peak
// RTX 4090 and B300 are not fitted: shares as the nearest machine. Names with an underscore are llm-foundry's
// machines, under FSDP. The first row whose two parts are in the column is taken: a site stands before the plain name.
constexpr MachineRow machines[] = {
    {"a100", "selene", 80, 312e12, 1.24e12, 0.82, 0.32, 5e-6, 108, 8, 230e9, 20e9, 4, 4e9},
    {"a100", "jean zay", 80, 312e12, 1.63e12, 0.781, 0.3, 5e-6, 108, 8, 85.1e9, 1.14e9, 9.5, 4e9},
    {"a100_80gb", "", 80, 312e12, 1.28e12, 0.775, 0.347, 5e-6, 108, 8, 220e9, 22e9, 4, 0},
    {"a100_40gb", "", 40, 312e12, 1.28e12, 0.775, 0.333, 5e-6, 108, 8, 26e9, 22e9, 2, 0},
    {"a100", "40g", 40, 312e12, 1.28e12, 0.775, 0.347, 5e-6, 108, 8, 220e9, 22e9, 2, 0},
    {"a100", "", 80, 312e12, 1.24e12, 0.82, 0.32, 5e-6, 108, 8, 230e9, 20e9, 4, 4e9},
    {"v100", "16gb (jean zay", 16, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 4, 28.7e9, 2e9, 2, 0},
    {"v100", "jean zay", 32, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 4, 28.7e9, 2e9, 2, 0},
    {"v100", "16g", 16, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 8, 65e9, 3e9, 2, 0},
    {"v100", "", 32, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 8, 65e9, 5e9, 2, 0},
    {"h100", "96gb", 94, 989e12, 1.1e12, 0.538, 0.235, 5e-6, 132, 8, 360e9, 45e9, 5, 0},
    {"h100_80gb", "", 80, 989e12, 2.29e12, 0.614, 0.186, 12e-6, 132, 8, 360e9, 45e9, 4, 0},
    {"h100", "", 80, 989e12, 2.6e12, 0.635, 0.45, 5e-6, 132, 8, 360e9, 45e9, 4, 0},
    {"h200", "", 141, 989e12, 3.7e12, 0.635, 0.45, 5e-6, 132, 8, 360e9, 45e9, 4, 0},
    {"gb200", "", 186, 2500e12, 6.2e12, 0.658, 0.26, 5e-6, 148, 64, 720e9, 45e9, 4, 0},
    {"gb300", "", 279, 2500e12, 6.2e12, 0.830, 0.312, 5e-6, 148, 64, 720e9, 90e9, 4, 0},
    {"b200", "", 180, 2250e12, 6.2e12, 0.566, 0.385, 5e-6, 148, 8, 720e9, 45e9, 4, 0},
    {"b300", "", 269, 2250e12, 6.2e12, 0.830, 0.312, 5e-6, 148, 8, 720e9, 90e9, 4, 0},
    {"4090", "", 24, 165e12, 0.9e12, 0.75, 0.5, 5e-6, 128, 8, 20e9, 5e9, 1, 0},
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool contains(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

// What narrower formats multiply the peak of matrix products by; 0 when the format is not known. FP8 doubles it and
// FP4 on Blackwell quadruples it, quantisation leaves about two thirds of the gain.
double formatGain(const std::string &precision) {
  if (contains(precision, "fp4"))
    return 2.6;
  if (contains(precision, "rowwise")) // torchtitan_llama3_h100 13: one scale per row gains nothing
    return 1;
  if (contains(precision, "fp8"))
    return 1.65;
  if (contains(precision, "fp32") && !contains(precision, "16"))
    return 0;
  return 1;
}

} // namespace

Machine publishedMachine(const std::string &gpu, const std::string &precision, int devices) {
  std::string name = lower(gpu);
  double gain = formatGain(lower(precision));
  const MachineRow *row = std::find_if(std::begin(machines), std::end(machines), [&](const MachineRow &candidate) {
    return contains(name, candidate.gpu) && contains(name, candidate.site);
  });
  Machine machine;
  if (row == std::end(machines) || gain == 0 || devices < 1)
    return machine;
  machine.name = std::string(row->gpu) + (*row->site ? " " : "") + row->site;
  machine.devicesPerHost = devices < row->perHost ? devices : std::gcd(devices, row->perHost);
  machine.hosts = devices / machine.devicesPerHost;
  machine.memoryBytes = row->memoryGiB * 1073741824.0;
  machine.peakFlops = row->peak16 * gain;
  machine.memoryBytesPerSecond = row->bytesPerSecond;
  machine.matmulEfficiency = row->matmul;
  machine.attentionEfficiency = row->attention / gain; // attention stays in 16 bits
  machine.launchSeconds = row->launchSeconds;
  machine.multiprocessors = row->multiprocessors;
  machine.link = {row->linkBytes, 3e-6};
  machine.network = {row->networkBytes, 8e-6};
  machine.sendBytesPerSecond = row->sendBytes;
  machine.reservedBytes = row->reservedGiB * 1073741824.0;
  return machine;
}

} // namespace espalier::planner
