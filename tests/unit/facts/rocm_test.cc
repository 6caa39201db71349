// Tests AMD GPU facts with made-up KFD trees.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "child.h"
#include "facts/probes.h"

namespace opdock::test {
namespace {

// A machine with a CPU node, an MI250X and an RX 7900, in KFD's format.
class Kfd : public testing::Test {
 protected:
  Kfd() {
    environment_.nvml = "libno-nvml.so.1";
    environment_.cuda = "libno-cuda.so.1";
    environment_.sysfs = folder_.path() / "sys";
    environment_.dev = folder_.path() / "dev";
    environment_.opt = folder_.path() / "opt";
    folder_.write("dev/kfd", "");
    folder_.write("dev/dri/renderD128", "");
    folder_.write("dev/dri/renderD129", "");
    folder_.write("opt/rocm/.info/version", "6.2.0-66\n");
    node("0", "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\n", "");
    node("1",
         "simd_count 440\ngfx_target_version 90010\nunique_id 1311768467463790320\n"
         "capability 67108864\ndrm_render_minor 128\n",
         "aldebaran\n");
    folder_.write(nodes() + "1/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 68702699520\n");
    folder_.write(nodes() + "1/mem_banks/1/properties", "heap_type 5\nsize_in_bytes 65536\n");
    node("10", "simd_count 192\ngfx_target_version 110000\ndrm_render_minor 129\n", "navi31\n");
  }

  static std::string nodes() { return "sys/class/kfd/kfd/topology/nodes/"; }

  void node(const std::string& number, const std::string& properties, const std::string& name) {
    folder_.write(nodes() + number + "/properties", properties);
    folder_.write(nodes() + number + "/name", name);
  }

  MachineFacts probe() {
    MachineFacts facts;
    probe_rocm(environment_, &facts);
    return facts;
  }

  std::vector<std::string> archs() {
    std::vector<std::string> archs;
    for (const Gpu& gpu : probe().gpus) archs.push_back(gpu.arch);
    return archs;
  }

