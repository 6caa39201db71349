// SPDX-License-Identifier: Apache-2.0
#include "manifest/kernel_names.h"

#include <gtest/gtest.h>

#include "manifest/manifest.h"
#include "support/temporary_folder.h"

namespace opdock::pack {
namespace {

using Names = std::vector<std::string>;

Names expanded(const std::string& text, size_t most = kMaxKernels) {
  KernelNameMistake mistake;
  const std::optional<Names> names = expand_kernel_name(text, most, &mistake);
  EXPECT_TRUE(names) << text << ": " << mistake.found << ", wanted " << mistake.wanted;
  return names.value_or(Names());
}

TEST(KernelNames, ANameWithoutListsStandsForItself) {
  for (const char* text : {"noop", "a::b<float, 4>", "f<g<int>, (1 < 2)>", "k<&x[0]>"})
    EXPECT_EQ(expanded(text), Names{text});
}

TEST(KernelNames, TheLastListAlternatesFastest) {
  EXPECT_EQ(expanded("f<{float, opdock::half}>"), (Names{"f<float>", "f<opdock::half>"}));
  EXPECT_EQ(expanded("n::f<{a, b}, {1, 2, 3}>"), (Names{"n::f<a, 1>", "n::f<a, 2>", "n::f<a, 3>",
                                                        "n::f<b, 1>", "n::f<b, 2>", "n::f<b, 3>"}));
  EXPECT_EQ(expanded("f<{a,b},x,{ c , d }>"),
            (Names{"f<a,x,c>", "f<a,x,d>", "f<b,x,c>", "f<b,x,d>"}));
  EXPECT_EQ(expanded("f< {a} >"), Names{"f< a >"});
  EXPECT_EQ(expanded("o<{a, b}>::i<{c, d}>"),
            (Names{"o<a>::i<c>", "o<a>::i<d>", "o<b>::i<c>", "o<b>::i<d>"}));
}

TEST(KernelNames, CommasInBracketsAreAnElementsOwn) {
  EXPECT_EQ(expanded("f<{pair<int, g<1, 2>>, (1, 2), a[1, 2]}>"),
            (Names{"f<pair<int, g<1, 2>>>", "f<(1, 2)>", "f<a[1, 2]>"}));
}

TEST(KernelNames, AsManyAsAllowed) {
  EXPECT_EQ(expanded("f<{a, b}, {1, 2, 3}>", 6).size(), 6u);
  KernelNameMistake mistake;
  EXPECT_FALSE(expand_kernel_name("f<{a, b}, {1, 2, 3}>", 5, &mistake));
  EXPECT_EQ(mistake.found, "more than 1024 kernels");
  EXPECT_FALSE(expand_kernel_name("f", 0, &mistake));
  // Refused before the names are generated: there would be 2^90.
  std::string huge = "f<{0, 1}";
  for (int i = 0; i < 89; ++i) huge += ", {0, 1}";
  EXPECT_FALSE(expand_kernel_name(huge + ">", kMaxKernels, &mistake));
}

struct BadName {
  const char* text;
  size_t offset;
  const char* found;
};

TEST(KernelNames, EachMistakeIsFoundInItsPlace) {
  const BadName rows[] = {
      {"f<{a, b>", 2, "without an end"},       {"f<{a, b", 2, "without an end"},
      {"f<{a, b<c}>", 9, "open bracket"},      {"f<a, b}>", 6, "closes nothing"},
      {"f<{a, b}}>", 8, "text behind a list"}, {"f<{}>", 3, "empty element"},
      {"f<{a, }>", 6, "empty element"},        {"f<{, a}>", 3, "empty element"},
      {"f<{a, {b}}>", 6, "within a list"},     {"{f, g}<a>", 0, "within a word"},
      {"f<unsigned {a, b}>", 11, "within a"},  {"f<S{1}>", 3, "within a word"},
      {"f<{a, b}*>", 8, "text behind a list"}, {"f<{a, b} *>", 8, "text behind a list"},
      {"f<x, {a, b}", 11, "text behind"},      {"f<{a(, b}>", 8, "open bracket"},
  };
  for (const BadName& row : rows) {
    KernelNameMistake mistake;
    EXPECT_FALSE(expand_kernel_name(row.text, kMaxKernels, &mistake)) << row.text;
    EXPECT_EQ(mistake.offset, row.offset) << row.text;
    EXPECT_NE(mistake.found.find(row.found), std::string::npos)
        << row.text << ": " << mistake.found;
    EXPECT_FALSE(mistake.wanted.empty()) << row.text;
  }
}

// ---- in a plugin.toml

const char kKernelsHead[] = R"toml(name = "k"
version = "1"
license = "x"
sources = ["k.cc"]
[[op]]
schema = "k(Tensor x) -> ()"
doc = "x"
devices = ["cuda"]
dtypes = ["float32"]
[device]
sources = ["k.cc"]
)toml";

std::optional<Manifest> read_kernels(const std::string& kernels, std::string* mistakes) {
  opdock_test::TemporaryFolder folder;
  folder.write("k.cc", "");
  std::vector<Reason> reasons;
  auto manifest = read_manifest(folder.write("plugin.toml", kKernelsHead + kernels), &reasons);
  mistakes->clear();
  for (const Reason& reason : reasons)
    *mistakes += reason.found.substr(reason.found.find("plugin.toml:")) + "\n";
  return manifest;
}

TEST(KernelNames, AManifestHasThemExpanded) {
  std::string mistakes;
  const std::optional<Manifest> manifest =
      read_kernels("kernels = [\n  \"z\",\n  \"f<{b, a}>\", \"f<c>\"]\n", &mistakes);
  ASSERT_TRUE(manifest) << mistakes;
  EXPECT_EQ(manifest->device->kernels, (Names{"z", "f<b>", "f<a>", "f<c>"}));
}

TEST(KernelNames, MistakesInAManifestHaveTheirPlace) {
  std::string mistakes;
  EXPECT_FALSE(read_kernels("kernels = [\n  \"z\",\n  \"f<{a, }>\", \"g<{a}\"]\n", &mistakes));
  EXPECT_EQ(mistakes,
            "plugin.toml:14:10: [device]: \"kernels\": an empty element of a list\n"
            "plugin.toml:14:21: [device]: \"kernels\": text behind a list\n");
  EXPECT_FALSE(read_kernels("kernels = [\"\"\"\nf<{a, }>\"\"\"]\n", &mistakes));
  EXPECT_TRUE(mistakes.starts_with("plugin.toml:13:7: ")) << mistakes;
  // For a text with escapes, the place is the text's beginning.
  EXPECT_FALSE(read_kernels("kernels = [\"\\u0066<{a, }>\"]\n", &mistakes));
  EXPECT_TRUE(mistakes.starts_with("plugin.toml:12:12: ")) << mistakes;
}

TEST(KernelNames, ANameThatIsThereTwiceIsRefused) {
  std::string mistakes;
  EXPECT_FALSE(read_kernels("kernels = [\"f<{a, b}>\",\n\"f<b>\"]\n", &mistakes));
  EXPECT_EQ(mistakes, "plugin.toml:13:1: [device]: \"kernels\": \"f<b>\" twice\n");
  EXPECT_FALSE(read_kernels("kernels = [\"f<{a, a}>\"]\n", &mistakes));
  EXPECT_EQ(mistakes, "plugin.toml:12:12: [device]: \"kernels\": \"f<a>\" twice\n");
}

// Returns "{0, 1, …}".
std::string numbers(int count) {
  std::string text = "{0";
  for (int i = 1; i < count; ++i) text += ", " + std::to_string(i);
  return text + "}";
}

TEST(KernelNames, APluginHasALimitedNumberOfThem) {
  std::string mistakes;
  const std::string full = "kernels = [\"f<" + numbers(32) + ", " + numbers(32) + ">\"";
  const std::optional<Manifest> manifest = read_kernels(full + "]\n", &mistakes);
  ASSERT_TRUE(manifest) << mistakes;
  EXPECT_EQ(manifest->device->kernels.size(), 1024u);
  EXPECT_EQ(manifest->device->kernels.back(), "f<31, 31>");
  EXPECT_FALSE(read_kernels(full + ",\n  \"g\"]\n", &mistakes));
  EXPECT_EQ(mistakes, "plugin.toml:13:4: [device]: \"kernels\": more than 1024 kernels\n");
}

}  // namespace
}  // namespace opdock::pack
