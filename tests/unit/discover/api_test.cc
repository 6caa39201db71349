// Tests the runtime and the reports of opdock.h.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "attention/decisions.h"
#include "base/guarded.h"
#include "chain/runtime.h"
#include "folder.h"
#include "nlohmann/json.hpp"
#include "opdock/opdock.h"

namespace opdock::testing {
namespace {

using Json = nlohmann::json;

class Runtime {
 public:
  explicit Runtime(const std::string& path) {
    opdock_options options{};
    options.struct_size = sizeof options;
    options.plugin_path = path.c_str();
    EXPECT_EQ(opdock_runtime_create(&options, &runtime_, nullptr, 0), OPDOCK_OK);
  }
  ~Runtime() { opdock_runtime_destroy(runtime_); }
  opdock_runtime* get() const { return runtime_; }

 private:
  opdock_runtime* runtime_ = nullptr;
};

Json take(char* text) {
  const Json json = Json::parse(text);
  opdock_free(text);
  return json;
}

TEST(Fail, CutsTextsAtACharacter) {
  std::array<char, 8> buffer;
  buffer.fill('#');
  EXPECT_EQ((ErrorBuffer{buffer.data(), 7}.fail(OPDOCK_INTERNAL, "abcdeλλ")), OPDOCK_INTERNAL);
  EXPECT_STREQ(buffer.data(), "abcde");
  EXPECT_EQ(buffer[7], '#');
  ErrorBuffer{buffer.data(), 2}.fail(OPDOCK_INTERNAL, "λ");
  EXPECT_STREQ(buffer.data(), "");
  ErrorBuffer{buffer.data(), 8}.fail(OPDOCK_INTERNAL, "abc");
  EXPECT_STREQ(buffer.data(), "abc");
  ErrorBuffer{nullptr, 8}.fail(OPDOCK_INTERNAL, "abc");
  buffer[0] = '#';
  ErrorBuffer{buffer.data(), 0}.fail(OPDOCK_INTERNAL, "abc");
  EXPECT_EQ(buffer[0], '#');
}

TEST(Status, EachHasAName) {
  std::set<std::string> names;
  for (opdock_status status = 0; status <= OPDOCK_IO_ERROR; ++status) {
    names.insert(opdock_status_name(status));
  }
  EXPECT_EQ(names.size(), 11u);
  EXPECT_STREQ(opdock_status_name(OPDOCK_INVALID_ARGUMENT), "invalid argument");
  EXPECT_STREQ(opdock_status_name(77), "unknown status");
  EXPECT_STREQ(opdock_status_name(-1), "unknown status");
}

TEST(RuntimeOptions, OfASmallerStructAreTakenAsFarAsTheyGo) {
  const Folder folder;
  folder.add("good");
  const std::string path = folder.path();
  opdock_options options{};
  options.struct_size = offsetof(opdock_options, package_path);
  options.plugin_path = path.c_str();
  options.package_path = reinterpret_cast<const char*>(1);  // beyond struct_size: must not be read
  opdock_runtime* runtime = nullptr;
  ASSERT_EQ(opdock_runtime_create(&options, &runtime, nullptr, 0), OPDOCK_OK);
  EXPECT_EQ(runtime->catalog()->candidates().size(), 1u);
  opdock_runtime_destroy(runtime);
}

TEST(RuntimeOptions, WithoutASizeAreRefused) {
  opdock_options options{};
  opdock_runtime* runtime = nullptr;
  std::array<char, 256> error{};
  EXPECT_EQ(opdock_runtime_create(&options, &runtime, error.data(), error.size()),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(runtime, nullptr);
  EXPECT_NE(std::string(error.data()).find("struct_size"), std::string::npos);
  EXPECT_EQ(opdock_runtime_create(nullptr, nullptr, nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  opdock_runtime_destroy(nullptr);
}

TEST(RuntimeOptions, ThatDiagnoseTellSettingsAndRefuseWhatWouldGoByThem) {
  const Folder folder;
  folder.add("good");
  const std::string path = folder.path();
  opdock_options options{};
  options.struct_size = sizeof options;
  options.plugin_path = path.c_str();
  options.build = "nver";
  opdock_runtime* runtime = nullptr;
  EXPECT_EQ(opdock_runtime_create(&options, &runtime, nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  options.flags = OPDOCK_OPTIONS_DIAGNOSE;
  ASSERT_EQ(opdock_runtime_create(&options, &runtime, nullptr, 0), OPDOCK_OK);
  char* text = nullptr;
  ASSERT_EQ(opdock_doctor_json(runtime, &text, nullptr, 0), OPDOCK_OK);
  const Json report = take(text);
  std::vector<std::string> found;
  for (const Json& check : report["checks"]) {
    if (check["name"] == "settings" && check["ok"] == false) found.push_back(check["found"]);
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("did you mean \"never\""), std::string::npos) << found[0];
  EXPECT_EQ(report["plugins"]["usable"], 1);
  std::array<char, 256> error{};
  opdock_function* function = nullptr;
  EXPECT_EQ(opdock_get_function(runtime, "good", &function, error.data(), error.size()),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(error.data(), found[0]);
  EXPECT_EQ(opdock_explain_json(runtime, "good", &text, nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_build_json(runtime, path.c_str(), nullptr, &text, nullptr, 0),
            OPDOCK_INVALID_ARGUMENT);
  opdock_runtime_destroy(runtime);
}

TEST(RuntimeLog, GetsTheNoticesOfDiscovery) {
  std::vector<std::string> lines;
  opdock_options options{};
  options.struct_size = sizeof options;
  options.plugin_path = ":";
  options.log_context = &lines;
  options.log = [](void* context, int32_t, const char* message) {
    static_cast<std::vector<std::string>*>(context)->push_back(message);
  };
  setenv("XDG_DATA_HOME", "relative", 1);
  opdock_runtime* runtime = nullptr;
  ASSERT_EQ(opdock_runtime_create(&options, &runtime, nullptr, 0), OPDOCK_OK);
  unsetenv("XDG_DATA_HOME");
  runtime->catalog();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("variable-ignored"), std::string::npos);
  opdock_runtime_destroy(runtime);
}

TEST(Reports, ListIsMadeOnceAndAnewWhenAsked) {
  const Folder folder;
  folder.add("good");
  const Runtime runtime(folder.path());
  char* text = nullptr;
  ASSERT_EQ(opdock_list_json(runtime.get(), 0, &text, nullptr, 0), OPDOCK_OK);
  EXPECT_EQ(take(text)["plugins"].size(), 1u);
  folder.add("good_b");
  ASSERT_EQ(opdock_list_json(runtime.get(), 0, &text, nullptr, 0), OPDOCK_OK);
  EXPECT_EQ(take(text)["plugins"].size(), 1u);
  ASSERT_EQ(opdock_list_json(runtime.get(), 1, &text, nullptr, 0), OPDOCK_OK);
  EXPECT_EQ(take(text)["plugins"].size(), 2u);
}

TEST(Reports, AreJsonWhateverTheFilesAreCalled) {
  const Folder folder;
  for (const char* name : {"\xff.so", "a\"b\\c.so", "a\nb.so", "\033[31m.so"}) {
    folder.write(name, "\xff\xfe not a plugin");
  }
  const Runtime runtime(folder.path());
  char* text = nullptr;
  ASSERT_EQ(opdock_list_json(runtime.get(), 0, &text, nullptr, 0), OPDOCK_OK);
  EXPECT_EQ(take(text)["plugins"].size(), 4u);
  ASSERT_EQ(opdock_doctor_json(runtime.get(), &text, nullptr, 0), OPDOCK_OK);
  EXPECT_EQ(take(text)["plugins"]["rejected"], 4);
}

TEST(Reports, TellWhatComputesAttention) {
  const Runtime runtime(":");
  attention::record_decision({"told", "cuda:0", "float16 1x8x512", true, ""});
  attention::record_decision(
      {"told", "cuda:0", "float16 1x8x513", false, "it has not earned a plan"});
  char* text = nullptr;
  ASSERT_EQ(opdock_explain_json(runtime.get(), "plugin/told", &text, nullptr, 0), OPDOCK_OK);
  EXPECT_EQ(take(text)["attention"], Json::parse(R"([
    {"device": "cuda:0", "form": "float16 1x8x513", "by": "own", "why": "it has not earned a plan"},
    {"device": "cuda:0", "form": "float16 1x8x512", "by": "cudnn", "why": null}])"));
  ASSERT_EQ(opdock_explain_json(runtime.get(), "other", &text, nullptr, 0), OPDOCK_OK);
  EXPECT_EQ(take(text)["attention"], Json::array());
}

TEST(Reports, RefuseNull) {
  const Runtime runtime(":");
  char* text = nullptr;
  EXPECT_EQ(opdock_list_json(nullptr, 0, &text, nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_list_json(runtime.get(), 0, nullptr, nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_inspect_json(runtime.get(), nullptr, &text, nullptr, 0),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_inspect_json(runtime.get(), "/nowhere", &text, nullptr, 0), OPDOCK_NOT_FOUND);
  EXPECT_EQ(opdock_explain_json(runtime.get(), nullptr, &text, nullptr, 0),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_doctor_json(nullptr, &text, nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_trust(nullptr, nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(opdock_trust("relative", nullptr, 0), OPDOCK_INVALID_ARGUMENT);
  opdock_free(nullptr);
}

TEST(Build, RefusesOptionsThatCannotBe) {
  const Runtime runtime(":");
  for (const char* options :
       {"2", "{", R"({"jobs": 0})", R"({"jobs": -1})", R"({"jobs": 2.5})", R"({"jobs": "2"})",
        R"({"jobs": 2147483648})", R"({"jobs": 4294967297})", R"({"jobs": 99999999999999999999})",
        R"({"timeout": 0})", R"({"retry": 1})", R"({"other": 1})"}) {
    char* text = nullptr;
    std::array<char, 512> error{};
    EXPECT_EQ(opdock_build_json(runtime.get(), nullptr, options, &text, error.data(), error.size()),
              OPDOCK_INVALID_ARGUMENT)
        << options;
    EXPECT_EQ(std::string(error.data()).find("options: found "), 0u) << error.data();
    opdock_free(text);
  }
  for (const char* options : {"", "{}", R"({"jobs": 1})", R"({"jobs": 2147483647})"}) {
    char* text = nullptr;
    EXPECT_EQ(opdock_build_json(runtime.get(), nullptr, options, &text, nullptr, 0), OPDOCK_OK)
        << options;
    opdock_free(text);
  }
}

TEST(Reports, CodesAreThoseOfTheTable) {
  char* text = nullptr;
  ASSERT_EQ(opdock_codes_json(&text, nullptr, 0), OPDOCK_OK);
  const Json codes = take(text);
  ASSERT_EQ(codes.size(), all_codes().size());
  for (const Json& code : codes) {
    for (const char* key : {"code", "stage", "meaning", "cause", "advice"}) {
      EXPECT_FALSE(code.at(key).get<std::string>().empty());
    }
  }
}

}  // namespace
}  // namespace opdock::testing
