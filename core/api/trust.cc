// The functions of opdock.h that record, withdraw, check and list the user's trust in plugins.
// SPDX-License-Identifier: Apache-2.0
#include "trust/trust.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "base/fd.h"
#include "base/files.h"
#include "chain/runtime.h"
#include "opdock/opdock.h"
#include "opdock/types.hpp"
#include "report/report.h"

namespace opdock {
namespace {

Report list_consents(const SearchEnvironment& environment) {
  const Trust trust(environment);
  return {{"file", consent_file(environment)},
          {"trusted", trust.consents()},
          {"reasons", to_json(trust.notices())}};
}

// Reports whether the folder or file of this name may be used now, and the reason against it, if
// any.
Report state_of(const std::string& folder, const SearchEnvironment& environment) {
  Trust trust(environment);
  TrustedPath trusted = trust.check_path(folder);
  Fd file;
  struct stat status{};
  if (!trusted.reason && !trusted.has_consent &&
      open_file(folder, O_RDONLY | O_NONBLOCK, 0, &file) == 0 && fstat(file.get(), &status) == 0 &&
      S_ISREG(status.st_mode))
    trusted.reason = trust.check_file(file.get(), status, folder);
  std::vector<Reason> reasons;
  if (trusted.reason) reasons.push_back(*trusted.reason);
  return {{"folder", folder},
          {"consent", trusted.has_consent},
          {"trusted", !trusted.reason.has_value()},
          {"reasons", to_json(reasons)}};
}

}  // namespace
}  // namespace opdock

opdock_status opdock_trust_json(const char* action, const char* folder, char** out, char* error,
                                uint32_t error_size) {
  using namespace opdock;
  return report(
      [&]() -> Report {
        const std::string what = action == nullptr ? "" : action;
        const bool lists = what == "list", checks = what == "check", forces = what == "force";
        const bool adds = what == "add" || forces;
        if (!lists && !adds && !checks && what != "remove") {
          throw Error(OPDOCK_INVALID_ARGUMENT,
                      "action: found \"" + what + "\", wanted add, force, remove, check or list");
        }
        if (!lists) need(folder, "folder", "an absolute path");
        const SearchEnvironment environment = read_search_environment();
        if (lists) return list_consents(environment);
        if (checks) return state_of(folder, environment);
        const Status done = adds ? record_consent(folder, environment, forces)
                                 : withdraw_consent(folder, environment);
        if (!done.ok()) throw Error(done.status, done.text);
        return state_of(folder, environment);
      },
      out, {error, error_size});
}

opdock_status opdock_trust(const char* folder, char* error, uint32_t error_size) {
  char* ignored = nullptr;
  const opdock_status status = opdock_trust_json("add", folder, &ignored, error, error_size);
  opdock_free(ignored);
  return status;
}
