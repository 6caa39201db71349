// SPDX-License-Identifier: Apache-2.0
#include "manifest/manifest.h"

#include <gtest/gtest.h>

#include "opdock/plugin.h"
#include "support/temporary_folder.h"

namespace opdock::pack {
namespace {

using opdock_test::TemporaryFolder;

const char kGood[] = R"(name = "axpy"
version = "0.1.0"
license = "Apache-2.0"
sources = ["axpy.cc"]
[[op]]
schema = "axpy(Tensor x,Tensor y, *, float a = 1.0) -> Tensor"
doc = "a * x + y"
shape = ["like x"]
devices = ["cpu", "cuda"]
dtypes = ["float32"]
flags = ["thread-safe", "deterministic"]
[device]
sources = ["device/axpy.cuh"]
kernels = ["axpy<float>"]
[requires]
torch = ">=2.11,<3"
)";

std::optional<Manifest> read(const std::string& text, std::vector<Reason>* mistakes) {
  TemporaryFolder folder;
  folder.write("axpy.cc", "");
  folder.write("device/axpy.cuh", "");
  return read_manifest(folder.write("plugin.toml", text), mistakes);
}

// Returns one line for each mistake: "plugin.toml:6:10: …, wanted …".
std::string all(const std::vector<Reason>& mistakes) {
  std::string out;
  for (const Reason& mistake : mistakes) {
    EXPECT_EQ(mistake.code, Code::kManifestInvalid);
    EXPECT_EQ(mistake.found.find('\n'), std::string::npos) << mistake.found;
    out += mistake.found.substr(mistake.found.find("plugin.toml")) + ", wanted " + mistake.wanted +
           "\n";
  }
  return out;
}

TEST(Manifest, ReadsADeclaration) {
  std::vector<Reason> errors;
  const std::optional<Manifest> manifest = read(kGood, &errors);
  ASSERT_TRUE(manifest) << all(errors);
  EXPECT_EQ(manifest->name, "axpy");
  ASSERT_EQ(manifest->ops.size(), 1u);
  const OpDecl& op = manifest->ops[0];
  EXPECT_EQ(op.name, "axpy");
  EXPECT_EQ(op.schema, "axpy(Tensor x, Tensor y, *, float a=1.0) -> Tensor");  // the canonical text
  EXPECT_EQ(op.flag_bits, OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_DETERMINISTIC);
  EXPECT_EQ(op.device_arg_index, 0u);
  EXPECT_EQ(manifest->device->kernels, std::vector<std::string>{"axpy<float>"});
  ASSERT_EQ(manifest->libraries.size(), 1u);
  EXPECT_EQ(manifest->libraries[0].range, ">=2.11,<3");
}

TEST(Manifest, TensorRulesOfAnOp) {
  std::string text = kGood;
  text.replace(text.find("[device]"), 0,
               "rows = [\"x\", \"y\"]\nlike = { y = \"x\" }\nin-place = [\"x\"]\n");
  std::vector<Reason> errors;
  const std::optional<Manifest> manifest = read(text, &errors);
  ASSERT_TRUE(manifest) << all(errors);
  const OpDecl& op = manifest->ops[0];
  // A tensor is first compared with the one that it must be like.
  EXPECT_EQ(op.tensor_rules,
            (std::vector<std::string>{"rows x", "like y x", "rows y", "in-place x"}));
  EXPECT_EQ(op.flags, (std::vector<std::string>{"thread-safe", "deterministic", "in-place"}));
  EXPECT_EQ(op.flag_bits, OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_DETERMINISTIC | OPDOCK_OP_IN_PLACE);
}

TEST(Manifest, MistakesInTensorRules) {
  struct Case {
    const char* keys;
    const char* expected;
  };
  const Case cases[] = {
      {"rows = [\"x\", \"a\"]",
       "plugin.toml:12:14: op \"axpy\": \"rows\": 'a' at position 5 of \"rows a\", wanted a "
       "parameter "
       "of type Tensor or Tensor? of axpy(Tensor x, Tensor y, *, float a=1.0) -> Tensor\n"},
      {"broadcast = [\"y\"]",
       "plugin.toml:12:14: op \"axpy\": \"broadcast\": the end at position 11 of \"broadcast y\", "
       "wanted a rule \"rows …\" before this one, which says whose columns count\n"},
      {"like = { y = \"z\" }",
       "plugin.toml:12:14: op \"axpy\": \"like\": 'z' at position 7 of \"like y z\", wanted a "
       "parameter "
       "of type Tensor of axpy(Tensor x, Tensor y, *, float a=1.0) -> Tensor\n"},
      {"in-place = [\"x\", \"x\"]",
       "plugin.toml:12:18: \"in-place\": \"x\" twice, wanted it once\n"},
  };
  for (const Case& one : cases) {
    std::string text = kGood;
    text.replace(text.find("[device]"), 0, std::string(one.keys) + "\n");
    std::vector<Reason> errors;
    EXPECT_FALSE(read(text, &errors)) << one.keys;
    EXPECT_EQ(all(errors), one.expected);
  }
  // An op may declare that it takes less than its formula, but not what the host finds out.
  for (const bool is_in_place : {false, true}) {
    const std::string keys = is_in_place ? "in-place = [\"x\"]\n" : "rows = [\"x\"]\n";
    std::string text = kGood;
    text.replace(text.find("shape ="), 0, "formula = \"x + y * a\"\n" + keys);
    std::vector<Reason> errors;
    EXPECT_EQ(read(text, &errors).has_value(), !is_in_place) << all(errors);
    EXPECT_EQ(all(errors).find("\"in-place\" beside \"formula\"") != std::string::npos, is_in_place)
        << all(errors);
  }
}

TEST(Manifest, TakesTheRangesThatVerdictsTake) {
  for (const char* const range : {"==2.11.*", "!=2.12.*,>=2.11", " >= 2.11 , <3"}) {
    std::string text = kGood;
    text.replace(text.find(">=2.11,<3"), 9, range);
    std::vector<Reason> errors;
    EXPECT_TRUE(read(text, &errors)) << range << ": " << all(errors);
  }
}

TEST(Manifest, DeviceArgumentByName) {
  std::string text = kGood;
  text.replace(text.find("[device]"), 0, "device-arg = \"y\"\n");
  std::vector<Reason> errors;
  const std::optional<Manifest> manifest = read(text, &errors);
  ASSERT_TRUE(manifest) << all(errors);
  EXPECT_EQ(manifest->ops[0].device_arg_index, 1u);
}

struct Edit {
  const char* find;  // text of kGood to replace
  const char* replace;
  const char* place;  // line and column of the message
  const char* found;  // part of the message
};

TEST(Manifest, EachMistakeIsNamedWithItsLineAndColumn) {
  const Edit rows[] = {
      {"name = \"axpy\"", "name = \"ax py\"", "1:8", "\"ax py\""},
      {"name = \"axpy\"", "name = \"9axpy\"", "1:8", "\"9axpy\""},
      {"name = \"axpy\"", "name = 7", "1:8", "integer"},
      {"name = \"axpy\"", "name = \"\"", "1:8", "\"\""},
      {"name = \"axpy\"", "name = \"a\\nb\"", "1:8", "\"a\\x0ab\""},
      {"name = \"axpy\"\n", "", "1:1", "no \"name\""},
      {"version = \"0.1.0\"", "version = \"0.1.0-rc1\"", "2:11", "0.1.0-rc1"},
      {"version = \"0.1.0\"", "version = 0.1", "2:11", "floating-point"},
      {"license = \"Apache-2.0\"", "licence = \"Apache-2.0\"", "3:1", "did you mean \"license\""},
      {"sources = [\"axpy.cc\"]", "sources = []", "4:11", "empty list"},
      {"sources = [\"axpy.cc\"]", "sources = \"axpy.cc\"", "4:11", "wanted a list"},
      {"sources = [\"axpy.cc\"]", "sources = [3]", "4:12", "integer"},
      {"sources = [\"axpy.cc\"]", "sources = [\n  \"axpy.cc\",\n  \"none.cc\"]", "6:3",
       "\"none.cc\""},
      {"sources = [\"axpy.cc\"]", "sources = [\"../axpy.cc\"]", "4:12",
       "inside the plugin's folder"},
      {"sources = [\"axpy.cc\"]", "sources = [\"/etc/passwd\"]", "4:12",
       "inside the plugin's folder"},
      {"[[op]]", "[op]", "5:1", "[[op]]"},
      {"float a = 1.0) -> Tensor", "float a = 1.0) -> Tensor?[]", "6:56", "schema"},
      {"float a = 1.0) -> Tensor", "float a = 1.0) -> Tensor?", "8:10", "\"if\""},
      {"Tensor x,", "Tensr x,", "6:16", "'Tensr'"},
      {"schema = \"axpy(Tensor x,", "schema = \"\\u0061xpy(Tensr x,", "6:10", "'Tensr'"},
      {"doc = \"a * x + y\"\n", "", "5:1", "no \"doc\""},
      {"shape = [\"like x\"]", "shape = []", "8:9", "0 rules"},
      {"shape = [\"like x\"]", "shape = [\"like x\", \"like x\"]", "8:9", "2 rules"},
      {"shape = [\"like x\"]", "shape = [\"like z\"]", "8:10", "z"},
      {"devices = [\"cpu\", \"cuda\"]", "devices = [\"gpu\"]", "9:12", "\"gpu\""},
      {"devices = [\"cpu\", \"cuda\"]", "devices = [\"cuda\", \"cuda\"]", "9:20", "twice"},
      {"devices = [\"cpu\", \"cuda\"]", "devices = [\"cpu\"]", "12:1", "device code"},
      {"dtypes = [\"float32\"]", "dtypes = [\"float\"]", "10:11", "\"float\""},
      {"dtypes = [\"float32\"]", "dtype = [\"float32\"]", "10:1", "did you mean \"dtypes\""},
      {"\"deterministic\"", "\"determinstic\"", "11:25", "did you mean \"deterministic\""},
      {"flags = ", "device-arg = \"z\"\nflags = ", "11:14", "\"z\""},
      {"device/axpy.cuh", "device/none.cuh", "13:12", "none.cuh"},
      {"kernels = [\"axpy<float>\"]", "kernels = []", "14:11", "empty list"},
      {"kernels = [\"axpy<float>\"]", "kernels = [\"a\", \"a\"]", "14:17", "twice"},
      {"torch = ", "libtorch = ", "16:1", "did you mean \"torch\""},
      {">=2.11,<3", "2.11", "16:9", "2.11"},
      {">=2.11,<3", ">=2.11,", "16:9", ">=2.11,"},
      {">=2.11,<3", "~=2.11", "16:9", "~=2.11"},
      {">=2.11,<3", ">=2.11+cu121", "16:9", ">=2.11+cu121"},
      {"[requires]", "[requires", "15:10", "no TOML"},
      {"name = \"axpy\"", "name = axpy", "1:", "wanted lines such as `name = \"softmax\"`"},
      {"name = \"axpy\"\n", "name = \"axpy\"\nname = \"axpy\"\n", "2:", "no TOML"},
  };
  for (const Edit& row : rows) {
    std::string text = kGood;
    ASSERT_NE(text.find(row.find), std::string::npos) << row.find;
    text.replace(text.find(row.find), std::string(row.find).size(), row.replace);
    std::vector<Reason> errors;
    EXPECT_FALSE(read(text, &errors)) << row.replace;
    const std::string said = all(errors);
    EXPECT_NE(said.find(row.found), std::string::npos) << row.replace << "\n" << said;
    EXPECT_NE(said.find("plugin.toml:" + std::string(row.place)), std::string::npos)
        << row.replace << "\n"
        << said;
  }
}

TEST(Manifest, ReportsAllMistakesAtOnce) {
  std::vector<Reason> errors;
  EXPECT_FALSE(read("name = 1\nversion = 2\nunknown = 3\n", &errors));
  EXPECT_GE(errors.size(), 5u) << all(errors);
}

TEST(Manifest, MistakesInSchemasAndInTheRestAreToldAtOnceInTheFilesOrder) {
  std::string text = kGood;
  for (const auto& [find, replace] :
       {std::pair("version = \"0.1.0\"", "version = \"x\""), std::pair("Tensor x,", "Tensr x,"),
        std::pair("\"deterministic\"", "\"determinstic\""), std::pair(">=2.11,<3", "2.11")})
    text.replace(text.find(find), std::string(find).size(), replace);
  std::vector<Reason> errors;
  EXPECT_FALSE(read(text, &errors));
  std::string places;
  for (const Reason& error : errors) {
    const size_t begin = error.found.find("plugin.toml:") + 12;
    places += error.found.substr(begin, error.found.find(": ", begin) - begin) + " ";
  }
  EXPECT_EQ(places, "2:11 6:16 11:25 16:9 ") << all(errors);
}

TEST(Manifest, WhereOnlyASchemaIsWrongTheRestCanBeShown) {
  std::string text = kGood;
  text.replace(text.find("[\"like x\"]"), 10, "[\"like z\"]");
  TemporaryFolder folder;
  folder.write("axpy.cc", "");
  folder.write("device/axpy.cuh", "");
  const std::string path = folder.write("plugin.toml", text);
  std::vector<Reason> errors;
  const std::optional<Manifest> shown = look_at_manifest(path, &errors);
  EXPECT_EQ(errors.size(), 1u);
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->ops.at(0).name, "axpy");
  EXPECT_FALSE(read_manifest(path, &errors));
}

