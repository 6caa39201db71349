// Requests a build and prints whether the process runs with raised privileges, and the reasons it
// got: `secure_helper PLUGIN_FOLDER CACHE_FOLDER`. The test starts a set-user-ID copy of this
// program.
// SPDX-License-Identifier: Apache-2.0
#include <sys/auxv.h>

#include <cstdio>

#include "build/builder.h"
#include "plain_cache.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::printf("secure %lu\n", getauxval(AT_SECURE));
  std::vector<opdock::Reason> mistakes;
  const std::optional<opdock::Manifest> manifest =
      opdock::read_manifest(std::string(argv[1]) + "/plugin.toml", &mistakes);
  if (!manifest) return 2;
  opdock::testing::PlainCache cache(argv[2]);
  std::vector<opdock::Reason> reasons;
  const opdock::BuildResult result =
      opdock::build_plugin(*manifest, opdock::BuildOptions(), &cache, nullptr, &reasons);
  std::printf("built %d\n", result.entry != nullptr);
  for (const opdock::Reason& reason : reasons) {
    std::printf("%s\n", std::string(opdock::info(reason.code).name).c_str());
  }
  return 0;
}
