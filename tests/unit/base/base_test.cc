// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/quantity.h"
#include "base/reason.h"
#include "base/sentence.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "base/version.h"

namespace opdock {
namespace {

TEST(Version, ReadsNumbersAndDots) {
  for (const char* text : {"0", "1.2", "2.13.0", "1.2.3.4.5.6.7.8", "4294967295.0"}) {
    const std::optional<Version> version = Version::parse(text);
    ASSERT_TRUE(version) << text;
    EXPECT_EQ(version->text(), text);
  }
  EXPECT_EQ(Version::parse("2.13.0+cpu")->text(), "2.13.0");
  EXPECT_EQ(Version::parse("007.010")->text(), "7.10");
}

TEST(Version, RefusesEverythingElse) {
  for (const char* text : {"", "+cpu", ".", "1.", ".1", "1..2", "1.x", "v1", " 1", "1 ", "-1",
                           "1,2", "1.2.3.4.5.6.7.8.9", "4294967296", "1.99999999999999999999"}) {
    EXPECT_FALSE(Version::parse(text)) << '"' << text << '"';
  }
}

TEST(Version, ComparesNumberByNumber) {
  const std::vector<std::string> ascending = {"0",   "0.0.1", "0.1",   "1",      "1.0.1",
                                              "1.9", "1.10",  "3.4.9", "3.4.30", "10"};
  for (size_t i = 0; i < ascending.size(); ++i) {
    for (size_t j = 0; j < ascending.size(); ++j) {
      const Version a = *Version::parse(ascending[i]), b = *Version::parse(ascending[j]);
      EXPECT_EQ(a < b, i < j) << ascending[i] << " < " << ascending[j];
      EXPECT_EQ(a == b, i == j) << ascending[i] << " == " << ascending[j];
    }
  }
  EXPECT_EQ(*Version::parse("12"), *Version::parse("12.0.0"));
  EXPECT_TRUE(Version().empty());
  EXPECT_EQ(Version({3, 4}).part(7), 0u);
}

// Uses the examples of FIPS 180-4.
TEST(Sha256, GivesTheStandardsDigests) {
  const char* const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(to_hex(sha256("abc")), abc);
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, TakesPieces) {
  const std::string text(300, 'x');
  for (size_t step : {1, 63, 64, 65, 300}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += step) {
      const std::string piece = text.substr(at, step);
      hash.add(std::vector<uint8_t>(piece.begin(), piece.end()));
    }
    EXPECT_EQ(hash.finish(), sha256(text)) << step;
  }
}

TEST(FieldHasher, KeepsFieldsApart) {
  const std::vector<std::vector<std::string>> lists = {
      {}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}, {"2:ab"}, {"a1:b"}, {"a:b"}};
  std::set<Digest> digests;
  for (const auto& list : lists) {
    FieldHasher hasher;
    for (const std::string& field : list) hasher.add(field);
    EXPECT_TRUE(digests.insert(hasher.finish()).second) << list.size();
  }
}

TEST(Codes, AreKebabCaseUniqueAndExplained) {
  const std::set<std::string_view> stages = {
      "discover", "trust", "file",  "note",      "abi",     "system",  "device", "load",
      "cache",    "jit",   "build", "reference", "command", "package", "gemm",   "attention"};
  std::set<std::string_view> names;
  for (const CodeInfo& code : all_codes()) {
    EXPECT_TRUE(names.insert(code.name).second) << code.name;
    EXPECT_TRUE(std::all_of(code.name.begin(), code.name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || c == '-';
    })) << code.name;
    EXPECT_EQ(stages.count(code.stage), 1u) << code.name;
    EXPECT_FALSE(code.meaning.empty() || code.cause.empty() || code.advice.empty()) << code.name;
    EXPECT_EQ(code.meaning.back(), '.') << code.name;
    EXPECT_TRUE(code.sentence.empty() || code.sentence.find("{found}") != code.sentence.npos)
        << code.name << ": " << code.sentence;
    EXPECT_TRUE(code.wanted.empty() || !code.found.empty()) << code.name;
    EXPECT_EQ(&info(code.code), &code);
  }
  EXPECT_GE(names.size(), 60u);
}

TEST(Reason, ReadsAsASentence) {
  Reason reason = make_reason(Code::kAbiMajor, "ABI 1.0", "0.x");
  EXPECT_EQ(to_text(reason),
            "abi-major: found ABI 1.0, wanted 0.x. Rebuild the plugin with this Opdock's headers.");
  EXPECT_EQ(reason.advice, info(Code::kAbiMajor).advice);
  reason.wanted.clear();
  reason.advice.clear();
  EXPECT_EQ(to_text(reason), "abi-major: found ABI 1.0.");
}

