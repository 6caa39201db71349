// Tests what the verdict table does not show: the texts of reasons, and each device's own verdict.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "table.h"

namespace opdock::test {
namespace {

Verdict judged(const char* file, const char* machine) {
  return judge(file_from(file), machine_from(machine));
}

const Reason& reason_of(const Verdict& verdict, Code code) {
  const auto found = std::find_if(verdict.reasons.begin(), verdict.reasons.end(),
                                  [&](const Reason& reason) { return reason.code == code; });
  if (found == verdict.reasons.end()) throw std::logic_error("no such reason");
  return *found;
}

TEST(Judge, NamesEveryImageThatDoesNotFit) {
  const Verdict verdict = judged("cuda sm_80@12.9 sm_86@12.9 compute_90@12.9", "driver=12.9 sm_75");
  const Reason& reason = reason_of(verdict, Code::kArchMismatch);
  EXPECT_EQ(reason.found, "sm_80, sm_86, compute_90 PTX");
  EXPECT_EQ(reason.wanted, "sm_70 to sm_75, or PTX of at most compute_75");
  EXPECT_EQ(reason.advice, "build it for sm_75");
}

TEST(Judge, TegraWantsItsOwnCubinsAlone) {
  const Verdict verdict = judged("cuda sm_86@12.6", "driver=12.6 tegra:sm_87");
  EXPECT_EQ(reason_of(verdict, Code::kTegraImage).wanted, "sm_87, or PTX of at most compute_87");
}

TEST(Judge, AnImageThatDoesNotShowItsArchitectureLeavesItOpen) {
  FileFacts file = file_from("rocm gfx90a@6.2");
  file.images[0].arch.clear();
  file.images[0].compressed = true;
  const Verdict verdict = judge(file, machine_from("rocm=6.2 gfx1030"));
  EXPECT_EQ(verdict.state, State::kUndecided);
  const Reason& reason = reason_of(verdict, Code::kArchUnknown);
  EXPECT_EQ(reason.found, "a compressed image without its architecture");
  EXPECT_EQ(reason.wanted, "gfx1030");
}

TEST(Judge, NamesTheDriverThatWouldDo) {
  const Verdict verdict = judged("cuda sm_80@13.1 compute_80@13.1", "driver=12.4 sm_80");
  const Reason& reason = reason_of(verdict, Code::kDriverTooOld);
  EXPECT_EQ(reason.found, "a driver for CUDA 12.4");
  EXPECT_EQ(reason.wanted,
            "CUDA 13.0 or newer for sm_80 (toolkit 13.1), compute_80 PTX (toolkit 13.1)");
}

TEST(Judge, NamesEverySymbolVersionOfAFamily) {
  const Verdict verdict = judged("cpu absent:GLIBC_2.37 absent:GCC_14 absent:GLIBC_2.38", "");
  const Reason& reason = reason_of(verdict, Code::kGlibcVersion);
  EXPECT_EQ(reason.found, "GLIBC_2.37 of libx.so, GLIBC_2.38 of libx.so");
  EXPECT_EQ(reason.wanted, "a version that the machine has");
}

TEST(Judge, SaysWhyThereIsNoGpu) {
  MachineFacts machine = machine_from("driver=12.4");
  machine.cuda_problem = "CUDA_VISIBLE_DEVICES=: the list is empty";
  const Verdict verdict = judge(file_from("cuda sm_80@12.9"), machine);
  EXPECT_EQ(reason_of(verdict, Code::kNoGpu).found, machine.cuda_problem);
}

TEST(Judge, EachDeviceHasItsOwnVerdict) {
  const Verdict verdict =
      judged("cpu cuda sm_80@12.9 compute_80@12.4", "driver=12.4 sm_75 sm_80 sm_90");
  ASSERT_EQ(verdict.devices.size(), 4u);
  EXPECT_EQ(verdict.devices[0].backend, Backend::kCpu);
  EXPECT_EQ(verdict.devices[0].index, -1);
  EXPECT_EQ(verdict.devices[0].state, State::kUsable);
  EXPECT_EQ(verdict.devices[1].index, 0);
  EXPECT_EQ(verdict.devices[1].state, State::kRejected);
  EXPECT_EQ(verdict.devices[1].image, -1);
  EXPECT_EQ(verdict.devices[2].image, 0);
  EXPECT_EQ(verdict.devices[3].index, 2);
  EXPECT_EQ(verdict.devices[3].image, 1);
}

TEST(Judge, AGpuBelowTheLeastArchitectureIsRefusedWhateverTheImages) {
  const MachineFacts machine = machine_from("driver=12.9 sm_75 sm_80 sm_86 rocm=6.2 gfx90a");
  for (const char* images : {"cpu cuda rocm sm_70@12.9 compute_70@12.9 gfx90a@6.2",
                             "cpu cuda rocm source", "cpu cuda rocm"}) {
    FileFacts file = file_from(images);
    file.note->least_cuda = 80;
    const Verdict verdict = judge(file, machine);
    ASSERT_EQ(verdict.devices.size(), 5u);
    EXPECT_EQ(verdict.devices[1].state, State::kRejected);
    EXPECT_EQ(verdict.devices[1].image, -1);
    ASSERT_EQ(verdict.devices[1].reasons.size(), 1u);
    EXPECT_EQ(verdict.devices[1].reasons[0].code, Code::kArchBelowLeast);
    EXPECT_EQ(verdict.devices[1].reasons[0].found, "sm_75");
    EXPECT_EQ(verdict.devices[1].reasons[0].wanted, "sm_80 or later, which the plugin is made for");
    for (const size_t other : {0, 2, 3, 4})
      for (const Reason& reason : verdict.devices[other].reasons)
        EXPECT_NE(reason.code, Code::kArchBelowLeast) << images;
  }
}

TEST(Judge, EqualGpusGiveOneReason) {
  const Verdict verdict = judged("cuda sm_80@12.9", "driver=12.4 sm_90 sm_90 sm_90 sm_90");
  EXPECT_EQ(verdict.reasons.size(), 1u);
  ASSERT_EQ(verdict.devices.size(), 4u);
  for (const DeviceVerdict& device : verdict.devices) EXPECT_EQ(device.reasons.size(), 1u);
}

TEST(Judge, UnknownOrderLeavesNoImage) {
  const Verdict verdict = judged("cuda sm_80@12.9", "driver=12.4 order? sm_80 sm_90");
  for (const DeviceVerdict& device : verdict.devices) {
    EXPECT_EQ(device.state, State::kUndecided);
    EXPECT_EQ(device.image, -1);
  }
}

TEST(Judge, TheReadersReasonsComeFirst) {
  const Verdict verdict = judged("cpu =claim-arch level=4", "level=1");
  ASSERT_EQ(verdict.reasons.size(), 2u);
  EXPECT_EQ(verdict.reasons[0].code, Code::kClaimArch);
}

TEST(BestImage, AmongEqualsTheNewerToolkitThenTheFirst) {
  const FileFacts file = file_from("cuda sm_80@12.4 sm_80@12.9 sm_80@12.9");
  const MachineFacts machine = machine_from("driver=12.9 sm_80");
  std::vector<Reason> reasons;
  EXPECT_EQ(best_image(file.images, machine.gpus[0], machine, &reasons), 1);
  EXPECT_TRUE(reasons.empty());
}

TEST(BestImage, HigherMinorBeforeNewerToolkit) {
  const FileFacts file = file_from("cuda sm_80@12.9 sm_86@12.0");
  const MachineFacts machine = machine_from("driver=12.9 sm_89");
  std::vector<Reason> reasons;
  EXPECT_EQ(best_image(file.images, machine.gpus[0], machine, &reasons), 1);
}

TEST(BestImage, NoneOfAnotherVendor) {
  const FileFacts file = file_from("rocm gfx90a@6.2");
  const MachineFacts machine = machine_from("driver=12.9 sm_80");
  std::vector<Reason> reasons;
  EXPECT_EQ(best_image(file.images, machine.gpus[0], machine, &reasons), -1);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, Code::kNoImages);
}

}  // namespace
}  // namespace opdock::test
