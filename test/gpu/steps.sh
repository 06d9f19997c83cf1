# The steps of test/gpu/run. Each runs in its own process.

train() { # PLAN METRICS STEPS ...
  local plan=$1 metrics=$2 steps=$3 on=cpu; shift 3
  case $plan in *.cuda.plan) on=$device ;; esac
  espalier run "$plan" --device "$on" --data mock --steps "$steps" --metrics "$metrics" "$@"
}

# Starts reference runs without a GPU. All of them run in the background from the beginning.
reference() { # FILE NAME COMMAND...: writes the output to FILE, or creates FILE.failed
  local file=$1; shift
  "$@" "$file.part" > "$file.log" 2>&1 && mv "$file.part" "$file" || touch "$file.failed"
}
cpu_losses() { train "$plans/$1.cpu.plan" "$2" "$steps"; }
cpu_gradients() { train "$plans/$1.cpu.plan" /dev/null 2 --dump-gradients "$2"; }
emulated_gradients() { espalier run "$plans/$1.cuda.plan" --device emulated --data mock --steps 1 --dump-gradients "$2"; }
reference_of() { # KIND NAME
  reference "$scratch/$2.$1" "$1" "$2"
}
references() {
  local name kind kinds="cpu_losses cpu_gradients"
  [ -n "$dry" ] || kinds+=" emulated_gradients"
  rows | while read -r name _; do for kind in $kinds; do echo "$kind" "$name"; done; done |
    xargs -P "$(nproc)" -n 2 "$BASH" "$self" step reference_of
}
begin_references() {
  setsid "$BASH" "$self" step references > "$scratch/references.log" 2>&1 < /dev/null &
  prepared=$!
}
# Waits for a reference. The time limit of the step also limits the wait.
await() { # KIND NAME
  local file=$scratch/$2.$1
  until [ -e "$file" ]; do
    [ ! -e "$file.failed" ] || { cat "$file.log"; return 1; }
    sleep 0.2
  done
}

gradients_agree() { # WANTED GOT LIMIT
  python3 test/gpu/compare_tensors.py "$1" "$2" --relative "$(python3 -c "print(10 * $3)")"
}

# Compares the same plan on the CPU and on the GPU: the losses of ten steps, and the gradients of the first two.
compare() { # NAME LIMIT
  local name=$1 cuda=$plans/$1.cuda.plan
  train "$cuda" "$scratch/$name.cuda.jsonl" "$steps" && await cpu_losses "$name" &&
    python3 test/e2e/compare_losses.py "$scratch/$name.cuda.jsonl" "$scratch/$name.cpu_losses" --names cuda cpu --limit "$2" &&
    train "$cuda" /dev/null 2 --dump-gradients "$scratch/cuda.safetensors" >/dev/null && await cpu_gradients "$name" &&
    gradients_agree "$scratch/$name.cpu_gradients" "$scratch/cuda.safetensors" "$2"
}

# Compares with the interpreted kernels of the plan. Differences come from the driver's compiler and its approximate
# functions.
interpret() { # NAME LIMIT
  train "$plans/$1.cuda.plan" /dev/null 1 --dump-gradients "$scratch/cuda.safetensors" >/dev/null &&
    await emulated_gradients "$1" && gradients_agree "$scratch/$1.emulated_gradients" "$scratch/cuda.safetensors" "$2"
}

# A repeated run and a resumed run have the same bits.
repeat() {
  local name=$1 cuda=$plans/$1.cuda.plan
  rm -rf "$scratch/ckpt"
  train "$cuda" "$scratch/$name.again.jsonl" "$steps" &&
    python3 test/e2e/compare_losses.py --exact "$scratch/$name.cuda.jsonl" "$scratch/$name.again.jsonl" &&
    train "$cuda" /dev/null $((steps / 2)) --checkpoint "$scratch/ckpt" &&
    train "$cuda" "$scratch/$name.resumed.jsonl" "$steps" --checkpoint "$scratch/ckpt" --resume &&
    python3 test/e2e/compare_losses.py --exact --from $((steps / 2 + 1)) "$scratch/$name.cuda.jsonl" "$scratch/$name.resumed.jsonl"
}

