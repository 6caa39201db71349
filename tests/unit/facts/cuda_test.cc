// Tests CUDA facts with stand-ins for NVML and the driver, each case in its own process.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>

#include "child.h"
#include "facts/cuda_helper.h"

namespace opdock::test {
namespace {

using nlohmann::json;

const char kTwo[] = R"({"cuda": 12040, "release": "550.54.14", "gpus": [
  {"arch": "sm_90", "name": "NVIDIA H100", "uuid": "GPU-aaaa1111-0000", "memory": 85899345920},
  {"arch": "sm_90", "name": "NVIDIA H100", "uuid": "GPU-aaaa2222-0000", "memory": 85899345920}]})";
const char kMixed[] = R"({"cuda": 12040, "order": [1, 0, 2], "gpus": [
  {"arch": "sm_75", "uuid": "GPU-7500"}, {"arch": "sm_90", "uuid": "GPU-9000"},
  {"arch": "sm_86", "uuid": "GPU-8600"}]})";
const char kMig[] = R"({"cuda": 12040, "gpus": [
  {"arch": "sm_80", "uuid": "GPU-8000", "mig": [{"uuid": "MIG-1111", "memory": 5},
                                               {"uuid": "MIG-2222", "memory": 6}]},
  {"arch": "sm_90", "uuid": "GPU-9000"}]})";

std::string with_failure(const char* failure) {
  json config = json::parse(kTwo);
  config["failures"] = json::array({json::parse(failure)});
  return config.dump();
}

std::vector<std::string> archs(const json& facts) {
  std::vector<std::string> archs;
  for (const json& gpu : facts["gpus"]) archs.push_back(gpu["arch"]);
  return archs;
}

std::vector<std::string> uuids(const json& facts) {
  std::vector<std::string> uuids;
  for (const json& gpu : facts["gpus"]) uuids.push_back(gpu["uuid"]);
  return uuids;
}

using Strings = std::vector<std::string>;

TEST(Nvml, TellsDriverAndGpus) {
  const json facts = facts_of({kTwo, {}, {}, {}});
  EXPECT_EQ(facts["cuda"], "12.4");
  EXPECT_EQ(facts["release"], "550.54.14");
  EXPECT_EQ(facts["cuda_problem"], "");
  EXPECT_EQ(facts["uncertain"], false);
  ASSERT_EQ(facts["gpus"].size(), 2u);
  const json& gpu = facts["gpus"][1];
  EXPECT_EQ(gpu["backend"], "cuda");
  EXPECT_EQ(gpu["index"], 1);
  EXPECT_EQ(gpu["name"], "NVIDIA H100");
  EXPECT_EQ(gpu["uuid"], "GPU-aaaa2222-0000");
  EXPECT_EQ(gpu["arch"], "sm_90");
  EXPECT_EQ(gpu["major"], 9);
  EXPECT_EQ(gpu["minor"], 0);
  EXPECT_EQ(gpu["tegra"], false);
  EXPECT_EQ(gpu["memory"], 85899345920);
}

TEST(Nvml, KnowsTegraByItsCapability) {
  const json facts = facts_of({R"({"cuda": 13000, "gpus": [{"arch": "sm_110"}]})", {}, {}, {}});
  EXPECT_EQ(facts["gpus"][0]["tegra"], true);
}

TEST(Nvml, OldAndNewDriverVersions) {
  EXPECT_EQ(facts_of({R"({"cuda": 11000, "gpus": [{"arch": "sm_61"}]})", {}, {}, {}})["cuda"],
            "11.0");
  EXPECT_EQ(facts_of({R"({"cuda": 13010, "gpus": [{"arch": "sm_121"}]})", {}, {}, {}})["cuda"],
            "13.1");
}

TEST(Nvml, NoLibraryIsAnOrdinaryFact) {
  const json facts =
      facts_of({"", {}, {{"nvml", "libno-nvml.so.1"}, {"cuda", "libno-cuda.so.1"}}, {}});
  EXPECT_EQ(facts["cuda"], "");
  EXPECT_EQ(facts["gpus"], json::array());
  EXPECT_EQ(facts["cuda_problem"], "no NVIDIA driver: libno-nvml.so.1 is not installed");
}

