// The table of machines. Peaks, memory sizes and multiprocessors come from data sheets. Fitted constants name the rows
// that they were fitted on.
#include "tools/published/machines.h"

#include "tools/published/table.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace espalier::planner {

namespace {

// Four V100 and 192 GB per host (IDRIS), of which a job gets 40 GB per device (bigscience experiments/gpt2.md).
// Assumed: 80 % of PCIe 3.0 x16 (15.75 GB/s), and one switch for two devices (configs/clusters/v100_32g.yaml).
constexpr HostMemory jeanZayV100Host = {160e9, 12.5e9, 2};

// Constants of a machine. Efficiencies are shares of the data sheet's peak.
struct MachineRow {
  const char *gpu, *site; ///< substrings of the gpu column, in lower case and without spaces
  double memoryGiB, peak16, bytesPerSecond, matmul, attention;
  double launchSeconds;
  int multiprocessors, perHost;
  double linkBytes, networkBytes, reservedGiB;
  double sendBytes; ///< of one send between hosts; 0: as the network
  int bits;         ///< of the narrowest format of its matrix units
  HostMemory host = {};
};

// Network: one 200 or 400 Gb/s port per device, at the rate of nccl-tests. Latencies, launch: usual values. The
// constants below (matmul and those named) were fitted by random descent on the mean error of at most six rows (CSV
// lines). test/bench/fit_machine made the first two fits (tools/published/README.md has the commands):
//   selene     memory, send: korthikanti_2022_table5 4, 7, 10; narayanan_sc21_table1 4, 7, 10 (link: nccl-tests)
//   jean zay   link, network, reserved: bloom_jeanzay_a100_sweep 20, 21, 46, 48, 50, 53 (memory, attention: as selene;
//              send: one port of 100 Gb/s, the data sheet's)
//   h100_80gb  attention, memory, launch: llm_foundry_mpt 3, 10, 15, 22, 30, 38
//   a100_80gb  only attention, the rest as selene was: llm_foundry_mpt 42, 46, 50, 53, 62, 67
//   a100_40gb  attention and link, the rest as selene was: llm_foundry_mpt 71, 75, 78, 88, 95, 107
//   h100-96gb  attention, memory: torchtitan_llama3_h100 2, 5, 7, 11
//   h100, h200 megatron_bridge_perf 21, 65, 145 (attention by hand)
//   gb200      attention: megatron_bridge_perf 40, 68, 88, 123, 136, 137
//   gb300      attention: megatron_bridge_perf 18, 19, 62, 63, 64, 119
//   b200       attention: megatron_bridge_perf 128, 129
//   v100       Jean Zay with link, network, reserved: bigscience_v100 21, 25, 35, 40, 44, 87; the others take its share
//              of the peak
// The other machines are not fitted. Peaks (dense, f32 sums), sizes and multiprocessors are from the data sheets of
// NVIDIA, AMD and Huawei. Shares of the peak, launch and reserve are those of the nearest machine above: A100 for
// Ampere, GDDR memory and AMD; configs/clusters for Ascend; H100 for H20, GH200, H100 PCIe and NVL. A800 and H800 have
// NVLink of 400 GB/s, two thirds and four ninths of the original. PCIe reaches 20 GB/s (4.0) and 40 GB/s (5.0) through
// the host. Names with an underscore are llm-foundry's machines, under FSDP. The first row whose two substrings are in
// the column is taken. Hence a name with a site precedes the plain name, and a longer name precedes its substrings.
constexpr MachineRow machines[] = {
    {"a100", "selene", 80, 312e12, 1.24e12, 0.82, 0.32, 5e-6, 108, 8, 230e9, 20e9, 4, 4e9, 16},
    {"a100", "jeanzay", 80, 312e12, 1.24e12, 0.762, 0.32, 5e-6, 108, 8, 121e9, 1.07e9, 8.3, 12.5e9, 16},
    {"a100_80gb", "", 80, 312e12, 1.28e12, 0.775, 0.347, 5e-6, 108, 8, 220e9, 22e9, 4, 0, 16},
    {"a100_40gb", "", 40, 312e12, 1.28e12, 0.775, 0.333, 5e-6, 108, 8, 26e9, 22e9, 2, 0, 16},
    {"a100", "pcie40", 40, 312e12, 0.98e12, 0.775, 0.347, 5e-6, 108, 8, 20e9, 5e9, 2, 0, 16},
    {"a100", "pcie-40", 40, 312e12, 0.98e12, 0.775, 0.347, 5e-6, 108, 8, 20e9, 5e9, 2, 0, 16},
    {"a100", "40gbpcie", 40, 312e12, 0.98e12, 0.775, 0.347, 5e-6, 108, 8, 20e9, 5e9, 2, 0, 16},
    {"a100", "pcie", 80, 312e12, 1.22e12, 0.82, 0.32, 5e-6, 108, 8, 20e9, 5e9, 4, 0, 16},
    {"a100", "40g", 40, 312e12, 1.28e12, 0.775, 0.347, 5e-6, 108, 8, 220e9, 22e9, 2, 0, 16},
    {"a100", "p4de", 80, 312e12, 1.24e12, 0.82, 0.32, 5e-6, 108, 8, 230e9, 5e9, 4, 0, 16},
    {"a100", "p4d", 40, 312e12, 1.28e12, 0.775, 0.347, 5e-6, 108, 8, 220e9, 5e9, 2, 0, 16},
    {"a100", "", 80, 312e12, 1.24e12, 0.82, 0.32, 5e-6, 108, 8, 230e9, 20e9, 4, 4e9, 16},
    {"a800", "40g", 40, 312e12, 1.28e12, 0.775, 0.347, 5e-6, 108, 8, 153e9, 20e9, 2, 0, 16},
    {"a800", "", 80, 312e12, 1.24e12, 0.82, 0.32, 5e-6, 108, 8, 153e9, 20e9, 4, 4e9, 16},
    {"v100", "16gb(jeanzay", 16, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 4, 28.7e9, 2e9, 5.7, 0, 16, jeanZayV100Host},
    {"v100", "jeanzay", 32, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 4, 28.7e9, 2e9, 5.7, 0, 16, jeanZayV100Host},
    {"v100", "16gb(8/node,one100gb/s", 16, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 8, 65e9, 1.4e9, 2, 0, 16},
    {"v100", "dgx-2", 32, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 16, 115e9, 5e9, 2, 0, 16},
    {"v100", "16g", 16, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 8, 65e9, 3e9, 2, 0, 16},
    {"v100", "pcie", 32, 112e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 8, 10e9, 3e9, 2, 0, 16},
    {"v100", "", 32, 125e12, 0.75e12, 0.674, 0.3, 5e-6, 80, 8, 65e9, 5e9, 2, 0, 16},
    {"h100", "96gb", 94, 989e12, 1.1e12, 0.538, 0.235, 5e-6, 132, 8, 360e9, 45e9, 5, 0, 8},
    {"h100_80gb", "", 80, 989e12, 2.29e12, 0.614, 0.186, 12e-6, 132, 8, 360e9, 45e9, 4, 0, 8},
    {"h100-nvl", "", 94, 835e12, 3.0e12, 0.635, 0.45, 5e-6, 132, 8, 40e9, 45e9, 4, 0, 8},
    {"h100", "pcie", 80, 756e12, 1.55e12, 0.635, 0.45, 5e-6, 114, 8, 40e9, 45e9, 4, 0, 8},
    {"h100nvl", "", 94, 835e12, 3.0e12, 0.635, 0.45, 5e-6, 132, 8, 40e9, 45e9, 4, 0, 8},
    {"h100", "", 80, 989e12, 2.6e12, 0.635, 0.45, 5e-6, 132, 8, 360e9, 45e9, 4, 0, 8},
    {"h800", "", 80, 989e12, 2.6e12, 0.635, 0.45, 5e-6, 132, 8, 160e9, 45e9, 4, 0, 8},
    {"gh200", "", 96, 989e12, 3.1e12, 0.635, 0.45, 5e-6, 132, 4, 360e9, 45e9, 4, 0, 8},
    {"h200", "", 141, 989e12, 3.7e12, 0.635, 0.45, 5e-6, 132, 8, 360e9, 45e9, 4, 0, 8},
    {"h20", "", 96, 148e12, 3.1e12, 0.635, 0.45, 5e-6, 78, 8, 360e9, 45e9, 4, 0, 8},
    {"gb200", "", 186, 2500e12, 6.2e12, 0.658, 0.26, 5e-6, 148, 64, 720e9, 45e9, 4, 0, 4},
    {"gb300", "", 279, 2500e12, 6.2e12, 0.830, 0.312, 5e-6, 148, 64, 720e9, 90e9, 4, 0, 4},
    {"b200", "", 180, 2250e12, 6.2e12, 0.566, 0.385, 5e-6, 148, 8, 720e9, 45e9, 4, 0, 4},
    {"b300", "", 269, 2250e12, 6.2e12, 0.830, 0.312, 5e-6, 148, 8, 720e9, 90e9, 4, 0, 4},
    {"5090", "", 32, 209e12, 1.6e12, 0.75, 0.5, 5e-6, 170, 8, 40e9, 5e9, 1, 0, 4},
    {"4090", "", 24, 165e12, 0.9e12, 0.75, 0.5, 5e-6, 128, 8, 20e9, 5e9, 1, 0, 8},
    {"3090", "", 24, 71e12, 0.75e12, 0.82, 0.32, 5e-6, 82, 8, 20e9, 5e9, 1, 0, 16},
    {"l40s", "", 48, 362e12, 0.7e12, 0.75, 0.5, 5e-6, 142, 8, 20e9, 5e9, 2, 0, 8},
    {"l40", "", 48, 181e12, 0.7e12, 0.75, 0.5, 5e-6, 142, 8, 20e9, 5e9, 2, 0, 8},
    {"6000ada", "", 48, 364e12, 0.8e12, 0.75, 0.5, 5e-6, 142, 8, 20e9, 5e9, 2, 0, 8},
    {"a6000", "", 48, 155e12, 0.62e12, 0.82, 0.32, 5e-6, 84, 8, 20e9, 5e9, 2, 0, 16},
    {"a10g", "", 24, 70e12, 0.48e12, 0.82, 0.32, 5e-6, 80, 8, 20e9, 5e9, 1, 0, 16},
    {"a10", "", 24, 125e12, 0.48e12, 0.82, 0.32, 5e-6, 72, 8, 20e9, 5e9, 1, 0, 16},
    {"910b", "", 64, 313e12, 1.28e12, 0.6, 0.32, 5e-6, 24, 8, 150e9, 20e9, 4, 0, 16},
    {"800ta2", "", 64, 313e12, 1.28e12, 0.6, 0.32, 5e-6, 24, 8, 150e9, 20e9, 4, 0, 16},
    {"900a2", "", 64, 313e12, 1.28e12, 0.6, 0.32, 5e-6, 24, 8, 150e9, 20e9, 4, 0, 16},
    {"910c", "", 64, 376e12, 1.28e12, 0.6, 0.32, 5e-6, 24, 16, 150e9, 20e9, 4, 0, 16},
    {"ascend910", "", 32, 256e12, 0.96e12, 0.6, 0.32, 5e-6, 32, 8, 23e9, 10e9, 1, 0, 16},
    {"mi300x", "", 192, 1307e12, 4.2e12, 0.635, 0.45, 5e-6, 304, 8, 340e9, 45e9, 4, 0, 8},
    {"mi250", "", 64, 191e12, 1.3e12, 0.82, 0.32, 5e-6, 110, 8, 75e9, 20e9, 4, 0, 16},
};

bool contains(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

// Returns the factor of a matrix-product format over the 16-bit peak; 0 if it is unknown or the machine lacks it. FP8
// doubles the peak and FP4 on Blackwell quadruples it; quantisation leaves about two thirds of the gain. 32-bit
// formats are unsupported, because they keep and send twice the bytes.
double formatGain(const std::string &precision, int narrowestBits) {
  if (contains(precision, "fp4"))
    return narrowestBits <= 4 ? 2.6 : 0;
  if (contains(precision, "rowwise")) // torchtitan_llama3_h100 13: one scale per row yields no gain
    return narrowestBits <= 8 ? 1 : 0;
  if (contains(precision, "fp8") || contains(precision, "float8") || contains(precision, "mxfp8"))
    return narrowestBits <= 8 ? 1.65 : 0;
  for (const char *known : {"16", "mixed", "amp", "half"})
    if (contains(precision, known))
      return 1;
  return precision.empty() ? 1 : 0;
}

// Returns the row of the same generation that was fitted under PyTorch, or the row itself if there is none.
const MachineRow &measuredUnderPyTorch(const MachineRow &row) {
  constexpr std::pair<const char *, const char *> generations[] = {{"a100", "a100_80gb"}, {"a800", "a100_80gb"},
                                                                   {"h100", "h100_80gb"}, {"h800", "h100_80gb"},
                                                                   {"h200", "h100_80gb"}, {"gh200", "h100_80gb"}};
  for (auto [gpu, donor] : generations)
    if (std::string(row.gpu) == gpu && std::string(row.site) != "96gb") // that row was itself measured under PyTorch
      return *std::find_if(std::begin(machines), std::end(machines),
                           [&](const MachineRow &candidate) { return std::string(candidate.gpu) == donor; });
  return row;
}

} // namespace

Machine publishedMachine(const std::string &gpu, const std::string &precision, int devices, bool underPyTorch) {
  std::string name = lowerCase(gpu);
  std::erase(name, ' ');
  const MachineRow *row = std::find_if(std::begin(machines), std::end(machines), [&](const MachineRow &candidate) {
    return contains(name, candidate.gpu) && contains(name, candidate.site);
  });
  Machine machine;
  double gain = row == std::end(machines) ? 0 : formatGain(lowerCase(precision), row->bits);
  if (gain == 0 || devices < 1)
    return machine;
  machine.name = std::string(row->gpu) + (*row->site ? " " : "") + row->site;
  machine.devicesPerHost = devices < row->perHost ? devices : std::gcd(devices, row->perHost);
  machine.hosts = devices / machine.devicesPerHost;
  machine.memoryBytes = row->memoryGiB * 1073741824.0;
  machine.peakFlops = row->peak16 * gain;
  machine.memoryBytesPerSecond = row->bytesPerSecond;
  const MachineRow &shares = underPyTorch ? measuredUnderPyTorch(*row) : *row;
  machine.matmulEfficiency = shares.matmul;
  machine.attentionEfficiency = shares.attention / gain; // attention runs in 16 bits
  machine.launchSeconds = shares.launchSeconds;
  machine.multiprocessors = row->multiprocessors;
  machine.link = {row->linkBytes, 3e-6};
  machine.network = {row->networkBytes, 8e-6};
  machine.sendBytesPerSecond = row->sendBytes;
  machine.reservedBytes = row->reservedGiB * 1073741824.0;
  machine.host = row->host;
  return machine;
}

} // namespace espalier::planner
