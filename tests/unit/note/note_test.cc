// SPDX-License-Identifier: Apache-2.0
#include "note/note.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/sha256.h"
#include "opdock/plugin.h"
#include "support/elf_builder.h"
#include "support/temporary_folder.h"

namespace opdock {
namespace {

using opdock_test::Bytes;

// Builds a descriptor from the format's definition (docs/reference/note.md), not from the reader's
// struct.
Bytes descriptor(const std::string& json, unsigned major = OPDOCK_ABI_MAJOR) {
  Bytes b;
  b.u16(0, 2).u16(2, 48).u16(4, major).u16(6, OPDOCK_ABI_MINOR).u32(8, 0).u32(12, json.size());
  for (size_t i = 0; i < 32; ++i) b.u8(16 + i, 200 + i);
  b.text(48, json);
  return b;
}

std::string texts(const std::vector<Reason>& reasons) {
  std::string text;
  for (const Reason& reason : reasons) text += to_text(reason) + "\n";
  return text;
}

Note full_note() {
  Note note;
  note.name = "norm-family_2.x";
  note.version = {1, 20, 3};
  note.license = "Apache-2.0 \"quoted\"";
  note.devices = {Backend::kCpu, Backend::kCuda, Backend::kRocm};
  OpClaim op;
  op.name = "add_layer_norm";
  op.schema = "add_layer_norm(Tensor x, Tensor y, *, float eps=1e-05) -> (Tensor, Tensor)";
  op.digest = to_hex(sha256(op.schema));
  op.devices = {"cpu", "cuda"};
  op.dtypes = {"float32", "bfloat16"};
  op.shape_rules = {"like x", "like x"};
  op.flags = {"thread-safe", "capture-safe"};
  op.device_arg = "x";
  op.elsewhere = {{"bias", "cpu"}, {"weight", "any"}};
  op.gradients = {"x = layer_norm_backward(grads[0], x)", "weight = none: a test"};
  note.ops = {op};
  op.name = "layer_norm";
  op.schema = "layer_norm(Tensor x) -> Tensor";
  op.digest = to_hex(sha256(op.schema));
  op.device_arg.clear();
  op.elsewhere.clear();
  op.gradients.clear();
  note.ops.push_back(op);
  const std::string digest(64, 'a');
  note.images = {{Backend::kCuda, ImageKind::kCubin, "sm_90a", {12, 9}, digest},
                 {Backend::kCuda, ImageKind::kPtx, "compute_120f", {13, 0}, digest},
                 {Backend::kRocm, ImageKind::kCodeObject, "gfx90a:sramecc+:xnack-", {6, 2}, digest},
                 {Backend::kCuda, ImageKind::kSource, "norm.cuh", {}, digest}};
  note.libraries = {{"torch", ">=2.11,<3"}, {"cudart", "==13.*"}};
  note.least_cuda = 103;
  note.cpu_arch = "x86_64";
  note.cpu_level = 3;
  note.toolchain = "g++ 12.2 \xc3\xa9";
  return note;
}

TEST(Note, SurvivesWritingAndReading) {
  const Note note = full_note();
  std::vector<Reason> reasons;
  const std::optional<Note> back = read_note(descriptor(note_json(note)).data, &reasons);
  ASSERT_TRUE(back) << texts(reasons);
  EXPECT_EQ(back->name, note.name);
  EXPECT_EQ(back->version, note.version);
  EXPECT_EQ(back->license, note.license);
  EXPECT_EQ(back->devices, note.devices);
  EXPECT_EQ(back->least_cuda, 103);
  ASSERT_EQ(back->ops.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back->ops[i].name, note.ops[i].name);
    EXPECT_EQ(back->ops[i].schema, note.ops[i].schema);
    EXPECT_EQ(back->ops[i].digest, note.ops[i].digest);
    EXPECT_EQ(back->ops[i].devices, note.ops[i].devices);
    EXPECT_EQ(back->ops[i].dtypes, note.ops[i].dtypes);
    EXPECT_EQ(back->ops[i].shape_rules, note.ops[i].shape_rules);
    EXPECT_EQ(back->ops[i].flags, note.ops[i].flags);
    EXPECT_EQ(back->ops[i].device_arg, note.ops[i].device_arg);
    EXPECT_EQ(back->ops[i].elsewhere, note.ops[i].elsewhere);
    EXPECT_EQ(back->ops[i].gradients, note.ops[i].gradients);
  }
  ASSERT_EQ(back->images.size(), note.images.size());
  for (size_t i = 0; i < note.images.size(); ++i) {
    EXPECT_EQ(back->images[i].backend, note.images[i].backend);
    EXPECT_EQ(back->images[i].kind, note.images[i].kind);
    EXPECT_EQ(back->images[i].arch, note.images[i].arch);
    EXPECT_EQ(back->images[i].toolkit.text(), note.images[i].toolkit.text());
    EXPECT_EQ(back->images[i].sha256, note.images[i].sha256);
  }
  ASSERT_EQ(back->libraries.size(), 2u);
  EXPECT_EQ(back->libraries[0].library, "torch");
  EXPECT_EQ(back->libraries[0].range, ">=2.11,<3");
  EXPECT_EQ(back->cpu_arch, "x86_64");
  EXPECT_EQ(back->cpu_level, 3);
  EXPECT_EQ(back->toolchain, note.toolchain);
  EXPECT_EQ(note_json(*back), note_json(note));
}

TEST(Note, TheLeastArchitectureIsACapability) {
  const auto read = [](const std::string& least, std::vector<Reason>* reasons) {
    std::string json = note_json(full_note());
    const size_t at = json.find("\"10.3\"");
    return read_note(descriptor(json.replace(at, 6, least)).data, reasons);
  };
  std::vector<Reason> reasons;
  EXPECT_EQ(read("\"8.0\"", &reasons)->least_cuda, 80);
  for (const char* text : {"\"sm_80\"", "\"8.0.1\"", "\"8.10\"", "\"8.0+PTX\"", "8", "\"x\""}) {
    reasons.clear();
    EXPECT_FALSE(read(text, &reasons)) << text;
    ASSERT_EQ(reasons.size(), 1u) << texts(reasons);
    EXPECT_EQ(reasons[0].code, Code::kNoteField);
    EXPECT_TRUE(reasons[0].found.starts_with("least.cuda: ")) << reasons[0].found;
  }
}

TEST(Note, HeadIsReadAtItsOffsets) {
  std::vector<Reason> reasons;
  const std::optional<Note> note = read_note(descriptor(note_json(full_note())).data, &reasons);
  ASSERT_TRUE(note) << texts(reasons);
  EXPECT_EQ(note->head.abi_major, OPDOCK_ABI_MAJOR);
  EXPECT_EQ(note->head.abi_minor, OPDOCK_ABI_MINOR);
  EXPECT_EQ(note->head.build_hash[0], 200);
  EXPECT_EQ(note->head.build_hash[31], 231);
}

TEST(Note, LaterHeadsAndMembersAreAccepted) {
  std::string json = note_json(full_note());
  json.insert(1, R"("future":{"x":[1,2,{"y":null}]},"other":1.5,)");
  Bytes b = descriptor(json);
  Bytes grown;
  grown.text(0, std::string(b.data.begin(), b.data.begin() + 48)).u64(48, 7).u64(56, 8);
  grown.u16(2, 64).text(64, json).u8(64 + json.size() + 6, 0);  // 7 bytes of padding
  std::vector<Reason> reasons;
  const std::optional<Note> note = read_note(grown.data, &reasons);
  ASSERT_TRUE(note) << texts(reasons);
  EXPECT_EQ(note->name, full_note().name);
}

TEST(Note, PaddingIsShortAndZero) {
  const Bytes b = descriptor(note_json(full_note()));
  for (const auto& [padding, good] : std::vector<std::pair<std::string, bool>>{
           {std::string(7, '\0'), true}, {std::string(8, '\0'), false}, {"x", false}}) {
    Bytes padded = b;
    padded.text(padded.size(), padding);
    std::vector<Reason> reasons;
    EXPECT_EQ(read_note(padded.data, &reasons).has_value(), good) << padding.size();
  }
}

// Other mistakes in a note of another major version do not matter: compat reports abi-major.
TEST(Note, OfAnotherMajorKeepsWhatCanBeRead) {
  std::vector<Reason> reasons;
  std::optional<Note> note =
      read_note(descriptor(R"({"name":"later","ops":{"all":"new"}})", 7).data, &reasons);
  ASSERT_TRUE(note);
  EXPECT_TRUE(reasons.empty()) << texts(reasons);
  EXPECT_EQ(note->name, "later");
  EXPECT_EQ(note->head.abi_major, 7);
  note = read_note(descriptor("not JSON at all", 7).data, &reasons);
  ASSERT_TRUE(note);
  EXPECT_TRUE(reasons.empty());
}

TEST(Note, SaysEverythingThatIsWrongAtOnce) {
  std::vector<Reason> reasons;
  EXPECT_FALSE(read_note(descriptor(R"({"name":"a/b","version":1,"ops":[{}]})").data, &reasons));
  const std::string all = texts(reasons);
  for (const char* part : {"name: \"a/b\"", "version: an integer", "no member ops[0].schema",
                           "no member ops[0].digest", "no member cpu"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " is not in\n" << all;
  }
}

TEST(Note, ThousandsOfDefectsGiveAFewReasons) {
  std::string json = R"({"name":"a","version":"1","cpu":{"arch":"x86_64","level":1},"ops":[)";
  for (int i = 0; i < 5000; ++i) json += "{},";
  json += "{}]}";
  std::vector<Reason> reasons;
  EXPECT_FALSE(read_note(descriptor(json).data, &reasons));
  EXPECT_LE(reasons.size(), 32u);
  EXPECT_GE(reasons.size(), 8u);
}

TEST(Note, WriterFillsInMissingDigestsAndMendsUtf8) {
  Note note = full_note();
  note.ops[0].digest.clear();
  note.toolchain = "bad \xff byte";
  std::vector<Reason> reasons;
  const std::optional<Note> back = read_note(descriptor(note_json(note)).data, &reasons);
  ASSERT_TRUE(back) << texts(reasons);
  EXPECT_EQ(back->ops[0].digest, to_hex(sha256(note.ops[0].schema)));
  EXPECT_EQ(back->toolchain, "bad \xef\xbf\xbd byte");
}

// Returns the text between the first `opening` after `after` and the next line "```".
std::string block(const std::string& page, const std::string& after, const std::string& opening) {
  const size_t begin = page.find(opening, page.find(after)) + opening.size();
  return page.substr(begin, page.find("\n```\n", begin) - begin);
}

TEST(Page, ShowsANoteOfToday) {
  const std::string page = opdock_test::contents(NOTE_PAGE);
  // Each line is as xxd prints it: an offset, 16 bytes, the same bytes as text.
  std::istringstream lines(block(page, "\n## An example\n", "\n```text\n"));
  std::string shown;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream bytes(line.substr(6, 47));
    for (std::string byte; bytes >> byte;) shown += static_cast<char>(std::stoi(byte, nullptr, 16));
  }
  ASSERT_EQ(shown.size(), 88u);
  std::string json = block(page, "\n## An example\n", "\n```json\n");
  for (size_t at; (at = json.find('\n')) != json.npos;)
    json.erase(at, json.find_first_not_of(" ", at + 1) - at);
  const Bytes head(shown.substr(0, 68));
  EXPECT_EQ(head.get(0, 4), 7u);
  EXPECT_EQ(head.get(4, 4), 48 + json.size());
  EXPECT_EQ(head.get(8, 4), 1u);
  EXPECT_EQ(shown.substr(12, 8), std::string("opdock\0\0", 8));
  EXPECT_EQ(shown.substr(68), json.substr(0, 20));
  std::vector<Reason> reasons;
  const std::optional<Note> note = read_note(Bytes(shown.substr(20, 48) + json).data, &reasons);
  ASSERT_TRUE(note) << texts(reasons);
  EXPECT_TRUE(reasons.empty()) << texts(reasons);
  EXPECT_EQ(note->name, "sample");
  const std::string version =
      std::to_string(OPDOCK_ABI_MAJOR) + "." + std::to_string(OPDOCK_ABI_MINOR);
  EXPECT_NE(page.find("| ABI " + version + " |"), page.npos) << version;
  EXPECT_EQ(head.get(24, 2), uint64_t{OPDOCK_ABI_MAJOR});
  EXPECT_EQ(head.get(26, 2), uint64_t{OPDOCK_ABI_MINOR});
}

TEST(Names, GoBothWays) {
  for (const Backend backend : {Backend::kCpu, Backend::kCuda, Backend::kRocm}) {
    EXPECT_EQ(parse_backend(to_text(backend)), backend);
  }
  for (const ImageKind kind :
       {ImageKind::kCubin, ImageKind::kPtx, ImageKind::kCodeObject, ImageKind::kSource}) {
    EXPECT_EQ(parse_image_kind(to_text(kind)), kind);
  }
  EXPECT_FALSE(parse_backend("unknown"));
  EXPECT_FALSE(parse_backend("CUDA"));
  EXPECT_FALSE(parse_image_kind(""));
}

}  // namespace
}  // namespace opdock
