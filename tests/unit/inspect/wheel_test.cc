// Tests reading wheels in place.
// SPDX-License-Identifier: Apache-2.0
#include "inspect/wheel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "inspect/native_names.h"
#include "support/temporary_folder.h"
#include "support/zip_builder.h"

namespace opdock {
namespace {

using opdock_test::zip_of;
using opdock_test::ZipMember;

const std::string kElf = "\177ELF and what follows in one";

using Members = std::vector<ZipMember>;

struct Read {
  opdock_test::TemporaryFolder folder;
  std::string path;
  std::vector<Reason> reasons;
  std::shared_ptr<const Wheel> wheel;

  explicit Read(const std::vector<ZipMember>& members) {
    path = folder.write("foo-1.2-cp311-cp311-linux_x86_64.whl", zip_of(members)).string();
    wheel = Wheel::read(path, &reasons);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const WheelMember& member : wheel->members()) names.push_back(member.name);
    return names;
  }
  std::string text(const std::string& name) const {
    std::vector<Reason> problems;
    const std::optional<OpenFile> file = wheel->open(path + "/" + name, &problems);
    if (!file) return problems.empty() ? "no reason" : problems[0].found;
    std::string bytes(file->size + 1, '\0');
    bytes.resize(static_cast<size_t>(pread(file->fd.get(), bytes.data(), bytes.size(), 0)));
    return bytes;
  }
  // Returns "name: code" for each member that was skipped.
  std::vector<std::string> skipped() const {
    std::vector<std::string> texts;
    for (const Skipped& one : wheel->skipped()) {
      const std::string name = one.path.substr(std::min(one.path.size(), path.size() + 1));
      texts.push_back(name + ": " + std::string(info(one.reason.code).name));
    }
    return texts;
  }
};

using Names = std::vector<std::string>;

TEST(Wheel, HasTheMembersThatMayBeNativeCode) {
  const Read read(Members{{.name = "foo/x.so", .bytes = kElf, .deflated = true},
                          {.name = "foo/__init__.py", .bytes = "import x"},
                          {.name = "foo-1.2.data/scripts/tool", .bytes = kElf, .mode = 0100755},
                          {.name = "foo-1.2.data/scripts/script", .bytes = "#!python"},
                          {.name = "foo-1.2.data/platlib/foo/y.so.1", .bytes = "y"},
                          {.name = "foo-1.2.dist-info/METADATA", .bytes = "Name: Foo\n\n"},
                          {.name = "foo/LICENSE", .bytes = "text", .method = 12},
                          {.name = "foo/z.dll", .bytes = "MZ"}});
  ASSERT_NE(read.wheel, nullptr);
  EXPECT_EQ(read.names(),
            (Names{"foo-1.2.data/scripts/tool", "foo/x.so", "foo-1.2.data/platlib/foo/y.so.1"}));
  EXPECT_EQ(read.wheel->metadata(), "Name: Foo\n\n");
  EXPECT_EQ(read.skipped(), (Names{"foo/LICENSE: wheel-member", "foo/z.dll: foreign-file"}));
  EXPECT_EQ(read.wheel->name().distribution, "foo");
  EXPECT_EQ(read.wheel->name().platform, "linux_x86_64");
}

TEST(Wheel, IsAFolderToWhoLooksForLibraries) {
  const Read read(Members{{.name = "foo/x.so", .bytes = "x"},
                          {.name = "foo.libs/liby.so.2", .bytes = "yy", .deflated = true},
                          {.name = "foo-1.2.data/purelib/foo/z.so", .bytes = "zzz"}});
  EXPECT_EQ(read.text("foo/x.so"), "x");
  EXPECT_EQ(read.text("foo/../foo.libs/./liby.so.2"), "yy");
  EXPECT_EQ(read.text("foo/z.so"), "zzz");
  EXPECT_EQ(read.wheel->open(read.path + "/foo/none.so").has_value(), false);
  EXPECT_EQ(read.wheel->open(read.path + "/foo").has_value(), false);
}

// pip puts data next to lib and bin, and scripts into bin.
TEST(Wheel, DataAndScriptsAreWhereInstallersPutThem) {
  const Read read(Members{{.name = "foo/x.so", .bytes = "x"},
                          {.name = "foo-1.2.data/scripts/tool", .bytes = kElf},
                          {.name = "foo-1.2.data/data/lib/liby.so", .bytes = "y"},
                          {.name = "foo-1.2.data/data/bin/other", .bytes = kElf}});
  EXPECT_EQ(read.text("foo/../../../liby.so"), "y");
  EXPECT_EQ(read.text("foo-1.2.data/scripts/../lib/liby.so"), "y");
  EXPECT_EQ(read.text("foo-1.2.data/scripts/../lib/python3.9/site-packages/foo/x.so"), "x");
  EXPECT_EQ(read.text("foo-1.2.data/scripts/other"), kElf);
  EXPECT_EQ(read.text("foo-1.2.data/data/lib/liby.so"), "y");
  EXPECT_TRUE(read.wheel->is_folder(read.path + "/foo-1.2.data/scripts/../lib"));
  EXPECT_FALSE(read.wheel->open(read.path + "/foo/../../../../../lib/liby.so").has_value());
  for (const WheelMember& member : read.wheel->members()) {
    EXPECT_TRUE(read.wheel->identify(member.path).has_value()) << member.path;
  }
}

TEST(Wheel, DotsAndDoubleSlashesAreNoOtherPlace) {
  const Read read(Members{{.name = "foo//./x.so", .bytes = "x"},
                          {.name = "foo/x.so", .bytes = "y"},
                          {.name = ".", .bytes = "x"},
                          {.name = "./foo/y.so", .bytes = "z"}});
  EXPECT_EQ(read.names(), (Names{"foo/x.so", "./foo/y.so"}));
  EXPECT_EQ(read.text("foo/x.so"), "y");
  EXPECT_EQ(read.text("foo/y.so"), "z");
}

TEST(Wheel, NothingOutsideIsReadThroughIt) {
  const Read read(Members{{.name = "foo/x.so", .bytes = "x"}});
  read.folder.write("secret.so", "secret");
  EXPECT_FALSE(read.wheel->open(read.path + "/../secret.so").has_value());
  EXPECT_FALSE(read.wheel->identify(read.path + "/foo/../../secret.so").has_value());
  EXPECT_TRUE(read.wheel->open((read.folder.path() / "secret.so").string()).has_value());
}

TEST(Wheel, MembersHaveIdentitiesOfTheirOwn) {
  const Read read(Members{{.name = "foo/x.so", .bytes = "x"}, {.name = "foo/y.so", .bytes = "x"}});
  const auto x = read.wheel->identify(read.path + "/foo/x.so");
  const auto y = read.wheel->identify(read.path + "/foo/y.so");
  ASSERT_TRUE(x && y);
  EXPECT_NE(*x, *y);
  EXPECT_EQ(x->inode, y->inode);
  EXPECT_EQ(*x, read.wheel->open(read.path + "/foo/x.so")->identity);
}

TEST(Wheel, LeavesNoFileBehind) {
  const Read read(Members{{.name = "foo/x.so", .bytes = "x", .deflated = true}});
  setenv("TMPDIR", read.folder.path().c_str(), 1);
  const std::optional<OpenFile> file = read.wheel->open(read.path + "/foo/x.so");
  unsetenv("TMPDIR");
  ASSERT_TRUE(file.has_value());
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(read.folder.path())) {
    count += entry.exists();
  }
  EXPECT_EQ(count, 1u);  // only the wheel
}

