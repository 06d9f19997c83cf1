# Configuration of lit. The tools under test are in build/bin, FileCheck is in LLVM's folder.
import importlib.util
import os
import shutil
import subprocess
import sys
import lit.formats

config.name = "espalier"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["inputs"]
config.test_source_root = os.path.join(config.source_dir, "test")
config.test_exec_root = os.path.join(config.binary_dir, "test")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(config.binary_dir, "bin"), config.llvm_tools_dir, os.environ["PATH"]])
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "cache")
config.environment["XDG_CONFIG_HOME"] = os.path.join(config.test_exec_root, "config")
config.environment["FILECHECK_OPTS"] = "-enable-var-scope --dump-input-filter=error"
config.substitutions.append(("%source_dir", config.source_dir))
config.substitutions.append(("%bin_dir", os.path.join(config.binary_dir, "bin")))
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%configs", os.path.join(config.source_dir, "configs")))

# A sanitizer uses the address space and allocates its own memory. Timeouts are ten times longer, because sanitized
# programs are slow.
if config.sanitizers:
    config.available_features.add("sanitizer")
    config.substitutions.append((r"\btimeout ([0-9]+)\b", r"timeout \g<1>0"))
    config.environment.update(ESPALIER_SLOWDOWN="10", ESPALIER_TWO_HOSTS_SECONDS="1200")
if config.sanitizers and not config.sanitizes_compiler:
    config.excludes += ["compiler", "dialects"]

# ptxas is the assembler of a CUDA toolkit. Only tests that require it use a toolkit.
ptxas = shutil.which("ptxas", path=os.pathsep.join([os.environ["PATH"], "/usr/local/cuda/bin"]))
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas))

# The Python package jsonschema validates JSON against a schema.
if importlib.util.find_spec("jsonschema"):
    config.available_features.add("jsonschema")

# The tests of reports open them in a browser. `./dev install` does not install it.
if shutil.which("chromium"):
    config.available_features.add("chromium")

# The Python package in the build folder runs in any Python that has NumPy; its tests need pytest.
module = os.path.join(config.binary_dir, "python")
has_module = os.path.isdir(module) and subprocess.run(
    ["/usr/bin/python3", "-c", "import espalier, pytest"], env={**os.environ, "PYTHONPATH": module},
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
if has_module and not config.sanitizers:
    config.available_features.add("python-module")
    config.substitutions.append(("%module", module))

# OpenMPI runs as any user and with more ranks than cores. Without OpenMPI, the tests that require it are skipped.
if shutil.which("mpirun"):
    config.available_features.add("mpirun")
    config.substitutions.append(("%mpirun", "mpirun --oversubscribe"))
    config.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

# pyarrow reads Parquet files. `./dev install` does not install it.
if importlib.util.find_spec("pyarrow"):
    config.available_features.add("pyarrow")

# Some tests use network namespaces as hosts, which only root may create. They are skipped elsewhere.
if shutil.which("ip") and subprocess.run(["unshare", "--net", "--uts", "true"], stderr=subprocess.DEVNULL).returncode == 0:
    config.available_features.add("netns")

# A test drops messages between such hosts.
if shutil.which("iptables") and subprocess.run(["unshare", "--net", "iptables", "-L"], stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL).returncode == 0:
    config.available_features.add("iptables")

# Some tests start an sshd for their hosts. `./dev install` does not install it.
if shutil.which("sshd", path="/usr/sbin"):
    config.available_features.add("sshd")

# The models of protocols need the model checker Spin and a C compiler.
if shutil.which("spin") and shutil.which("clang-19"):
    config.available_features.add("spin")

# A test sends requests to a server through nginx. It is skipped if nginx is not installed.
if shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"):
    config.available_features.add("nginx")

# Some tests start the daemons of Slurm. They are skipped if Slurm is not installed.
slurm = ("munged", "slurmctld", "slurmd", "srun")
if all(shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") for program in slurm):
    config.available_features.add("slurm")

# Some tests need fixtures in a folder beside the repository. They are skipped without it.
shared = os.environ.get("ESPALIER_SHARED", os.path.join(config.source_dir, "..", "shared"))
if os.path.isdir(shared):
    config.available_features.add("shared")
    config.substitutions.append(("%shared", os.path.realpath(shared)))
