#include "c_interface/guard.h"

#include "messages/data_error.h"
#include "runtime/status.h"

#include <exception>
#include <filesystem>
#include <string>

namespace espalier::c_interface {
namespace {

/// The last error of a thread, with its texts.
struct LastError {
  std::string message, file;
  espalier_error error = {ESPALIER_OK, "", "", 0};
};

thread_local LastError last;

espalier_status keep(espalier_status status, const std::string &message, const std::string &file = "",
                     int64_t line = 0) {
  last.message = message;
  last.file = file;
  last.error = {status, last.message.c_str(), last.file.c_str(), line};
  return status;
}

} // namespace

espalier_status guarded(const std::function<void()> &body) {
  try {
    body();
    return ESPALIER_OK;
  } catch (const rt::MemoryError &error) {
    return keep(ESPALIER_DOES_NOT_FIT, error.what());
  } catch (const rt::PlanError &error) {
    return keep(ESPALIER_INPUT_ERROR, error.what());
  } catch (const rt::DataError &error) {
    return keep(ESPALIER_INPUT_ERROR, error.reason(), error.file(), error.line());
  } catch (const std::filesystem::filesystem_error &error) {
    return keep(ESPALIER_INPUT_ERROR, error.code().message(), error.path1().string());
  } catch (const std::exception &error) {
    return keep(ESPALIER_FAILED, error.what());
  }
}

} // namespace espalier::c_interface

int32_t espalier_interface(void) { return ESPALIER_INTERFACE; }
const char *espalier_version(void) { return ESPALIER_VERSION; }
const espalier_error *espalier_last_error(void) { return &espalier::c_interface::last.error; }
