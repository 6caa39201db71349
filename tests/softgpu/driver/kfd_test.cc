// Reads the output of softgpu-kfd with Opdock's own probe.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "facts/probes.h"
#include "support/temporary_folder.h"

namespace {

TEST(Kfd, TellsOfTheConfiguredGpus) {
  const opdock_test::TemporaryFolder folder;
  setenv("OPDOCK_SOFTGPU",
         R"({"gpus": [{"arch": "sm_90"}, {"arch": "gfx90a", "name": "Aldebaran", "memory": 12345},
                      {"arch": "gfx1030"}, {"arch": "gfx908:sramecc-"}]})",
         1);
  const std::string command = std::string(KFD_PROGRAM) + " " + folder.path().string();
  ASSERT_EQ(std::system(command.c_str()), 0);
  opdock::Environment environment;
  environment.sysfs = (folder.path() / "sys").string();
  environment.dev = (folder.path() / "dev").string();
  opdock::MachineFacts facts;
  opdock::probe_rocm(environment, &facts);
  EXPECT_EQ(facts.rocm_problem, "");
  ASSERT_EQ(facts.gpus.size(), 3u);
  EXPECT_EQ(facts.gpus[0].arch, "gfx90a:sramecc+:xnack-");
  EXPECT_EQ(facts.gpus[0].name, "Aldebaran");
  EXPECT_EQ(facts.gpus[0].memory_bytes, 12345u);
  EXPECT_EQ(facts.gpus[0].uuid, "GPU-0000000000000002");
  EXPECT_EQ(facts.gpus[1].arch, "gfx1030");
  EXPECT_EQ(facts.gpus[2].arch, "gfx908:sramecc-:xnack-");
}

}  // namespace