# The device memory that the run takes is the plan's arena, its workspace and the memory of libraries.
memory() {
  train "$plans/$1.cuda.plan" /dev/null 2 | tee "$scratch/memory" && espalier inspect "$plans/$1.cuda.plan" --json > "$scratch/inspected" &&
    python3 - "$scratch/memory" "$scratch/inspected" <<'PYTHON'
import json, re, sys
said, = re.findall(r"device memory: ([\d.]+) GiB arena, ([\d.]+) GiB workspace, ([\d.]+) GiB code", open(sys.argv[1]).read())
arena, workspace, besides = map(float, said)
planned = max(json.load(open(sys.argv[2]))["arena_bytes"]) / 2**30
isRight = abs(arena - planned) < 0.001 and besides < 1
print(f"{'' if isRight else 'error: '}arena {arena} GiB, planned {planned:.3f}; workspace {workspace}; code and libraries {besides}, at most 1")
sys.exit(not isRight)
PYTHON
}

# Both devices generate the same greedy tokens from one checkpoint.
generate() {
  local words=(--checkpoint "$scratch/said" --tokens "84 104 101 32" --tokens 65 --max-tokens 8)
  train "$plans/gpt_f32.cpu.plan" /dev/null 4 --checkpoint "$scratch/said" >/dev/null &&
    espalier generate "$plans/say.cpu.plan" "${words[@]}" > "$scratch/said.cpu" &&
    espalier generate "$plans/say.cuda.plan" --device "$device" "${words[@]}" > "$scratch/said.cuda" &&
    diff "$scratch/said.cpu" "$scratch/said.cuda"
}

# PyTorch computes the same gradients from the same parameters and tokens. The first step has the learning rate 0.
peer_gradients() { # TYPE LIMIT
  espalier run "$plans/gradients_$1.cuda.plan" --device cuda --data "$kit/data_text_document" --split 100,0,0 --steps 1 \
    --dump-gradients "$scratch/gradients" --dump-parameters "$scratch/parameters" &&
    python3 test/gpu/peer.py gradients "$scratch/parameters" "$scratch/gradients" "$kit/data_text_document.bin" 1024 "$2"
}

timed_run() { # NAME
  ESPALIER_CUDA_TIMES=$scratch/$1.times.txt train "$plans/$1.cuda.plan" /dev/null 4 && cat "$scratch/$1.times.txt"
}

# Four ranks on one device train like one rank, and a repeated run has the same bits.
share() { # NAME STEPS LIMIT
  local name=$1 plan=$plans/$1.cuda.plan
  [ -z "$settings" ] || export $settings
  train "$plan" "$scratch/$name.jsonl" "$2" --share-devices &&
    train "$plan" "$scratch/$name.again.jsonl" "$2" --share-devices &&
    python3 test/e2e/compare_losses.py --exact "$scratch/$name.jsonl" "$scratch/$name.again.jsonl" &&
    train "$plans/${name}_one.cuda.plan" "$scratch/$name.one.jsonl" "$2" &&
    python3 test/e2e/compare_losses.py "$scratch/$name.jsonl" "$scratch/$name.one.jsonl" --names four one --limit "$3"
}

# If one rank is killed, all ranks end within 5 seconds, with a report.
kill_rank() {
  [ -z "$settings" ] || export $settings
  python3 test/e2e/fail_rank.py SIGKILL 2 espalier run "$plans/$1.cuda.plan" --device "$device" --data mock --steps 100000 \
    --share-devices --status "$scratch/s.json" --failure-report "$scratch/failure.json" | tee "$scratch/killed" &&
    grep -q '^in time' "$scratch/killed" && grep -q '^left: \[\]' "$scratch/killed" && grep -q '^exit 1$' "$scratch/killed" &&
    cat "$scratch/failure.json" && grep -q '"rank": 2' "$scratch/failure.json"
}
