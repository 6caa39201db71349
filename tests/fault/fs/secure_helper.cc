// Prints what discovery finds in this process; the tests start it with raised privileges.
// SPDX-License-Identifier: Apache-2.0
#include <sys/auxv.h>

#include <cstdio>
#include <string>

#include "discover/catalog.h"
#include "trust/trust.h"

// The argument, if any, is searched as a package's place.
int main(int argc, char** argv) {
  std::printf("secure %d\n", getauxval(AT_SECURE) != 0 ? 1 : 0);
  opdock::SearchOptions options;
  options.environment = opdock::read_search_environment();
  if (argc > 1) options.package_path = argv[1];
  const std::shared_ptr<const opdock::Catalog> catalog =
      opdock::discover(options, opdock::probe_machine());
  for (const opdock::Reason& reason : catalog->notices()) {
    std::printf("notice %s\n", opdock::to_text(reason).c_str());
  }
  for (const std::shared_ptr<const opdock::Candidate>& candidate : catalog->candidates()) {
    std::printf("plugin %s %s", candidate->path.c_str(),
                std::string(opdock::to_text(candidate->verdict.state)).c_str());
    for (const opdock::Reason& reason : candidate->verdict.reasons) {
      std::printf(" %s", std::string(opdock::info(reason.code).name).c_str());
    }
    std::printf("\n");
  }
  const std::string problem = opdock::record_consent("/usr", options.environment).text;
  std::printf("trust %s\n", problem.empty() ? "recorded" : problem.c_str());
  return 0;
}
