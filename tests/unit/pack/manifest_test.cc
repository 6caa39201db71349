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

std::optional<Manifest> read(const std::string& text, std::vector<std::string>* errors) {
  TemporaryFolder folder;
  folder.write("axpy.cc", "");
  folder.write("device/axpy.cuh", "");
  std::optional<Manifest> manifest = read_manifest(folder.write("plugin.toml", text), errors);
  if (manifest && !check_ops(&*manifest, errors)) return std::nullopt;
  return manifest;
}

std::string all(const std::vector<std::string>& errors) {
  std::string out;
  for (const std::string& error : errors) out += error + "\n";
  return out;
}

TEST(Manifest, ReadsADeclaration) {
  std::vector<std::string> errors;
  const std::optional<Manifest> manifest = read(kGood, &errors);
  ASSERT_TRUE(manifest) << all(errors);
  EXPECT_EQ(manifest->name, "axpy");
  ASSERT_EQ(manifest->ops.size(), 1u);
  const OpDecl& op = manifest->ops[0];
  EXPECT_EQ(op.name, "axpy");
  EXPECT_EQ(op.schema, "axpy(Tensor x, Tensor y, *, float a=1.0) -> Tensor");  // canonical
  EXPECT_EQ(op.flag_bits, OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_DETERMINISTIC);
  EXPECT_EQ(op.device_arg_index, 0u);
  EXPECT_EQ(manifest->device->kernels, std::vector<std::string>{"axpy<float>"});
  ASSERT_EQ(manifest->libraries.size(), 1u);
  EXPECT_EQ(manifest->libraries[0].range, ">=2.11,<3");
}

TEST(Manifest, DeviceArgumentByName) {
  std::string text = kGood;
  text.replace(text.find("[device]"), 0, "device-arg = \"y\"\n");
  std::vector<std::string> errors;
  const std::optional<Manifest> manifest = read(text, &errors);
  ASSERT_TRUE(manifest) << all(errors);
  EXPECT_EQ(manifest->ops[0].device_arg_index, 1u);
}

struct Edit {
  const char* find;     // in kGood, replaced by
  const char* replace;  //
  int line;             // of the message
  const char* found;    // what the message says
};

