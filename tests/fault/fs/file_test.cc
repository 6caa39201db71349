// Tests files in a plugin folder that are not plugins or cannot be reached.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "folder.h"

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

// Takes root's right to read everything from this thread and from threads that it starts.
class WithoutOverride {
 public:
  WithoutOverride() {
    header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
    syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct now[2] = {before_[0], before_[1]};
    now[0].effective &= ~((1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH));
    syscall(SYS_capset, &header_, now);
  }
  ~WithoutOverride() { syscall(SYS_capset, &header_, before_); }
  WithoutOverride(const WithoutOverride&) = delete;
  WithoutOverride& operator=(const WithoutOverride&) = delete;

 private:
  __user_cap_header_struct header_{};
  __user_cap_data_struct before_[2] = {};
};

struct Row {
  const char* name;
  const char* file;  // name in the folder, as it is reported
  Code code;
  std::function<void(const Folder& folder)> make;
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name;
}

void make_socket(const std::string& path) {
  // A socket's path is limited to 107 characters, so bind a name relative to the folder.
  const fs::path before = fs::current_path();
  fs::current_path(fs::path(path).parent_path());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, fs::path(path).filename().c_str());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  close(fd);
  fs::current_path(before);
}

void link(const Folder& folder, const char* target, const char* name) {
  fs::create_symlink(target, folder.path(name));
}

const Row kRows[] = {
    {"fifo", "x.so", Code::kNotRegular,
     [](const Folder& f) { mkfifo(f.path("x.so").c_str(), 0600); }},
    {"socket", "x.so", Code::kNotRegular, [](const Folder& f) { make_socket(f.path("x.so")); }},
    {"folder", "x.so", Code::kNotRegular,
     [](const Folder& f) { fs::create_directory(f.path("x.so")); }},
    {"link_to_folder", "x.so", Code::kNotRegular, [](const Folder& f) { link(f, "..", "x.so"); }},
    {"link_to_null_device", "x.so", Code::kNotRegular,
     [](const Folder& f) { link(f, "/dev/null", "x.so"); }},
    {"link_to_fifo", "x.so", Code::kNotRegular,
     [](const Folder& f) {
       mkfifo(f.path("pipe").c_str(), 0600);
       link(f, "pipe", "x.so");
     }},
    {"link_to_socket", "x.so", Code::kNotRegular,
     [](const Folder& f) {
       make_socket(f.path("socket"));
       link(f, "socket", "x.so");
     }},
    {"link_dangling", "x.so", Code::kLinkBroken,
     [](const Folder& f) { link(f, "nowhere", "x.so"); }},
    {"link_dangling_absolute", "x.so", Code::kLinkBroken,
     [](const Folder& f) { link(f, "/nowhere/at/all.so", "x.so"); }},
    {"link_to_itself", "x.so", Code::kLinkBroken, [](const Folder& f) { link(f, "x.so", "x.so"); }},
    {"link_loop_of_two", "x.so", Code::kLinkBroken,
     [](const Folder& f) {
       link(f, "y", "x.so");
       link(f, "x.so", "y");
     }},
    {"link_through_a_file", "x.so", Code::kLinkBroken,
     [](const Folder& f) { link(f, "good.so/x", "x.so"); }},
    {"link_chain_too_long", "x.so", Code::kLinkBroken,
     [](const Folder& f) {
       f.add("good_b", "l0");
       for (int i = 1; i <= 45; ++i) {
         link(f, ("l" + std::to_string(i - 1)).c_str(), ("l" + std::to_string(i)).c_str());
       }
       link(f, "l45", "x.so");
     }},
    {"empty", "x.so", Code::kFileEmpty, [](const Folder& f) { f.write("x.so", ""); }},
    {"one_byte", "x.so", Code::kNotElf, [](const Folder& f) { f.write("x.so", "\x7f"); }},
    {"text", "x.so", Code::kNotElf, [](const Folder& f) { f.write("x.so", "hello, world\n"); }},
    {"linker_script", "x.so", Code::kNotElf,
     [](const Folder& f) { f.write("x.so", "GROUP ( /lib/libc.so.6 )\n"); }},
    {"archive", "x.so", Code::kNotElf, [](const Folder& f) { f.write("x.so", "!<arch>\n"); }},
    {"link_to_text", "x.so", Code::kNotElf,
     [](const Folder& f) {
       f.write("note.txt", "hello");
       link(f, "note.txt", "x.so");
     }},
    {"half_a_plugin", "x.so", Code::kElfTruncated,
     [](const Folder& f) {
       const std::string path = f.add("good_b", "x.so");
       fs::resize_file(path, fs::file_size(path) / 2);
     }},
    {"plain_shared_object", "x.so", Code::kNoteMissing,
     [](const Folder& f) { fs::copy_file("/proc/self/exe", f.path("x.so")); }},
    {"unreadable_file", "x.so", Code::kPathUnreadable,
     [](const Folder& f) { chmod(f.add("good_b", "x.so").c_str(), 0); }},
    {"link_into_an_unreadable_folder", "x.so", Code::kPathUnreadable,
     [](const Folder& f) {
       fs::create_directory(f.path("locked"));
       f.add("good_b", "locked/b");
       link(f, "locked/b", "x.so");
       chmod(f.path("locked").c_str(), 0);
     }},
    {"name_not_utf8", "\\xff\\xfe.so", Code::kNameInvalid,
     [](const Folder& f) { f.add("good_b", "\xff\xfe.so"); }},
    {"name_cut_utf8", "\\xc3.so", Code::kNameInvalid,
     [](const Folder& f) { f.add("good_b", "\xc3.so"); }},
    {"name_overlong_utf8", "\\xc0\\xaf.so", Code::kNameInvalid,
     [](const Folder& f) { f.add("good_b", "\xc0\xaf.so"); }},
    {"name_surrogate_utf8", "\\xed\\xa0\\x80.so", Code::kNameInvalid,
     [](const Folder& f) { f.add("good_b", "\xed\xa0\x80.so"); }},
};

