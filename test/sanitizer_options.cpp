// Default options of the sanitizers. Every program of a sanitizer build links this file, and the sanitizer reads it
// before main. Environment variables such as ASAN_OPTIONS override single options.

extern "C" {

// - allow_user_poisoning=0: LLVM's allocators, inlined here, poison memory that LLVM's own unsanitized code then uses.
// - exitcode: a report ends the process with a status that no test expects.
const char *__asan_default_options() { return "allow_user_poisoning=0:exitcode=86"; }

const char *__ubsan_default_options() { return "print_stacktrace=1"; }

// - die_after_fork=0: a rank's process is forked from a process that may have threads, and creates its own threads.
// - report_signal_unsafe=0: the crash handler builds its report itself. runtime/crash_report.cpp explains why this is
// safe.
const char *__tsan_default_options() { return "exitcode=86:die_after_fork=0:report_signal_unsafe=0"; }

// OpenMPI, which is built without a sanitizer, takes two of its locks in both orders.
const char *__tsan_default_suppressions() { return "deadlock:mca_btl_tcp.so\n"; }

} // extern "C"
