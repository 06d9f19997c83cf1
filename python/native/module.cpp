// The module espalier._native. C++ exceptions become the exceptions of espalier/errors.py.
#include "python/native/bindings.h"

#include "messages/data_error.h"
#include "runtime/status.h"

#include <exception>
#include <filesystem>

namespace nb = nanobind;

namespace espalier::python {
namespace {

/// Sets the exception `name` of espalier.errors as the current Python error.
void raise(const char *name, const std::string &message, const std::string &file = "", int64_t line = 0) {
  nb::object type = nb::module_::import_("espalier.errors").attr(name);
  nb::object error = type(nb::str(message.c_str(), message.size()), nb::str(file.c_str(), file.size()), line);
  PyErr_SetObject(type.ptr(), error.ptr());
}

void translate(const std::exception_ptr &thrown, void *) {
  try {
    std::rethrow_exception(thrown);
  } catch (const rt::MemoryError &error) {
    raise("DoesNotFitError", error.what());
  } catch (const rt::PlanError &error) {
    raise("InputError", error.what());
  } catch (const rt::DataError &error) {
    raise("InputError", error.reason(), error.file(), error.line());
  } catch (const rt::RankFailure &error) {
    raise("RunError", error.what());
  } catch (const std::filesystem::filesystem_error &error) {
    raise("InputError", error.code().message(), error.path1().string());
  }
}

} // namespace
} // namespace espalier::python

NB_MODULE(_native, module) {
  nb::register_exception_translator(espalier::python::translate);
  espalier::python::addRun(module);
  espalier::python::addCheckpoint(module);
}