class BadFile : public ::testing::TestWithParam<Row> {};

TEST_P(BadFile, IsReportedAndTheOthersLoad) {
  const Folder folder;
  folder.add("good");
  GetParam().make(folder);
  {
    const WithoutOverride no_override;
    const SearchOptions options = explicit_place(folder.path());
    const std::shared_ptr<const Candidate> candidate =
        at(*find(options), folder.path(GetParam().file));
    ASSERT_NE(candidate, nullptr);
    EXPECT_EQ(candidate->verdict.state, State::kRejected);
    EXPECT_TRUE(has_code(candidate->verdict.reasons, GetParam().code)) << describe(*candidate);
    for (const Reason& reason : candidate->verdict.reasons) {
      EXPECT_FALSE(reason.found.empty());
      EXPECT_FALSE(reason.advice.empty());
    }
    expect_good_still_loads(options);
  }
  chmod(folder.path("locked").c_str(), 0700);
}

INSTANTIATE_TEST_SUITE_P(Row, BadFile, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BadFile, ADeviceIsNotOpened) {
  const Folder folder;
  folder.add("good");
  if (mknod(folder.path("x.so").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) {
    GTEST_SKIP() << "making a device node needs root with CAP_MKNOD";
  }
  const SearchOptions options = explicit_place(folder.path());
  const std::shared_ptr<const Candidate> candidate = at(*find(options), folder.path("x.so"));
  EXPECT_TRUE(has_code(candidate->verdict.reasons, Code::kNotRegular)) << describe(*candidate);
  expect_good_still_loads(options);
}

// Files that are unusual but usable.
struct Fine {
  const char* name;
  const char* file;
  std::function<void(const Folder& folder)> make;
};

void PrintTo(const Fine& row, std::ostream* out) {
  *out << row.name;
}

const Fine kFine[] = {
    {"link_in_the_folder", "x.so",
     [](const Folder& f) {
       f.add("good", "real");
       link(f, "real", "x.so");
     }},
    {"link_outside_the_folder", "x.so",
     [](const Folder& f) { fs::create_symlink(case_path("good"), f.path("x.so")); }},
    {"link_to_a_link", "x.so",
     [](const Folder& f) {
       f.add("good", "real");
       link(f, "real", "between");
       link(f, "between", "x.so");
     }},
    {"name_with_spaces", "a name with spaces.so",
     [](const Folder& f) { f.add("good", "a name with spaces.so"); }},
    {"name_in_utf8", "λ-größe.so", [](const Folder& f) { f.add("good", "λ-größe.so"); }},
    {"name_with_line_break", "a\nb.so", [](const Folder& f) { f.add("good", "a\nb.so"); }},
    {"name_with_escape", "\033[31mred.so",
     [](const Folder& f) { f.add("good", "\033[31mred.so"); }},
    {"name_hidden", ".hidden.so", [](const Folder& f) { f.add("good", ".hidden.so"); }},
    {"name_only_suffix", ".so", [](const Folder& f) { f.add("good", ".so"); }},
    {"not_executable", "x.so", [](const Folder& f) { chmod(f.add("good", "x.so").c_str(), 0444); }},
};

class UnusualFile : public ::testing::TestWithParam<Fine> {};

TEST_P(UnusualFile, IsUsable) {
  const Folder folder;
  GetParam().make(folder);
  const SearchOptions options = explicit_place(folder.path());
  const std::shared_ptr<const Candidate> candidate =
      at(*find(options), folder.path(GetParam().file));
  ASSERT_NE(candidate, nullptr);
  EXPECT_EQ(candidate->verdict.state, State::kUsable) << describe(*candidate);
  expect_good_still_loads(options);
}

INSTANTIATE_TEST_SUITE_P(Row, UnusualFile, ::testing::ValuesIn(kFine),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(UnusualFile, OfTheLongestNameIsUsable) {
  const Folder folder;
  const std::string name = std::string(252, 'n') + ".so";
  folder.add("good", name);
  EXPECT_EQ(at(*find(explicit_place(folder.path())), folder.path(name))->verdict.state,
            State::kUsable);
}

TEST(UnusualFile, WithoutTheSuffixIsNotLookedAt) {
  const Folder folder;
  folder.add("good");
  for (const char* name : {"x.so.1", "x.dll", "so", "x.SO", "xso", "README"}) {
    folder.add("good_b", name);
  }
  fs::create_directory(folder.path("deeper"));
  folder.add("good_b", "deeper/x.so");
  EXPECT_EQ(find(explicit_place(folder.path()))->candidates().size(), 1u);
}

TEST(Folder, OfTenThousandEntriesIsListedWholeAndInOrder) {
  const Folder folder;
  folder.add("good");
  for (int i = 0; i < 10000; ++i) folder.write(std::to_string(i) + ".so", "text");
  const SearchOptions options = explicit_place(folder.path());
  const std::shared_ptr<const Catalog> catalog = find(options);
  ASSERT_EQ(catalog->candidates().size(), 10001u);
  for (size_t i = 1; i < catalog->candidates().size(); ++i) {
    EXPECT_LT(catalog->candidates()[i - 1]->path, catalog->candidates()[i]->path);
    EXPECT_EQ(catalog->candidates()[i]->rank, i);
  }
  expect_good_still_loads(options);
}

}  // namespace
}  // namespace opdock::testing