TEST(Manifest, EachMistakeIsNamedWithItsLine) {
  const Edit rows[] = {
      {"name = \"axpy\"", "name = \"ax py\"", 1, "\"ax py\""},
      {"name = \"axpy\"", "name = \"9axpy\"", 1, "\"9axpy\""},
      {"name = \"axpy\"", "name = 7", 1, "integer"},
      {"name = \"axpy\"", "name = \"\"", 1, "\"\""},
      {"name = \"axpy\"\n", "", 1, "\"name\""},
      {"version = \"0.1.0\"", "version = \"0.1.0-rc1\"", 2, "0.1.0-rc1"},
      {"version = \"0.1.0\"", "version = 0.1", 2, "floating-point"},
      {"license = \"Apache-2.0\"", "licence = \"Apache-2.0\"", 3, "did you mean \"license\""},
      {"sources = [\"axpy.cc\"]", "sources = []", 4, "empty list"},
      {"sources = [\"axpy.cc\"]", "sources = \"axpy.cc\"", 4, "wanted a list"},
      {"sources = [\"axpy.cc\"]", "sources = [3]", 4, "integer"},
      {"sources = [\"axpy.cc\"]", "sources = [\"none.cc\"]", 4, "\"none.cc\""},
      {"sources = [\"axpy.cc\"]", "sources = [\"../axpy.cc\"]", 4, "inside the plugin's folder"},
      {"sources = [\"axpy.cc\"]", "sources = [\"/etc/passwd\"]", 4, "inside the plugin's folder"},
      {"[[op]]", "[op]", 5, "[[op]]"},
      {"float a = 1.0) -> Tensor", "float a = 1.0) -> Tensor?", 6, "schema"},
      {"Tensor x,", "Tensr x,", 6, "Tensr"},
      {"doc = \"a * x + y\"\n", "", 5, "\"doc\""},
      {"shape = [\"like x\"]", "shape = []", 8, "0 rules"},
      {"shape = [\"like x\"]", "shape = [\"like x\", \"like x\"]", 8, "2 rules"},
      {"shape = [\"like x\"]", "shape = [\"like z\"]", 8, "z"},
      {"devices = [\"cpu\", \"cuda\"]", "devices = [\"gpu\"]", 9, "\"gpu\""},
      {"devices = [\"cpu\", \"cuda\"]", "devices = [\"cuda\", \"cuda\"]", 9, "twice"},
      {"devices = [\"cpu\", \"cuda\"]", "devices = [\"cpu\"]", 12, "device code"},
      {"dtypes = [\"float32\"]", "dtypes = [\"float\"]", 10, "\"float\""},
      {"dtypes = [\"float32\"]", "dtype = [\"float32\"]", 10, "did you mean \"dtypes\""},
      {"\"deterministic\"", "\"determinstic\"", 11, "did you mean \"deterministic\""},
      {"flags = ", "device-arg = \"z\"\nflags = ", 11, "\"z\""},
      {"device/axpy.cuh", "device/none.cuh", 13, "none.cuh"},
      {"kernels = [\"axpy<float>\"]", "kernels = []", 14, "empty list"},
      {"kernels = [\"axpy<float>\"]", "kernels = [\"a\", \"a\"]", 14, "twice"},
      {"torch = ", "libtorch = ", 16, "did you mean \"torch\""},
      {">=2.11,<3", "2.11", 16, "2.11"},
      {">=2.11,<3", ">=2.11,", 16, ">=2.11,"},
      {">=2.11,<3", "~=2.11", 16, "~=2.11"},
      {"[requires]", "[requires", 15, "not TOML"},
      {"name = \"axpy\"\n", "name = \"axpy\"\nname = \"axpy\"\n", 2, "not TOML"},
  };
  for (const Edit& row : rows) {
    std::string text = kGood;
    ASSERT_NE(text.find(row.find), std::string::npos) << row.find;
    text.replace(text.find(row.find), std::string(row.find).size(), row.replace);
    std::vector<std::string> errors;
    EXPECT_FALSE(read(text, &errors)) << row.replace;
    const std::string said = all(errors);
    EXPECT_NE(said.find(row.found), std::string::npos) << row.replace << "\n" << said;
    EXPECT_NE(said.find("plugin.toml:" + std::to_string(row.line) + ":"), std::string::npos)
        << row.replace << "\n"
        << said;
  }
}

TEST(Manifest, ReportsAllMistakesAtOnce) {
  std::vector<std::string> errors;
  EXPECT_FALSE(read("name = 1\nversion = 2\nunknown = 3\n", &errors));
  EXPECT_GE(errors.size(), 5u) << all(errors);
}

TEST(Manifest, TwoOpsOfOneNameAreRefused) {
  std::string text = kGood;
  const size_t begin = text.find("[[op]]"), end = text.find("[device]");
  text.insert(begin, text.substr(begin, end - begin));
  std::vector<std::string> errors;
  EXPECT_FALSE(read(text, &errors));
  EXPECT_NE(all(errors).find("second op"), std::string::npos) << all(errors);
}

TEST(Manifest, ADeviceOpNeedsATensorToTellTheDevice) {
  std::string text = kGood;
  const std::string schema = "axpy(Tensor x,Tensor y, *, float a = 1.0) -> Tensor";
  text.replace(text.find(schema), schema.size(), "axpy(float a) -> ()");
  text.replace(text.find("shape = [\"like x\"]"), 18, "shape = []");
  std::vector<std::string> errors;
  EXPECT_FALSE(read(text, &errors));
  EXPECT_NE(all(errors).find("device-arg"), std::string::npos) << all(errors);
}

TEST(Manifest, MissingFile) {
  std::vector<std::string> errors;
  EXPECT_FALSE(read_manifest("/nonexistent/plugin.toml", &errors));
  EXPECT_NE(all(errors).find("/nonexistent/plugin.toml"), std::string::npos);
}

}  // namespace
}  // namespace opdock::pack
