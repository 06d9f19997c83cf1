// What the sanitizers are told in every program of a sanitizer build, whoever starts it: linked into each, and read by
// the sanitizer's own library before main. Variables such as ASAN_OPTIONS override single words of it.

extern "C" {

// - LLVM's allocators, inlined here, poison what the library's own code, built without sanitizer, then hands out.
// - A report ends the process with a status that no test expects of the command.
const char *__asan_default_options() { return "allow_user_poisoning=0:exitcode=86"; }

const char *__ubsan_default_options() { return "print_stacktrace=1"; }

// - A rank's process is forked from one that may have threads, and makes its own.
// - What is told of a crash is put together in its handler (runtime/crash_report.cpp says why that may be).
const char *__tsan_default_options() { return "exitcode=86:die_after_fork=0:report_signal_unsafe=0"; }

// OpenMPI, built without sanitizer, takes two locks of its own in both orders.
const char *__tsan_default_suppressions() { return "deadlock:mca_btl_tcp.so\n"; }

} // extern "C"
