# Functions that test/gpu/run uses to find libraries on the machine. The report lists their locations.

# Prints the folder of the first library that is found: in the loader's paths, in Python packages, in usual folders of
# images, or anywhere else.
folder_of() {
  local name folder
  for name in "$@"; do
    for folder in $(tr ':' ' ' <<< "${LD_LIBRARY_PATH:-}") \
      $(ldconfig -p 2>/dev/null | awk -v name="$name" '$1 == name && /x86-64/ {sub("/[^/]*$", "", $NF); print $NF; exit}') \
      $(timeout 20 python3 -c 'import glob, nvidia, os, sys
print(*sorted({os.path.dirname(f) for p in nvidia.__path__ for f in glob.glob(p + "/**/" + sys.argv[1], recursive=True)}))' "$name" 2>/dev/null) \
      /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/local/cuda/lib64 /usr/lib/wsl/lib; do
      [ -e "$folder/$name" ] && { echo "$folder"; return; }
    done
  done
  for name in "$@"; do
    folder=$(timeout 20 find /usr /opt /root /home -name "$name" -not -path '*/stubs/*' -not -path "*/compat/*" -not -type d -printf '%h\n' -quit 2>/dev/null)
    [ -z "$folder" ] || { echo "$folder"; return; }
  done
  return 1
}

# Wraps the kit's programs so that they find their libraries, without changing the environment of python3 and others.
# $1: a folder with NCCL.
make_wrappers() {
  local program
  mkdir -p "$scratch/bin"
  for program in "$kit"/bin/*; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$kit/lib:${1:+$1:}$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
      "$program" > "$scratch/bin/${program##*/}" && chmod +x "$scratch/bin/${program##*/}"
  done
}

find_libraries() {
  local name folder carried=
  libraries=
  if [ -n "$dry" ]; then
    libraries=$kit/emulator
    make_wrappers ""
    return
  fi
  for name in libcuda.so.1 "libcublasLt.so.13 libcublasLt.so.12"; do
    folder=$(folder_of $name) || { say "no ${name/ / or } on this machine"; continue; }
    say "${name%% *} in $folder"
    libraries+=${libraries:+:}$folder
  done
  nccl_of_machine=$(folder_of libnccl.so.2) && say "libnccl.so.2 in $nccl_of_machine"
  if [ -e "$kit/nccl/libnccl.so.2" ]; then
    carried=$kit/nccl
    say "libnccl.so.2 was carried, too"
  fi
  make_wrappers "${carried:-$nccl_of_machine}"
}

# Unpacks the kit. Fails if its programs do not start.
arrive() {
  [ -x "$kit/bin/espalier" ] || tar -C "${kit%/*}" -xzf "$kit.tar.gz" 2>/dev/null
  [ -x "$kit/bin/espalier" ] || { say "no $kit: make it by test/gpu/run pack where Espalier is built, and carry $kit.tar.gz here"; return 1; }
  say "$(date -u '+%Y-%m-%d %H:%M'), $(uname -srm), $(getconf GNU_LIBC_VERSION 2>/dev/null), $(nproc) processors," \
    "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 2^20}' /proc/meminfo), /dev/shm $(df -h --output=size /dev/shm 2>/dev/null | tail -n 1 | tr -d ' ')," \
    "$(sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null)"
  if [ -n "$dry" ]; then
    export device=emulated small=--small
    say "dry run on the emulated device"
  else
    export device=cuda small=
    say "$(timeout 30 nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader 2>&1 | head -n 4)"
  fi
  command -v python3 > /dev/null || { say "no python3 on this machine: the comparisons need one"; return 1; }
  find_libraries
  export PATH="$scratch/bin:$PATH"
  expect starts 30 espalier --help ||
    { say "the kit needs a C library of $(cat "$kit/glibc" 2>/dev/null) or newer"; return 1; }
  expect epilogues 60 device_check --epilogues || return 0 # the error is in the report
  local missing
  missing=$(grep -xE '[a-z_]+' "$scratch/epilogues.log" | paste -sd,)
  if [ -n "$missing" ]; then
    plans=$kit/unfused
    say "cuBLASLt has no $missing for some products: the plans of this report leave epilogues to kernels"
  fi
}