TEST(Nvml, DriverButNoGpu) {
  const json facts = facts_of({R"({"cuda": 12040})", {}, {}, {}});
  EXPECT_EQ(facts["cuda"], "12.4");
  EXPECT_EQ(facts["cuda_problem"], "no NVIDIA GPU");
}

TEST(Nvml, LibraryWithoutDriver) {
  const TemporaryFolder folder;
  const std::string record = folder.path() / "record";
  const json facts =
      facts_of({with_failure(R"({"function": "nvmlInit_v2", "error": 9})"), {}, {}, record});
  EXPECT_EQ(facts["cuda"], "");
  EXPECT_EQ(facts["cuda_problem"], "nvmlInit_v2: Driver Not Loaded");
  // A driver that is not there is not asked a second time.
  for (const json& line : read_record(record)) EXPECT_NE(line["event"], "init");
}

TEST(Nvml, MismatchIsNamedByBothLibraries) {
  json config = json::parse(kTwo);
  config["failures"] = {{{"function", "nvmlInit_v2"}, {"error", 18}},
                        {{"function", "cuInit"}, {"error", 803}}};
  const json facts = facts_of({config.dump(), {}, {}, {}});
  EXPECT_EQ(facts["gpus"], json::array());
  EXPECT_EQ(facts["cuda_problem"], "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
}

// A child that was forked while another thread was in NVML asks the driver through the helper.
TEST(Nvml, AForkWithinItLeavesTheHelper) {
  const TemporaryFolder folder;
  const std::string record = folder.path() / "record";
  const json facts =
      facts_of({with_failure(R"({"function": "nvmlInit_v2", "call": 1, "hang": true})"),
                {},
                {{"fork_within", record}},
                record});
  EXPECT_EQ(facts["cuda"], "12.4");
  EXPECT_EQ(facts["gpus"].size(), 2u);
  EXPECT_EQ(facts["cuda_problem"], "");
}

TEST(Nvml, ALibraryThatIsNoNvml) {
  const json facts =
      facts_of({kTwo, {}, {{"nvml", softgpu_cuda()}, {"cuda", "libno-cuda.so"}}, {}});
  EXPECT_NE(facts["cuda_problem"].get<std::string>().find("has no nvmlInit_v2"), std::string::npos);
}

TEST(Nvml, ALostGpuIsNamedAndLeftOut) {
  const json facts = facts_of(
      {with_failure(R"({"function": "nvmlDeviceGetHandleByIndex_v2", "call": 1, "error": 15})"),
       {},
       {},
       {}});
  EXPECT_EQ(uuids(facts), Strings{"GPU-aaaa2222-0000"});
  EXPECT_EQ(facts["gpus"][0]["index"], 0);
  EXPECT_EQ(facts["cuda_problem"], "GPU 0: GPU is lost");
}

TEST(Nvml, CountThatFails) {
  const json facts = facts_of(
      {with_failure(R"({"function": "nvmlDeviceGetCount_v2", "error": 999})"), {}, {}, {}});
  EXPECT_EQ(facts["cuda"], "12.4");
  EXPECT_EQ(facts["cuda_problem"], "nvmlDeviceGetCount_v2: Unknown Error");
}

// A value of CUDA_VISIBLE_DEVICES, and which of two equal GPUs (a, b) it leaves visible.
struct Visible {
  const char* list;
  Strings left;
  const char* problem;  // part of the problem; empty: none
};
class VisibleDevices : public testing::TestWithParam<Visible> {};

TEST_P(VisibleDevices, AsTheDriverReadsThem) {
  const json facts = facts_of({kTwo, {{"CUDA_VISIBLE_DEVICES", GetParam().list}}, {}, {}});
  Strings short_names;
  for (const std::string& uuid : uuids(facts))
    short_names.push_back(uuid == "GPU-aaaa1111-0000" ? "a" : "b");
  EXPECT_EQ(short_names, GetParam().left) << GetParam().list;
  const std::string problem = facts["cuda_problem"];
  EXPECT_NE(problem.find(GetParam().problem), std::string::npos) << problem;
  EXPECT_EQ(problem.empty(), *GetParam().problem == '\0') << problem;
  for (size_t i = 0; i < facts["gpus"].size(); ++i) EXPECT_EQ(facts["gpus"][i]["index"], i);
  EXPECT_EQ(facts["cuda"], "12.4");
}

INSTANTIATE_TEST_SUITE_P(
    Lists, VisibleDevices,
    testing::Values(
        Visible{"0", {"a"}, ""}, Visible{"1", {"b"}, ""}, Visible{"0,1", {"a", "b"}, ""},
        Visible{"1,0", {"b", "a"}, ""}, Visible{" 1 , 0 ", {"b", "a"}, ""},
        Visible{"", {}, "the list is empty"}, Visible{"-1", {}, "names no GPU"},
        Visible{"NoDevFiles", {}, "names no GPU"}, Visible{"none", {}, "names no GPU"},
        Visible{"2", {}, "\"2\" names no GPU"}, Visible{"0,2,1", {"a"}, "\"2\" names no GPU"},
        Visible{"1,-1,0", {"b"}, "\"-1\" names no GPU"}, Visible{"0,,1", {"a"}, "names no GPU"},
        Visible{"0,0", {}, "repeated"}, Visible{"0,1,0", {}, "repeated"},
        Visible{"1st,0", {"b", "a"}, ""}, Visible{"GPU-aaaa1111-0000", {"a"}, ""},
        Visible{"GPU-aaaa2", {"b"}, ""}, Visible{"GPU-aaaa2,GPU-aaaa1", {"b", "a"}, ""},
        Visible{"GPU-aaaa", {}, "fits more than one"}, Visible{"GPU-bbbb", {}, "fits no GPU"},
        Visible{"GPU-aaaa1,GPU-bbbb,GPU-aaaa2", {"a"}, "fits no GPU"},
        Visible{"GPU-aaaa1,GPU-aaaa11", {}, "repeated"},
        Visible{"GPU-aaaa1,1", {"a"}, "\"1\" names no GPU"},
        Visible{"0,GPU-aaaa2", {"a"}, "a UUID in a list of numbers"},
        Visible{"MIG-1", {}, "fits no GPU"}));

TEST(Mig, AnInstanceIsItsGpuWithItsOwnMemory) {
  const json facts = facts_of({kMig, {{"CUDA_VISIBLE_DEVICES", "MIG-2222"}}, {}, {}});
  ASSERT_EQ(uuids(facts), Strings{"MIG-2222"});
  EXPECT_EQ(facts["gpus"][0]["arch"], "sm_80");
  EXPECT_EQ(facts["gpus"][0]["memory"], 6);
}

TEST(Mig, OnlyTheFirstInstanceIsVisible) {
  const json facts = facts_of({kMig, {{"CUDA_VISIBLE_DEVICES", "MIG-1111,MIG-2222"}}, {}, {}});
  EXPECT_EQ(uuids(facts), Strings{"MIG-1111"});
}

TEST(Mig, UnknownInstance) {
  const json facts = facts_of({kMig, {{"CUDA_VISIBLE_DEVICES", "MIG-9"}}, {}, {}});
  EXPECT_EQ(facts["gpus"], json::array());
  EXPECT_EQ(facts["cuda_problem"], "CUDA_VISIBLE_DEVICES=MIG-9: \"MIG-9\" fits no GPU here");
}

TEST(Order, DifferentGpusAreUncertain) {
  const json facts = facts_of({kMixed, {}, {}, {}});
  EXPECT_EQ(facts["uncertain"], true);
  EXPECT_EQ(facts["gpus"].size(), 3u);
}

TEST(Order, ByBusIsCertain) {
  const json facts = facts_of({kMixed, {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}, {}, {}});
  EXPECT_EQ(facts["uncertain"], false);
  EXPECT_EQ(archs(facts), (Strings{"sm_75", "sm_90", "sm_86"}));
}

TEST(Order, FastestFirstByNameIsTheDefault) {
  const json facts = facts_of({kMixed, {{"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}}, {}, {}});
  EXPECT_EQ(facts["uncertain"], true);
}

TEST(Order, NumbersOfUncertainGpusMayMeanAnyOfThem) {
  const json facts = facts_of({kMixed, {{"CUDA_VISIBLE_DEVICES", "0"}}, {}, {}});
  EXPECT_EQ(facts["uncertain"], true);
  EXPECT_EQ(facts["gpus"].size(), 3u);
}

TEST(Order, NumbersByBusAreCertain) {
  const json facts = facts_of(
      {kMixed, {{"CUDA_VISIBLE_DEVICES", "2,0"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}, {}, {}});
  EXPECT_EQ(facts["uncertain"], false);
  EXPECT_EQ(archs(facts), (Strings{"sm_86", "sm_75"}));
}

TEST(Order, UuidsAreCertain) {
  const json facts = facts_of({kMixed, {{"CUDA_VISIBLE_DEVICES", "GPU-86,GPU-75"}}, {}, {}});
  EXPECT_EQ(facts["uncertain"], false);
  EXPECT_EQ(archs(facts), (Strings{"sm_86", "sm_75"}));
}

TEST(Order, AnEmptyListIsCertain) {
  const json facts = facts_of({kMixed, {{"CUDA_VISIBLE_DEVICES", ""}}, {}, {}});
  EXPECT_EQ(facts["uncertain"], false);
  EXPECT_EQ(facts["gpus"], json::array());
}

// ---- the helper, if NVML is missing (WSL, Jetson)

Probe without_nvml(std::string config) {
  return {std::move(config), {}, {{"nvml", "libno-nvml.so.1"}}, {}};
}

TEST(Helper, AnswersWithoutNvml) {
  const json facts = facts_of(without_nvml(
      R"({"cuda": 12060, "gpus": [{"arch": "sm_87", "name": "Orin", "memory": 1024, "integrated": true,
          "uuid": "GPU-00112233-4455-6677-8899-aabbccddeeff"}]})"));
  EXPECT_EQ(facts["cuda"], "12.6");
  EXPECT_EQ(facts["cuda_problem"], "");
  ASSERT_EQ(facts["gpus"].size(), 1u);
  EXPECT_EQ(facts["gpus"][0]["arch"], "sm_87");
  EXPECT_EQ(facts["gpus"][0]["name"], "Orin");
  EXPECT_EQ(facts["gpus"][0]["uuid"], "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(facts["gpus"][0]["tegra"], true);
  EXPECT_EQ(facts["gpus"][0]["memory"], 1024);
}

TEST(Helper, TheDriverItselfOrdersAndHides) {
  Probe probe = without_nvml(kMixed);
  probe.variables["CUDA_VISIBLE_DEVICES"] = "0,2";
  const json facts = facts_of(probe);
  EXPECT_EQ(facts["uncertain"], false);
  EXPECT_EQ(archs(facts), (Strings{"sm_90", "sm_86"}));  // the configured order is 1, 0, 2
}

TEST(Helper, DriverThatDoesNotInitialise) {
  const json facts = facts_of(
      without_nvml(R"({"cuda": 12040, "failures": [{"function": "cuInit", "error": 999}]})"));
  EXPECT_EQ(facts["cuda"], "12.4");
  EXPECT_EQ(facts["gpus"], json::array());
  EXPECT_EQ(facts["cuda_problem"], "cuInit: CUDA_ERROR_UNKNOWN");
}

TEST(Helper, NoGpu) {
  const json facts = facts_of(without_nvml(R"({"cuda": 12040})"));
  EXPECT_EQ(facts["cuda_problem"], "cuInit: CUDA_ERROR_NO_DEVICE");
}

TEST(Helper, AHangingDriverIsGivenUp) {
  Probe probe = without_nvml(
      R"({"gpus": [{"arch": "sm_90"}], "failures": [{"function": "cuInit", "hang": true}]})");
  probe.options["deadline"] = "300";
  const auto begin = std::chrono::steady_clock::now();
  const json facts = facts_of(probe);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));  // it ends at all
  EXPECT_EQ(facts["gpus"], json::array());
  EXPECT_EQ(facts["cuda_problem"], "opdock-probe did not answer in time: the CUDA driver hangs");
}

TEST(Helper, ACrashingDriverTakesOnlyTheHelper) {
  const json facts = facts_of(without_nvml(
      R"({"gpus": [{"arch": "sm_90"}], "failures": [{"function": "cuInit", "crash": true}]})"));
  EXPECT_EQ(facts["gpus"], json::array());
  EXPECT_EQ(facts["cuda_problem"],
            "opdock-probe ended without an answer: the CUDA driver may have crashed");
}

// The helper does not inherit signals that a thread of the host blocks.
TEST(Helper, SignalsAreNotTheHosts) {
  const TemporaryFolder folder;
  folder.write("probe",
               "#!/bin/sh\necho '{\"devices\": [], \"problem\": \"'"
               "$(grep SigBlk /proc/self/status | cut -c9-)'\"}'\n");
  Environment environment;
  environment.helper = folder.path() / "probe";
  std::filesystem::permissions(environment.helper, std::filesystem::perms::owner_all);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  MachineFacts facts;
  ask_cuda_helper(environment, &facts);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(facts.cuda_problem, "0000000000000000");
}

TEST(Helper, NotInstalled) {
  Probe probe = without_nvml(kTwo);
  probe.options["helper"] = "";
  const std::string problem = facts_of(probe)["cuda_problem"];
  EXPECT_NE(problem.find("opdock-probe"), std::string::npos) << problem;
  EXPECT_NE(problem.find("not installed"), std::string::npos) << problem;
}

TEST(Helper, CannotBeRun) {
  Probe probe = without_nvml(kTwo);
  probe.options["helper"] = "/nonexistent/opdock-probe";
  const std::string problem = facts_of(probe)["cuda_problem"];
  EXPECT_NE(problem.find("No such file"), std::string::npos) << problem;
}

TEST(Helper, PrintsNonsense) {
  Probe probe = without_nvml(kTwo);
  probe.options["helper"] = "/bin/echo";
  EXPECT_EQ(facts_of(probe)["cuda_problem"],
            "opdock-probe ended without an answer: the CUDA driver may have crashed");
}

// ---- fork

TEST(Fork, NvmlLeavesCudaUntouched) {
  const TemporaryFolder folder;
  const std::string record = folder.path() / "record";
  const json facts = facts_of({kTwo, {}, {{"fork", "yes"}}, record});
  EXPECT_EQ(facts["child"], 0);
  for (const json& line : read_record(record)) {
    if (line["event"] != "init") continue;
    EXPECT_NE(line["pid"], facts["pid"]);
  }
}

TEST(Fork, TheHelperLeavesCudaUntouched) {
  const TemporaryFolder folder;
  const std::string record = folder.path() / "record";
  Probe probe = without_nvml(kTwo);
  probe.options["fork"] = "yes";
  probe.record = record;
  const json facts = facts_of(probe);
  EXPECT_EQ(facts["gpus"].size(), 2u);
  EXPECT_EQ(facts["child"], 0);
  int inits = 0;
  for (const json& line : read_record(record)) {
    if (line["event"] != "init") continue;
    ++inits;
    EXPECT_NE(line["pid"], facts["pid"]);
  }
  EXPECT_EQ(inits, 2);  // the helper's and the forked child's
}

// The stand-in behaves like the driver, so the two tests above would notice an initialisation.
TEST(Fork, AnInitialisedDriverWouldBeNoticed) {
  const json facts = facts_of({kTwo, {}, {{"fork", "yes"}, {"init", "yes"}}, {}});
  EXPECT_EQ(facts["child"], 3);  // CUDA_ERROR_NOT_INITIALIZED
}

}  // namespace
}  // namespace opdock::test