  TemporaryFolder folder_;
  Environment environment_;
};

using Strings = std::vector<std::string>;
const char kMi250[] = "gfx90a:sramecc+:xnack-";

TEST_F(Kfd, TellsGpusAndVersion) {
  const MachineFacts facts = probe();
  EXPECT_EQ(facts.rocm->text(), "6.2.0");
  EXPECT_EQ(facts.rocm_problem, "");
  ASSERT_EQ(facts.gpus.size(), 2u);
  EXPECT_EQ(facts.gpus[0].backend, Backend::kRocm);
  EXPECT_EQ(facts.gpus[0].name, "aldebaran");
  EXPECT_EQ(facts.gpus[0].arch, kMi250);
  EXPECT_EQ(facts.gpus[0].uuid, "GPU-123456789abcdef0");
  EXPECT_EQ(facts.gpus[0].memory_bytes, 68702699520u);
  EXPECT_EQ(facts.gpus[0].major, 9);
  EXPECT_EQ(facts.gpus[0].minor, 0);
  EXPECT_EQ(facts.gpus[1].arch, "gfx1100");
  EXPECT_EQ(facts.gpus[1].index, 1);
}

TEST_F(Kfd, NamesOfProcessors) {
  const std::pair<const char*, const char*> cases[] = {{"90000", "gfx900:xnack-"},
                                                       {"90006", "gfx906:sramecc-:xnack-"},
                                                       {"90402", "gfx942:sramecc-:xnack-"},
                                                       {"100100", "gfx1010:xnack-"},
                                                       {"100300", "gfx1030"},
                                                       {"110501", "gfx1151"},
                                                       {"120001", "gfx1201"}};
  for (const auto& [version, arch] : cases) {
    node("1", std::string("gfx_target_version ") + version + "\n", "");
    EXPECT_EQ(archs()[0], arch);
  }
}

TEST_F(Kfd, XnackIsThisProcesssChoice) {
  environment_.variables["HSA_XNACK"] = "1";
  EXPECT_EQ(archs()[0], "gfx90a:sramecc+:xnack+");
  environment_.variables["HSA_XNACK"] = "0";
  EXPECT_EQ(archs()[0], kMi250);
}

TEST_F(Kfd, VisibilityVariables) {
  environment_.variables["ROCR_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(archs(), Strings{"gfx1100"});
  environment_.variables["ROCR_VISIBLE_DEVICES"] = "1,0";
  EXPECT_EQ(archs(), (Strings{"gfx1100", kMi250}));
  environment_.variables["ROCR_VISIBLE_DEVICES"] = "GPU-123456789abcdef0";
  EXPECT_EQ(archs(), Strings{kMi250});
  environment_.variables["ROCR_VISIBLE_DEVICES"] = "";
  EXPECT_EQ(archs(), Strings{});
  EXPECT_NE(probe().rocm_problem.find("ROCR_VISIBLE_DEVICES"), std::string::npos);
}

TEST_F(Kfd, HipCountsWhatRocrLeft) {
  environment_.variables["ROCR_VISIBLE_DEVICES"] = "1,0";
  environment_.variables["HIP_VISIBLE_DEVICES"] = "0";
  EXPECT_EQ(archs(), Strings{"gfx1100"});
  environment_.variables["HIP_VISIBLE_DEVICES"] = "2";
  EXPECT_EQ(archs(), Strings{});
}

TEST_F(Kfd, HipReadsCudasVariableUnlessItHasItsOwn) {
  environment_.variables["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(archs(), Strings{"gfx1100"});
  environment_.variables["HIP_VISIBLE_DEVICES"] = "0";
  EXPECT_EQ(archs(), Strings{kMi250});
}

TEST_F(Kfd, GpusThatAContainerDoesNotGive) {
  std::remove((folder_.path() / "dev/dri/renderD128").c_str());
  const MachineFacts facts = probe();
  ASSERT_EQ(facts.gpus.size(), 1u);
  EXPECT_EQ(facts.gpus[0].arch, "gfx1100");
  EXPECT_NE(facts.rocm_problem.find("renderD128"), std::string::npos);
}

TEST_F(Kfd, NoDeviceFile) {
  std::remove((folder_.path() / "dev/kfd").c_str());
  const MachineFacts facts = probe();
  EXPECT_TRUE(facts.gpus.empty());
  EXPECT_NE(facts.rocm_problem.find("/dev/kfd: No such file"), std::string::npos);
}

TEST_F(Kfd, NoDriver) {
  environment_.sysfs = "/nonexistent";
  const MachineFacts facts = probe();
  EXPECT_TRUE(facts.gpus.empty());
  EXPECT_EQ(facts.rocm_problem, "no AMD GPU driver: KFD is not in /nonexistent");
}

TEST_F(Kfd, OnlyACpu) {
  node("1", "gfx_target_version 0\n", "");
  node("10", "gfx_target_version 0\n", "");
  EXPECT_EQ(probe().rocm_problem, "no AMD GPU");
}

TEST_F(Kfd, DamagedProperties) {
  node("1", "gfx_target_version banana\n\x01\x02", "");
  EXPECT_EQ(archs(), Strings{"gfx1100"});
  node("1", "gfx_target_version 18446744073709551615\n", "");
  EXPECT_EQ(archs().size(), 2u);
}

TEST_F(Kfd, OverriddenVersion) {
  environment_.variables["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0";
  EXPECT_EQ(archs(), (Strings{"gfx1030", "gfx1030"}));
  environment_.variables["HSA_OVERRIDE_GFX_VERSION"] = "9.0.10";
  EXPECT_EQ(archs().at(1).substr(0, 6), "gfx90a");
  for (const char* text : {"", "10.3", "10.3.0x", "gfx1030", "10.99.0", "-1.0.0"}) {
    environment_.variables["HSA_OVERRIDE_GFX_VERSION"] = text;
    EXPECT_EQ(archs().at(1), "gfx1100") << text;
  }
}

TEST_F(Kfd, IsWhereTheEnvironmentSays) {
  ASSERT_EQ(setenv("OPDOCK_KFD", folder_.path().c_str(), 1), 0);
  const Environment found = current_environment();
  unsetenv("OPDOCK_KFD");
  EXPECT_EQ(found.sysfs, (folder_.path() / "sys").string());
  EXPECT_EQ(found.dev, (folder_.path() / "dev").string());
  EXPECT_EQ(current_environment().sysfs, "/sys");
}

TEST_F(Kfd, VersionOfTheNewestInstallation) {
  std::remove((folder_.path() / "opt/rocm/.info/version").c_str());
  EXPECT_FALSE(probe().rocm);
  folder_.write("opt/rocm-5.7.1/.info/version", "5.7.1-98\n");
  folder_.write("opt/rocm-6.10.0/.info/version", "6.10.0\n");
  folder_.write("opt/rocm-6.2.4/.info/version", "6.2.4\n");
  EXPECT_EQ(probe().rocm->text(), "6.10.0");
}

}  // namespace
}  // namespace opdock::test