TEST(Wheel, PassesOverWhatNoWheelShouldHave) {
  const Read read(Members{{.name = "../x.so", .bytes = "x"},
                          {.name = "/etc/x.so", .bytes = "x"},
                          {.name = "foo\\x.so", .bytes = "x"},
                          {.name = "foo/link.so", .bytes = "/etc/passwd", .mode = 0120777},
                          {.name = "foo/ok.so", .bytes = "ok"}});
  EXPECT_EQ(read.names(), Names{"foo/ok.so"});
  EXPECT_EQ(read.skipped(), (Names{"../x.so: wheel-member", "/etc/x.so: wheel-member",
                                   "foo\\x.so: wheel-member", "foo/link.so: wheel-member"}));
}

TEST(Wheel, TheLaterOfTwoCounts) {
  const Read read(
      Members{{.name = "foo/x.so", .bytes = "old"}, {.name = "foo/x.so", .bytes = "newer"}});
  EXPECT_EQ(read.text("foo/x.so"), "newer");
  EXPECT_EQ(read.skipped(), Names{"foo/x.so: wheel-duplicate"});
}

TEST(Wheel, MembersThatShareBytesAreNotRead) {
  const Read read(
      Members{{.name = "foo/x.so", .bytes = "abc"},
              {.name = "foo/y.so", .bytes = "abc", .local_name = "foo/x.so", .header = 0}});
  EXPECT_EQ(read.names(), Names{"foo/x.so"});
  EXPECT_EQ(read.skipped(), Names{"foo/y.so: wheel-member"});
  // A member within another member, as in zip bombs; its header is genuine.
  const std::string inner = zip_of({{.name = "foo/b.so", .bytes = "abc"}}).substr(0, 41);
  const Read nested(
      {{.name = "foo/a.so", .bytes = inner}, {.name = "foo/b.so", .bytes = "abc", .header = 38}});
  EXPECT_EQ(nested.skipped(), Names{"foo/b.so: wheel-member"});
}

TEST(Wheel, ADamagedOneIsOneReason) {
  opdock_test::TemporaryFolder folder;
  std::vector<Reason> reasons;
  EXPECT_EQ(Wheel::read(folder.write("a.whl", "no zip").string(), &reasons), nullptr);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].code, Code::kWheelDamaged);
  EXPECT_EQ(Wheel::read((folder.path() / "none.whl").string(), &reasons), nullptr);
  EXPECT_EQ(reasons.back().code, Code::kPathMissing);
}

TEST(NativeNames, AreLibrariesOfThisSystemAndOthers) {
  for (const char* name :
       {"x.so", "libx.so.1", "libx.so.1.2.3", "x.cpython-311-x86_64-linux-gnu.so",
        "libopenblas64_p-r0-0cf96a72.3.23.dev.so"}) {
    EXPECT_EQ(native_kind(name), NativeKind::kLibrary) << name;
  }
  for (const char* name : {"x.so.1.txt", "x.py", "x.so.a", "LICENSE.md"}) {
    EXPECT_EQ(native_kind(name), NativeKind::kOther) << name;
  }
  for (const char* name : {"libssl-3e69.so.1.0.2n", "libM.so.24.0git", "mpiexec.hydra", "x.so."}) {
    EXPECT_EQ(native_kind(name), NativeKind::kMaybe) << name;
  }
  for (const char* name : {"x.dll", "_x.pyd", "libx.dylib"}) {
    EXPECT_EQ(native_kind(name), NativeKind::kForeign) << name;
  }
  EXPECT_EQ(native_kind("ruff"), NativeKind::kMaybe);
  EXPECT_TRUE(is_linker_script("/* GNU ld script"));
  EXPECT_FALSE(is_linker_script(kElf));
}

}  // namespace
}  // namespace opdock
