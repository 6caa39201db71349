// Tests plugins that are found usable but prove to be broken when they are loaded.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "folder.h"
#include "load/mapped.h"

namespace opdock::testing {
namespace {

struct Row {
  const char* plugin;
  Code code;
  const char* text;  // expected in a reason's found, wanted or advice
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.plugin;
}

constexpr Row kRejected[] = {
    {"other_name", Code::kDescriptorMismatch, "another"},
    {"other_version", Code::kDescriptorMismatch, "1.1"},
    {"version_text", Code::kDescriptorMismatch, "one"},
    {"fewer_ops", Code::kDescriptorMismatch, "0 ops"},
    {"more_ops", Code::kDescriptorMismatch, "2 ops"},
    {"other_schema", Code::kDescriptorMismatch, "int k"},
    {"other_flags", Code::kDescriptorMismatch, "0x3"},
    {"no_flags", Code::kDescriptorMismatch, "0x0"},
    {"other_shape_rule", Code::kDescriptorMismatch, "like y"},
    {"more_shape_rules", Code::kDescriptorMismatch, "2 shape rules"},
    {"null_shape_rule", Code::kDescriptorMismatch, "NULL"},
    {"other_gradient", Code::kDescriptorMismatch, "none: other"},
    {"missing_gradient", Code::kDescriptorMismatch, "0 gradients"},
    {"other_minor", Code::kAbiMajor, "ABI 0.0"},
    {"zero_plugin_size", Code::kDescriptorInvalid, "opdock_plugin.struct_size 0"},
    {"small_plugin_size", Code::kDescriptorInvalid, "opdock_plugin.struct_size"},
    {"zero_op_size", Code::kDescriptorInvalid, "opdock_op.struct_size 0"},
    {"small_op_size", Code::kDescriptorInvalid, "opdock_op.struct_size"},
    {"null_name", Code::kDescriptorInvalid, "opdock_plugin.name is NULL"},
    {"null_version", Code::kDescriptorInvalid, "opdock_plugin.version is NULL"},
    {"null_ops", Code::kDescriptorInvalid, "opdock_plugin.ops is NULL"},
    {"null_op", Code::kDescriptorInvalid, "descriptor is NULL"},
    {"null_schema", Code::kDescriptorInvalid, "schema is NULL"},
    {"null_doc", Code::kDescriptorInvalid, "doc is NULL"},
    {"null_plan", Code::kDescriptorInvalid, "plan is NULL"},
    {"null_run", Code::kDescriptorInvalid, "run is NULL"},
    {"null_shape_rules", Code::kDescriptorInvalid, "shape_rules is NULL"},
    {"other_major", Code::kAbiMajor, "ABI 1.5"},
    {"note_major", Code::kAbiMajor, "7"},
    {"null_entry", Code::kEntryFailed, "NULL"},
    {"entry_throws_error", Code::kEntryFailed, "no mood"},
    {"entry_throws_int", Code::kEntryFailed, "exception"},
    {"entry_throws_unknown", Code::kEntryFailed, "exception"},
    {"hidden_entry", Code::kEntryMissing, "opdock_plugin_v0"},
    {"init_throws_error", Code::kInitFailed, "no mood"},
    {"init_throws_int", Code::kInitFailed, "exception"},
    {"init_status_1", Code::kInitFailed, "invalid argument"},
    {"init_status_2", Code::kInitFailed, "unsupported"},
    {"init_status_3", Code::kInitFailed, "out of memory"},
    {"init_status_4", Code::kInitFailed, "device error"},
    {"init_status_5", Code::kInitFailed, "device lost"},
    {"init_status_6", Code::kInitFailed, "not found"},
    {"init_status_7", Code::kInitFailed, "incompatible"},
    {"init_status_8", Code::kInitFailed, "cancelled"},
    {"init_status_9", Code::kInitFailed, "this plugin is out of order"},
    {"init_status_77", Code::kInitFailed, "77"},
    {"init_status_minus_1", Code::kInitFailed, "-1"},
    {"endless_text", Code::kInitFailed, "xxxx"},
    {"missing_symbol", Code::kLoadFailed, "opdock_case_no_such_function"},
};

class RejectedWhenLoaded : public ::testing::TestWithParam<Row> {};

TEST_P(RejectedWhenLoaded, WithItsCodeAndWithoutHarm) {
  const Row& row = GetParam();
  const Folder folder;
  const std::string path = folder.add(row.plugin);
  folder.add("good");
  const SearchOptions options = explicit_place(folder.path());
  const std::shared_ptr<const Candidate> candidate = at(*find(options), path);
  ASSERT_NE(candidate, nullptr);
  std::vector<Reason> reasons;
  EXPECT_EQ(load(candidate, counting_host(), &reasons), nullptr);
  EXPECT_TRUE(has_code(reasons, row.code)) << describe(*candidate);
  std::string texts;
  for (const Reason& reason : reasons) texts += to_text(reason) + "\n";
  EXPECT_NE(texts.find(row.text), std::string::npos) << texts;
  expect_good_still_loads(options);
}

INSTANTIATE_TEST_SUITE_P(Case, RejectedWhenLoaded, ::testing::ValuesIn(kRejected),
                         [](const auto& info) { return std::string(info.param.plugin); });

class Accepted : public ::testing::TestWithParam<const char*> {};

TEST_P(Accepted, AsTheAbiAllows) {
  const Folder folder;
  const std::string path = folder.add(GetParam());
  const std::shared_ptr<const Candidate> candidate = at(*find(explicit_place(folder.path())), path);
  ASSERT_NE(candidate, nullptr);
  std::vector<Reason> reasons;
  const LoadedPlugin* plugin = load(candidate, counting_host(), &reasons);
  ASSERT_NE(plugin, nullptr) << describe(*candidate)
                             << (reasons.empty() ? "" : to_text(reasons.front()));
  EXPECT_STREQ(plugin->descriptor->name, GetParam());
  EXPECT_EQ(plugin->candidate, candidate);
  EXPECT_TRUE(reasons.empty());
}

INSTANTIATE_TEST_SUITE_P(Case, Accepted,
                         ::testing::Values("good", "larger_plugin", "larger_op",
                                           "without_init_member", "null_init"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Load, GivesTheImageTableAsMapped) {
  const Folder folder;
  const std::string path = folder.add("with_image");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path()));
  const std::shared_ptr<const Candidate> candidate = at(*catalog, path);
  ASSERT_NE(candidate, nullptr);
  std::vector<Reason> reasons;
  const LoadedPlugin* plugin = load(candidate, counting_host(), &reasons);
  ASSERT_NE(plugin, nullptr) << describe(*candidate);
  const std::string table(plugin->images.begin(), plugin->images.end());
  EXPECT_EQ(table.substr(0, 8), "OPDKIMG1");
  EXPECT_EQ(table.substr(table.size() - 8), "a kernel");
}

// The loaded plugin must match what was found in its file.
TEST(Load, ComparesTheNoteAndThePlaceOfTheTable) {
  const Folder folder;
  const auto code_of = [&](const char* as, auto change) {
    const std::string path = folder.add("with_image", as);
    const std::shared_ptr<const Candidate> found = at(*find(explicit_place(folder.path())), path);
    const auto candidate = std::make_shared<Candidate>(*found);
    change(&candidate->file);
    std::vector<Reason> reasons;
    const LoadedPlugin* plugin = load(candidate, counting_host(), &reasons);
    return plugin != nullptr ? std::string("loaded") : std::string(info(reasons.at(0).code).name);
  };
  EXPECT_EQ(code_of("same.so", [](FileFacts*) {}), "loaded");
  EXPECT_EQ(code_of("table.so", [](FileFacts* file) { file->image_table.address += 64; }),
            "image-table");
  EXPECT_EQ(code_of("long.so", [](FileFacts* file) { file->image_table.size = 1 << 30; }),
            "image-table");
  EXPECT_EQ(code_of("other.so", [](FileFacts* file) { file->note->head.build_hash[0] ^= 1; }),
            "file-changed");
  EXPECT_EQ(code_of("nowhere.so", [](FileFacts* file) { file->note_address = 1 << 30; }),
            "note-missing");
}

// A plugin's images are hashed when they are used, not when the plugin is loaded.
TEST(Load, LeavesTheDigestOfAnImageToItsUse) {
  const Folder folder;
  for (const char* name : {"with_image", "wrong_digest"}) {
    const std::string path = folder.add(name);
    const std::shared_ptr<const Candidate> candidate =
        at(*find(explicit_place(folder.path())), path);
    ASSERT_NE(candidate, nullptr);
    std::vector<Reason> reasons;
    const LoadedPlugin* plugin = load(candidate, counting_host(), &reasons);
    ASSERT_NE(plugin, nullptr) << describe(*candidate);
    const std::span<const uint8_t> image = plugin->images.last(std::strlen("a kernel"));
    const bool is_good = name == std::string("with_image");
    EXPECT_EQ(check_image(image, candidate->file.note->images.at(0), &reasons), is_good);
    EXPECT_EQ(has_code(reasons, Code::kClaimDigest), !is_good);
  }
}

// Compares the table in memory with a note other than the one that was checked.
TEST(Load, ComparesTheImageTableWithTheNote) {
  const Folder folder;
  const std::string path = folder.add("with_image");
  const std::shared_ptr<const Candidate> candidate = at(*find(explicit_place(folder.path())), path);
  ASSERT_NE(candidate, nullptr);
  std::vector<Reason> reasons;
  const LoadedPlugin* plugin = load(candidate, counting_host(), &reasons);
  ASSERT_NE(plugin, nullptr) << describe(*candidate);
  Note note = *candidate->file.note;
  check_image_table(plugin->images, note, &reasons);
  EXPECT_TRUE(reasons.empty());
  note.images[0].sha256 = std::string(64, '0');
  check_image_table(plugin->images, note, &reasons);
  EXPECT_TRUE(has_code(reasons, Code::kClaimDigest));
  note.images.clear();
  check_image_table(plugin->images, note, &reasons);
  EXPECT_TRUE(has_code(reasons, Code::kImageTable));
  reasons.clear();
  check_image_table(plugin->images.first(plugin->images.size() - 1), *candidate->file.note,
                    &reasons);
  EXPECT_TRUE(has_code(reasons, Code::kImageTable));
}

TEST(Load, ReturnsTheSamePluginTheSecondTime) {
  const Folder folder;
  folder.add("good");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path()));
  std::vector<Reason> reasons;
  const LoadedPlugin* first = load(catalog->candidates()[0], counting_host(), &reasons);
  const LoadedPlugin* second = load(catalog->candidates()[0], counting_host(), &reasons);
  EXPECT_EQ(first, second);
  // A later scan finds the same content and therefore gets the same plugin.
  const std::shared_ptr<const Catalog> later = find(explicit_place(folder.path()));
  EXPECT_EQ(load(later->candidates()[0], counting_host(), &reasons), first);
}

TEST(Load, RemembersAFailureAndDoesNotRunThePluginAgain) {
  const Folder folder;
  folder.add("init_status_2");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path()));
  const int before = count_of("init_status_2");
  for (int i = 0; i < 3; ++i) {
    std::vector<Reason> reasons;
    EXPECT_EQ(load(catalog->candidates()[0], counting_host(), &reasons), nullptr);
    EXPECT_TRUE(has_code(reasons, Code::kInitFailed));
  }
  EXPECT_EQ(count_of("init_status_2"), before + 1);
}

TEST(Load, RefusesACandidateThatWasRejected) {
  const Folder folder;
  folder.write("text.so", "not a plugin");
  const std::shared_ptr<const Catalog> catalog = find(explicit_place(folder.path()));
  std::vector<Reason> reasons;
  EXPECT_EQ(load(catalog->candidates()[0], counting_host(), &reasons), nullptr);
  EXPECT_TRUE(has_code(reasons, Code::kNotElf));
}

}  // namespace
}  // namespace opdock::testing