TEST(Reason, HasTheTextsOfACodeThatNeverVaries) {
  const Reason reason = make_reason(Code::kBuildPrivileged);
  EXPECT_EQ(reason.found, "a program with raised privileges");
  EXPECT_EQ(reason.wanted, "one without them");
  EXPECT_EQ(reason.advice, info(Code::kBuildPrivileged).advice);
  EXPECT_EQ(sentence(make_reason(Code::kCancelled)), "there was a request to stop");
}

// For a code that passes on somebody else's message, the sentence is only that message; the
// record's other fields are left out.
TEST(Reason, OfSomebodyElsesWordsAddsNone) {
  const Reason reason = {Code::kDriverFailed, "no CUDA driver: libcuda.so.1 was not found",
                         "a driver", "install the NVIDIA driver"};
  EXPECT_EQ(sentence(reason), "no CUDA driver: libcuda.so.1 was not found");
  EXPECT_EQ(
      to_text(reason),
      "driver-failed: no CUDA driver: libcuda.so.1 was not found. Install the NVIDIA driver.");
  EXPECT_EQ(sentence(make_reason(Code::kDeviceNotServed, "an op for cpu", "cuda")),
            "it is an op for cpu, not for cuda");
}

TEST(Reason, KeepsACompilersLines) {
  Reason reason = {Code::kBuildFailed, "a.c:1: error: no\na.c:2: error: no", "source that compiles",
                   "correct the source"};
  EXPECT_EQ(to_text(reason),
            "build-failed: a.c:1: error: no\na.c:2: error: no\nCorrect the source.");
  reason.code = Code::kBuildArch;
  reason.wanted = "sm_90";
  EXPECT_EQ(sentence(reason), "a.c:1: error: no\na.c:2: error: no\nwanted sm_90");
}

TEST(Reason, TakesMarksInWhatWasFoundAsTheyAre) {
  EXPECT_EQ(sentence(make_reason(Code::kAbiMajor, "{wanted}", "{found}")),
            "found {wanted}, wanted {found}");
}

TEST(Reason, GoesThroughALine) {
  const Reason reason = {Code::kJitKernel, "errors:\nk.cu(1): error", "names of kernels; any",
                         "write it"};
  const std::string line = to_line(reason);
  EXPECT_EQ(line,
            "jit-kernel: found errors:, wanted names of kernels; any; write it\nk.cu(1): error");
  const std::optional<Reason> read = parse_line(line.substr(0, line.find('\n')));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->code, reason.code);
  EXPECT_EQ(read->found, "errors:");
  EXPECT_FALSE(parse_line("no-such-code: found x, wanted y"));
  EXPECT_FALSE(parse_line("abi-major: wanted y"));
}

// ---- what a terminal shows

TEST(Printable, KeepsWhatIsSeen) {
  for (const char* text : {"", "libx.so.0", "\xc3\xa9t\xc3\xa9", "\xd9\x85\xd8\xb1", "\xe6\x96\x87",
                           "\xf0\x9f\x98\x80", "\\x1b", "\xc2\xa0"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, EscapesWhatTurnsALineAroundOrHides) {
  const std::pair<const char*, const char*> kRows[] = {
      {"\x1b[31m\n\x7f", "\\x1b[31m\\x0a\\x7f"},
      {"\xc2\x9b", "\\x9b"},                           // CSI as one character
      {"x\xe2\x80\xaeos.", "x\\u202eos."},             // right-to-left override
      {"\xe2\x81\xa6\xe2\x81\xa9", "\\u2066\\u2069"},  // isolates
      {"\xe2\x80\x8b\xe2\x80\x8f", "\\u200b\\u200f"},  // zero-width space, right-to-left mark
      {"\xe2\x80\xa8", "\\u2028"},                     // line separator
      {"\xef\xbb\xbf", "\\ufeff"},
      {"\xf3\xa0\x81\x81", "\\U000e0041"},     // a tag character
      {"a\xff\xe2\x80", "a\\xff\\xe2\\x80"}};  // not UTF-8
  for (const auto& [text, shown] : kRows) EXPECT_EQ(printable(text), shown);
}

TEST(Quantity, HasOneOrTheOtherForm) {
  EXPECT_EQ(quantity(1, "result"), "1 result");
  EXPECT_EQ(quantity(0, "result"), "0 results");
  EXPECT_EQ(quantity(-1, "dimension"), "-1 dimensions");
  EXPECT_EQ(quantity(size_t{1}, "entry"), "1 entry");
  EXPECT_EQ(quantity(2u, "entry"), "2 entries");
}

}  // namespace
}  // namespace opdock