TEST(Manifest, TwoOpsOfOneNameAreRefused) {
  std::string text = kGood;
  const size_t begin = text.find("[[op]]"), end = text.find("[device]");
  text.insert(begin, text.substr(begin, end - begin));
  std::vector<Reason> errors;
  EXPECT_FALSE(read(text, &errors));
  EXPECT_NE(all(errors).find("second op"), std::string::npos) << all(errors);
}

TEST(Manifest, ADeviceOpNeedsATensorToTellTheDevice) {
  std::string text = kGood;
  const std::string schema = "axpy(Tensor x,Tensor y, *, float a = 1.0) -> Tensor";
  text.replace(text.find(schema), schema.size(), "axpy(float a) -> ()");
  text.replace(text.find("shape = [\"like x\"]"), 18, "shape = []");
  std::vector<Reason> errors;
  EXPECT_FALSE(read(text, &errors));
  EXPECT_NE(all(errors).find("device-arg"), std::string::npos) << all(errors);
}

TEST(Manifest, MissingFile) {
  std::vector<Reason> errors;
  EXPECT_FALSE(read_manifest("/nonexistent/plugin.toml", &errors));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_TRUE(errors[0].found.starts_with("/nonexistent/plugin.toml: ")) << errors[0].found;
}

}  // namespace
}  // namespace opdock::pack
