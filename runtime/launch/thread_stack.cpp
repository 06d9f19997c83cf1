// Ranks are forked without exec, so that what this process has loaded has the same addresses in them.
#include "runtime/launch/thread_stack.h"

#include "runtime/files/mapped_file.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <link.h>
#include <memory>
#include <mutex>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace espalier::rt {
namespace {

/// The handler and the frame that returns from it.
constexpr int ownFrames = 2;

/// The most functions that a printed stack names. Functions of the standard library are left out.
constexpr size_t mostNames = 20;

int stackSignal() { return SIGRTMIN + 4; }

void leaveStack(int, siginfo_t *info, void *) {
  if (info->si_code != SI_QUEUE)
    return;
  int error = errno; // of the interrupted call
  auto *activity = static_cast<Activity *>(info->si_value.sival_ptr);
  std::array<void *, Activity::mostFrames + ownFrames> addresses{};
  int count = backtrace(addresses.data(), static_cast<int>(addresses.size())) - ownFrames;
  for (int i = 0; i < count; ++i)
    activity->stack[static_cast<size_t>(i)] =
        reinterpret_cast<uintptr_t>(addresses[static_cast<size_t>(i) + ownFrames]);
  activity->frames.store(std::max(count, 0), std::memory_order_release);
  errno = error;
}

void installHandler() {
  void *first = nullptr;
  backtrace(&first, 1); // loads what the handler must not load
  struct sigaction action = {};
  action.sa_sigaction = leaveStack;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(stackSignal(), &action, nullptr);
}

/// Returns the function at an address of this program, from the symbol table of its file; empty if it has none.
std::string functionOfProgram(uintptr_t offset) {
  static const MappedFile file("/proc/self/exe");
  std::span<const uint8_t> bytes = file.bytes();
  auto at = [&]<typename T>(uint64_t begin, uint64_t count, const T *) {
    bool fits = begin <= bytes.size() && count <= (bytes.size() - begin) / sizeof(T);
    return std::span(reinterpret_cast<const T *>(bytes.data() + begin), fits ? count : 0);
  };
  auto header = at(0, 1, static_cast<const Elf64_Ehdr *>(nullptr));
  if (header.empty())
    return "";
  auto sections = at(header[0].e_shoff, header[0].e_shnum, static_cast<const Elf64_Shdr *>(nullptr));
  for (const Elf64_Shdr &section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size())
      continue;
    const Elf64_Shdr &names = sections[section.sh_link];
    for (const Elf64_Sym &symbol :
         at(section.sh_offset, section.sh_size / sizeof(Elf64_Sym), static_cast<const Elf64_Sym *>(nullptr)))
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && offset >= symbol.st_value &&
          offset < symbol.st_value + symbol.st_size && symbol.st_name < names.sh_size)
        return reinterpret_cast<const char *>(bytes.data() + names.sh_offset + symbol.st_name);
  }
  return "";
}

/// Returns a function's name without namespaces of this project, arguments and parameters of templates.
std::string readable(const std::string &symbol) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                   &std::free);
  std::string name = status == 0 ? text.get() : symbol;
  for (std::string_view left : {"(anonymous namespace)::", "espalier::", "rt::"})
    for (size_t found; (found = name.find(left)) != std::string::npos;)
      name.erase(found, left.size());
  return name.substr(0, name.find_first_of("(<"));
}

std::string functionAt(pid_t process, uintptr_t address) {
  Dl_info info{};
  link_map *map = nullptr;
  bool isOurs =
      dladdr1(reinterpret_cast<void *>(address), &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP) != 0;
  if (isOurs && info.dli_sname)
    return readable(info.dli_sname);
  if (isOurs && map->l_name[0] == 0)
    if (std::string symbol = functionOfProgram(address - map->l_addr); !symbol.empty())
      return readable(symbol);
  uintptr_t offset = 0;
  std::string file = mappedFileAt(process, address, &offset);
  return fmt::format("{}+{:#x}", std::filesystem::path(file).filename().string(), file.empty() ? address : offset);
}

} // namespace

WatchedThread::WatchedThread(Activity *activity) : activity(activity) {
  static std::once_flag isInstalled;
  if (!activity)
    return;
  std::call_once(isInstalled, installHandler);
  before = activity->thread;
  activity->process = getpid();
  activity->thread = static_cast<int32_t>(syscall(SYS_gettid));
}

WatchedThread::~WatchedThread() {
  if (activity)
    activity->thread = before;
}

void requestStack(Activity &activity) {
  activity.frames.store(-1, std::memory_order_relaxed);
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = &activity;
  syscall(SYS_rt_tgsigqueueinfo, int32_t{activity.process}, int32_t{activity.thread}, stackSignal(), &info);
}

std::string stackText(const Activity &activity) {
  int count = std::min<int>(activity.frames.load(std::memory_order_acquire), Activity::mostFrames);
  if (count < 0) {
    std::ifstream file(fmt::format("/proc/{}/status", int32_t{activity.thread}));
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("State:\t"))
        return fmt::format("none, because the system does not run it, in state {}", line.substr(7));
    return "none, because the thread has ended";
  }
  std::vector<std::string> names;
  for (int i = 0; i < count && names.size() < mostNames; ++i) {
    // A return address lies behind its call, which may be the last instruction of a function.
    uintptr_t address = activity.stack[static_cast<size_t>(i)];
    std::string name = functionAt(activity.process, i > 0 ? address - 1 : address);
    if (name.find("std::") == std::string::npos)
      names.push_back(std::move(name));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string mappedFileAt(pid_t process, uintptr_t address, uintptr_t *offset) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uintptr_t begin = 0, end = 0, at = 0;
    char dash = 0;
    std::string permissions, device, inode, path;
    if (!(words >> std::hex >> begin >> dash >> end >> permissions >> at >> device >> inode) || address < begin ||
        address >= end)
      continue;
    std::getline(words >> std::ws, path);
    if (offset)
      *offset = address - begin + at;
    return path.starts_with('/') ? path : "";
  }
  return "";
}

uint64_t computeTimeOf(int32_t thread) {
  uint64_t nanoseconds = 0;
  std::ifstream(fmt::format("/proc/{}/schedstat", thread)) >> nanoseconds;
  return nanoseconds;
}

bool isPrinting(int32_t thread) {
  std::ifstream file(fmt::format("/proc/{}/syscall", thread));
  long number = -1;
  int descriptor = -1;
  return file >> number >> std::hex >> descriptor && (number == SYS_write || number == SYS_writev) &&
         (descriptor == STDOUT_FILENO || descriptor == STDERR_FILENO);
}

} // namespace espalier::rt
